"""The fused int8 decoder against greedy.py over the int8 networks, and against plain Python integers."""

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import one_hot, quantized, random_enc, random_float_model, script_model, snapshot

from pkrnnt import (
    FloatModel,
    SaturationCounters,
    decoder,
    greedy,
    rnnt_decode_frames,
    rnnt_decode_init,
    rnnt_greedy,
)


def check_fused_equals_slow(model, chunks, max_symbols):
    fused, slow = rnnt_decode_init(model), rnnt_decode_init(model)
    arguments = model.prediction, model.joint, model.config.blank_id
    for chunk in chunks:
        one = decoder.decode_frames(*arguments, chunk, fused, max_symbols)
        other = greedy.decode_frames(*arguments, chunk, slow, max_symbols)
        assert one == other
        assert snapshot(fused) == snapshot(slow)
    return fused.hyp


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    activation=st.sampled_from(["relu", "tanh", "sigmoid"]),
    layers=st.integers(1, 3),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 17), st.integers(1, 9), st.integers(1, 9)),
    granularity=st.sampled_from(["row", "gate"]),
    max_symbols=st.integers(1, 4),
)
def test_fused_equals_slow_on_random_models(seed, activation, layers, sizes, granularity, max_symbols):
    vocab, joint, enc, hidden = sizes
    model = quantized(
        random_float_model(
            seed, activation, layers=layers, vocab=vocab, joint=joint, enc=enc, hidden=hidden
        ),
        granularity=granularity,
    )
    frames = random_enc(model, 70, seed) * 2  # beyond the calibrated range: saturation too
    check_fused_equals_slow(model, [frames[:33], frames[33:33], frames[33:]], max_symbols)


def test_fused_equals_slow_on_digits(digits_int8, digits_utterances):
    tokens = 0
    for enc in digits_utterances:
        tokens += len(check_fused_equals_slow(digits_int8, [enc], 10))
    assert tokens > 400


@pytest.mark.parametrize(
    ("seed", "activation", "layers"), [(20, "relu", 1), (12, "tanh", 2), (26, "sigmoid", 1)]
)
def test_decode_equals_the_oracle(sigmoid_table, seed, activation, layers):
    model = quantized(random_float_model(seed, activation, layers=layers, embed=3))
    enc = random_enc(model, 40)
    state = rnnt_decode_init(model)
    hyp = rnnt_decode_frames(model, enc, state)
    frames = model.joint.quantize_enc(enc).tolist()
    tokens, at, confidences, h, c = oracle.greedy(
        oracle.plain_model(model), frames, model.config.blank_id, 3, sigmoid_table
    )
    assert len(tokens) > 10
    assert hyp.tokens == tokens
    assert hyp.frames == at
    assert [value * 32768 for value in hyp.confidence] == confidences
    assert [array.tolist() for array in state.prediction_state] == [h, c]


def test_digits_equal_the_oracle(sigmoid_table, digits_int8, digits_utterances):
    enc = digits_utterances[3][:40]
    hyp = rnnt_greedy(digits_int8, enc)
    tokens, at, confidences, _, _ = oracle.greedy(
        oracle.plain_model(digits_int8),
        digits_int8.joint.quantize_enc(enc).tolist(),
        digits_int8.config.blank_id,
        10,
        sigmoid_table,
    )
    assert hyp.tokens == tokens
    assert hyp.frames == at
    assert [value * 32768 for value in hyp.confidence] == confidences


def test_b16_a_long_stream_equals_the_oracle_at_its_end(sigmoid_table):
    rules = {(1, last): (last + 1) % 3 for last in range(3)} | {(1, -1): 0}
    model = quantized(script_model(rules, 2, 3, max_symbols=1), one_hot([0, 1] * 30, 2))
    kinds = (np.arange(5000) % 5 == 0).astype(int)
    enc = one_hot(kinds, 2)
    state = rnnt_decode_init(model)
    for start in range(0, 5000, 613):
        rnnt_decode_frames(model, enc[start : start + 613], state)
    tokens, at, confidences, h, c = oracle.greedy(
        oracle.plain_model(model),
        model.joint.quantize_enc(enc).tolist(),
        3,
        1,
        sigmoid_table,
    )
    assert len(tokens) == 1000
    assert (state.hyp.tokens, state.hyp.frames) == (tokens, at)
    assert [value * 32768 for value in state.hyp.confidence] == confidences
    assert [array.tolist() for array in state.prediction_state] == [h, c]


