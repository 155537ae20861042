"""Agreement of int8 with float, and which tensor costs most."""

import dataclasses

import numpy as np
import pytest
from models import one_hot, quantized, random_enc, random_float_model, script_model

from pkrnnt import FloatModel, Hypothesis, Int8Model, rnnt_greedy
from pkrnnt.dataset import Utterances
from quant import measure_agreement
from quant.attribution import decibels, tensor_costs, with_one_tensor
from quant.calibration import edit_distance, greedy_path, trace

HIDDEN = "decoder.prediction.dec_rnn.lstm.weight_hh_l0"


def rebuilt(model, **tensors):
    return Int8Model.from_tensors({**model.tensors(), **tensors}, model.config, model.quantization, {})


def test_greedy_path_lists_every_joint_call():
    hyp = Hypothesis([4, 5, 6], [0, 2, 2], [1.0, 1.0, 1.0])
    path = greedy_path(hyp, 4, 9, 2)
    assert path.frame.tolist() == [0, 0, 1, 2, 2, 3]
    assert path.step.tolist() == [0, 1, 1, 1, 2, 3]
    assert path.label.tolist() == [4, 9, 9, 5, 6, 9]
    assert len(greedy_path(Hypothesis(), 0, 9, 2).frame) == 0


def test_trace_is_the_float_decode():
    model = random_float_model(1, layers=2)
    enc = random_enc(model, 30)
    seen = trace(model, enc)
    logits = seen.hidden @ model.joint_out.weight.T + model.joint_out.bias
    assert logits.argmax(axis=1).tolist() == seen.path.label.tolist()
    assert seen.hyp == rnnt_greedy(model, enc)
    assert seen.h.shape == (len(seen.hyp) + 1, 2, 5)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("abcd", "bcda", 2)],
)
def test_edit_distance(a, b, wanted):
    assert edit_distance(list(a), list(b)) == wanted
    assert edit_distance(list(b), list(a)) == wanted


def test_a_perfect_int8_model_agrees_everywhere():
    rules = {(1, -1): 0, (2, 0): 1, (1, 1): 2}
    model = script_model(rules, 3, 4, vocabulary=[" a", " b", " c", " d"])
    enc = one_hot([0, 1, 0, 2, 0, 1], 3)
    utterances = Utterances([enc, enc[:2], enc[:0]], ["a b c", "a x", ""])
    result = measure_agreement(model, quantized(model, enc), utterances)
    assert (result.utterances, result.joint_calls, result.agreeing) == (3, 13 - 1, 12)
    assert (result.nonblank_calls, result.nonblank_agreeing) == (4, 4)
    assert result.argmax_agreement == result.argmax_agreement_nonblank == 1.0
    assert (result.utterances_identical, result.utterances_identical_frames) == (3, 3)
    assert (result.tokens, result.token_edits) == (4, 0)
    assert (result.words, result.word_errors_float, result.word_errors_int8) == (5, 1, 1)
    assert result.by_position == [[12, 12], [0, 0], [0, 0]]
    assert result.disagreements == []


def with_output_bias(model, row, change):
    """The int8 model with one logit moved by ``change`` (in logits)."""
    bias = model.joint_out.bias.copy()
    scale = model.quantization.joint.hidden_scale
    weight_scale = model.weight_scales()["joint.joint_net.2.weight"][row]
    bias[row] += round(change / (scale * weight_scale))
    return rebuilt(model, **{"joint.joint_net.2.bias": bias})


def test_disagreements_are_told_apart_with_their_margins():
    """A planted bias turns blanks into tokens, tokens into blanks, or one token into another."""
    model = script_model({(1, -1): 0, (1, 0): 1}, 2, 3)  # logits: blank 4, a token on 16
    enc = one_hot([0, 1, 0, 1, 0], 2)
    int8_model = quantized(model, enc)
    calls = trace(model, enc).path

    def kinds(changed):
        result = measure_agreement(model, changed, Utterances([enc]))
        assert result.joint_calls == len(calls.frame)
        return result, {name: len(found) for name, found in result.kinds().items()}

    blanks = int((calls.label == 3).sum())
    result, counts = kinds(with_output_bias(int8_model, 2, 6.0))
    assert counts == {"token_to_blank": 0, "blank_to_token": blanks, "token_to_token": 0}
    assert all(found.margin == pytest.approx(4.0, abs=0.1) for found in result.disagreements)
    assert [found.first for found in result.disagreements] == [True] + [False] * (blanks - 1)
    assert result.disagreements[0].frame == 0
    assert result.utterances_identical == 0
    assert result.different_tokens == [0]
    assert result.token_edits > 0

    result, counts = kinds(with_output_bias(int8_model, 3, 14.0))
    assert counts == {"token_to_blank": 2, "blank_to_token": 0, "token_to_token": 0}
    assert result.nonblank_agreeing == 0
    assert result.agreeing == blanks

    # Lifting token 2 by 18 beats both a token's 16 and blank's 4.
    _, counts = kinds(with_output_bias(int8_model, 2, 18.0))
    assert counts == {"token_to_blank": 0, "blank_to_token": blanks, "token_to_token": 2}


def test_the_first_disagreement_is_where_free_running_leaves_the_float_path():
    model = random_float_model(9, vocab=12, joint=16)
    int8_model = with_output_bias(quantized(model), 2, 0.15)
    utterances = [random_enc(model, 60, seed) for seed in range(12)]
    result = measure_agreement(model, int8_model, Utterances(utterances))
    first = {found.utterance: found for found in result.disagreements if found.first}
    assert first
    for index, enc in enumerate(utterances):
        a, b = rnnt_greedy(model, enc), rnnt_greedy(int8_model, enc)
        same = (a.tokens, a.frames) == (b.tokens, b.frames)
        assert same == (index not in first)
        if not same:
            frame = first[index].frame
            before_a = [pair for pair in zip(a.frames, a.tokens, strict=True) if pair[0] < frame]
            before_b = [pair for pair in zip(b.frames, b.tokens, strict=True) if pair[0] < frame]
            assert before_a == before_b


def test_f04_agreement_is_counted_by_position():
    model = random_float_model(20, max_symbols=3)
    enc = random_enc(model, 400)
    tokens = len(rnnt_greedy(model, enc))
    assert tokens > 500
    result = measure_agreement(model, quantized(model), Utterances([enc]))
    calls = [calls for calls, _ in result.by_position]
    assert sum(calls) == result.joint_calls
    assert all(calls)
    assert sum(agreeing for _, agreeing in result.by_position) == result.agreeing


def test_f06_frames_of_another_scale_saturate_and_are_warned_about():
    from quant.report import saturation_warnings

    model = random_float_model(3)
    int8_model = quantized(model)
    good = measure_agreement(model, int8_model, Utterances([random_enc(model, 50)]))
    assert not [w for w in saturation_warnings("evaluation", good) if "enc values" in w]
    loud = measure_agreement(model, int8_model, Utterances([random_enc(model, 50) * 10]))
    assert any("of the enc values saturate" in w for w in saturation_warnings("evaluation", loud))


def test_no_utterances():
    model = random_float_model(3)
    result = measure_agreement(model, quantized(model), Utterances([]))
    assert (result.argmax_agreement, result.argmax_agreement_nonblank) == (None, None)
    assert result.word_error_rate(0) is None


def test_margins_of_a_model_with_nothing_but_blank():
    model = random_float_model(3, vocab=0)
    result = measure_agreement(model, quantized(model), Utterances([random_enc(model, 4)]))
    assert result.joint_calls == result.agreeing == 4


# Which tensor costs most


def test_f07_a_tensor_broken_on_purpose_is_named_first(digits_float, digits_int8, digits_utterances):
    utterances = Utterances(digits_utterances[:8])
    healthy = tensor_costs(digits_float, digits_int8, utterances)
    assert healthy[0].name == "joint.joint_net.2.weight"
    for name in (HIDDEN, "joint.pred.weight", "joint.enc.weight"):
        shift = digits_int8.linears()[name].shift + np.int8(2)  # times four
        broken = rebuilt(digits_int8, **{name.replace("weight", "shift"): shift})
        costs = tensor_costs(digits_float, broken, utterances)
        assert costs[0].name == name
        assert costs[0].logit_sqnr_db < healthy[0].logit_sqnr_db - 20
        assert costs[0].sqnr_db < 0


def test_tensor_costs_list_every_weight(digits_float, digits_int8, digits_utterances):
    costs = tensor_costs(digits_float, digits_int8, Utterances(digits_utterances[:2]))
    weights = {n: a for n, a in digits_int8.tensors().items() if "weight" in n}
    assert {cost.name: cost.bytes for cost in costs} == {n: a.nbytes for n, a in weights.items()}
    for cost in costs:
        assert cost.dtype == "int8"
        assert 0 < cost.scale_min <= cost.scale
        assert 30 < cost.sqnr_db < 60
    assert [c.logit_sqnr_db for c in costs] == sorted(c.logit_sqnr_db for c in costs)


def test_dequantized_tensors_are_near_the_float_ones():
    model = random_float_model(4, layers=2, embed=3)
    int8_model = quantized(model)
    for name in [*int8_model.linears(), "decoder.prediction.embed.weight"]:
        variant = with_one_tensor(model, int8_model, name).tensors()
        bias = name.replace("weight", "bias")
        for other, array in model.tensors().items():
            if other == name or (other == bias and "embed" not in name):
                np.testing.assert_allclose(variant[other], array, atol=0.01)
                assert not np.array_equal(variant[other], array)
            else:
                np.testing.assert_array_equal(variant[other], array)


def test_decibels():
    ones = np.ones(4)
    assert decibels(ones, 0.1 * ones) == pytest.approx(20)
    assert decibels(ones, 0 * ones) == 200
    assert decibels(0 * ones, ones) == -200


def test_costs_without_frames():
    model = random_float_model(4)
    costs = tensor_costs(model, quantized(model), Utterances([]))
    assert {cost.logit_sqnr_db for cost in costs} == {200.0}
    assert isinstance(dataclasses.asdict(costs[0])["scale"], float)
    assert isinstance(model, FloatModel)