# Saturation


def test_counters_count_what_the_oracle_sees(sigmoid_table):
    model = quantized(random_float_model(12, gain=4.0))
    enc = random_enc(model, 30) * 3
    counters = SaturationCounters()
    hyp = rnnt_greedy(model, enc, counters=counters)
    counts = counters.as_dict()
    assert tuple(counts) == SaturationCounters.NAMES
    config = model.config
    assert counts["enc"]["total"] == enc.size
    q = np.rint(enc * np.float32(model.quantization.joint.enc_inverse_scale))
    zero_point = model.quantization.joint.enc_zero_point
    assert counts["enc"]["saturated"] == ((q < -128 - zero_point) | (q > 127 - zero_point)).sum() > 0
    plain = oracle.plain_model(model)
    size = config.pred_hidden
    inputs, gates, state = 0, 0, ([model.quantization.lstm[0].hidden_zero_point] * size, [0] * size)
    layer = plain["layers"][0]
    steps = counts["hidden"]["total"] // size
    for token in [None, *hyp.tokens][:steps]:
        x = plain["embed"][token] if token is not None else [0] * config.embed_dim
        a, b = oracle.linear(*layer["input"], x), oracle.linear(*layer["hidden"], state[0])
        inputs += sum(oracle.sat16(p) != p for p in a)
        sums = [oracle.sat16(p) + q for p, q in zip(a, b, strict=True)]
        gates += sum(oracle.sat16(total) != total for total in sums)
        state = oracle.lstm_step(layer, x, *state, sigmoid_table)
    assert counts["gate_input"] == {"saturated": inputs, "total": 4 * size * steps}
    assert counts["gate"] == {"saturated": gates, "total": 4 * size * steps}
    assert min(inputs, gates) > 0
    assert counts["joint_enc"]["total"] == 30 * config.joint_hidden
    assert counts["joint_sum"]["total"] == counts["joint_hidden"]["total"] > 0


def test_counters_change_nothing_and_add_up(digits_int8, digits_utterances):
    counters = SaturationCounters()
    enc = digits_utterances[0]
    assert rnnt_greedy(digits_int8, enc, counters=counters) == rnnt_greedy(digits_int8, enc)
    once = counters.as_dict()
    rnnt_greedy(digits_int8, enc, counters=counters)
    assert counters.as_dict() == {
        name: {key: 2 * value for key, value in values.items()} for name, values in once.items()
    }


def test_gates_cells_and_frames_saturate_and_never_wrap():
    """Trained models leave +-8 in gates and in cells; the int8 path must follow the float one there."""
    model = random_float_model(13)
    tensors = {name: array.copy() for name, array in model.tensors().items()}
    lstm = "decoder.prediction.dec_rnn.lstm."
    size = model.config.pred_hidden
    for name in ("weight_ih_l0", "weight_hh_l0"):
        tensors[lstm + name] *= 0.01
    tensors[lstm + "bias_hh_l0"][:] = 0
    # Input, forget and output gates wide open, the candidate at +1: the cell grows by one a token.
    tensors[lstm + "bias_ih_l0"] = np.repeat([30.0, 30.0, 30.0, 30.0], size).astype(np.float32)
    tensors["joint.joint_net.2.weight"][:] = 0
    tensors["joint.joint_net.2.bias"] = np.eye(1, 7, 2, dtype=np.float32)[0]
    model = FloatModel.from_tensors(tensors, max_symbols=1)
    int8_model = quantized(model, random_enc(model, 14))
    counters, state = SaturationCounters(), rnnt_decode_init(int8_model)
    rnnt_decode_frames(int8_model, random_enc(int8_model, 100), state, counters=counters)
    counts = counters.as_dict()
    assert counts["gate_input"]["saturated"] == counts["gate_input"]["total"] > 0
    assert counts["cell"]["saturated"] > 0
    assert (state.prediction_state[1] == 32767).all()
    assert (state.prediction_state[0] > 100).all()  # tanh of a large cell is still about one
