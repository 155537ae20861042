"""The greedy loop, for the float and the int8 model alike. Ids such as A01 name the public cases."""

import copy
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import one_hot, quantized, random_enc, random_float_model, script_model, snapshot

import pkrnnt
from pkrnnt import SOS, decoder, greedy, rnnt_decode_frames, rnnt_decode_init, rnnt_greedy

BLANK_KIND = 0


def pair(rules, kinds, vocab, **settings):
    """The scripted model in float and in int8."""
    model = script_model(rules, kinds, vocab, **settings)
    kinds_seen = np.tile(np.arange(kinds), 4)
    return {"float": model, "int8": quantized(model, one_hot(kinds_seen, kinds))}


@pytest.fixture(params=["float", "int8"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def random_models():
    return {
        (activation, layers): {
            "float": (model := random_float_model(layers, activation, layers=layers)),
            "int8": quantized(model),
        }
        for activation, layers in (("relu", 1), ("tanh", 2), ("sigmoid", 3))
    }


def decode_chunks(model, chunks):
    """(state, hypotheses) of chunks decoded one after another."""
    state = rnnt_decode_init(model)
    return state, [rnnt_decode_frames(model, chunk, state) for chunk in chunks]


# The loop


ALWAYS_2 = {(1, last): 2 for last in (SOS, 0, 1, 2, 3)}


def test_a01_a_frame_ends_after_max_symbols(kind):
    model = pair(ALWAYS_2, 2, 4)[kind]
    hyp = rnnt_greedy(model, one_hot([1] * 5, 2), max_symbols=3)
    assert hyp.tokens == [2] * 15
    assert hyp.frames == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]


@pytest.mark.parametrize("max_symbols", [0, -1, 1.5, "3", float("inf"), 2**31])
def test_a01_max_symbols_below_one_is_refused(kind, max_symbols):
    model = pair(ALWAYS_2, 2, 4)[kind]
    with pytest.raises(ValueError, match="max_symbols is .*wanted an integer of at least 1"):
        rnnt_greedy(model, one_hot([1], 2), max_symbols=max_symbols)


def test_a01_max_symbols_none_takes_the_models(kind):
    model = pair(ALWAYS_2, 2, 4, max_symbols=4)[kind]
    assert rnnt_greedy(model, one_hot([1], 2), max_symbols=None).tokens == [2] * 4
    assert rnnt_greedy(model, one_hot([1], 2)).tokens == [2] * 4


@pytest.mark.parametrize("wanted", [[0, 1], [0, 1, 2]])
def test_a02_several_tokens_on_one_frame(kind, wanted):
    rules = {(1, last): token for last, token in zip([SOS, *wanted], wanted, strict=False)}
    model = pair(rules, 2, 4)[kind]
    hyp = rnnt_greedy(model, one_hot([1, 0], 2))
    assert hyp.tokens == wanted
    assert hyp.frames == [0] * len(wanted)


def test_a03_blank_frames_change_nothing(kind):
    model = pair({(1, SOS): 0, (2, 0): 1}, 3, 4)[kind]
    states = []
    for blanks in (0, 1, 50):
        state = rnnt_decode_init(model)
        rnnt_decode_frames(model, one_hot([1, *[0] * blanks, 2], 3), state)
        assert state.hyp.tokens == [0, 1]
        assert state.hyp.frames == [0, blanks + 1]
        states.append([array.tobytes() for array in state.prediction_state])
    assert states[0] == states[1] == states[2]


def test_a03_a_blank_chunk_leaves_h_and_c_byte_identical(kind):
    model = pair({(1, SOS): 0}, 2, 4)[kind]
    state = rnnt_decode_init(model)
    rnnt_decode_frames(model, one_hot([1], 2), state)
    before = [array.tobytes() for array in state.prediction_state]
    assert not rnnt_decode_frames(model, one_hot([0] * 9, 2), state).tokens
    assert [array.tobytes() for array in state.prediction_state] == before


def test_a05_lists_keep_their_lengths_where_max_symbols_ends_a_frame(kind, random_models):
    for models in random_models.values():
        model = models[kind]
        hyp = rnnt_greedy(model, random_enc(model, 30), max_symbols=1)
        assert len(hyp.tokens) == len(hyp.frames) == len(hyp.confidence) == len(hyp.spans)
        assert hyp.frames == sorted(hyp.frames)
        assert set(hyp.spans) <= {1}
        assert [info.span for info in hyp] == hyp.spans


def test_a09_the_first_token_needs_no_token_before_it(kind):
    assert rnnt_greedy(pair({(1, SOS): 3}, 2, 4)[kind], one_hot([1], 2)).tokens == [3]


def test_a09_the_first_step_is_an_lstm_step_from_zeros_with_its_biases():
    model = random_float_model(3)
    bias = (model.lstm[0].input.bias + model.lstm[0].hidden.bias).astype(np.float64)
    i, f, g, o = np.split(bias, 4)
    c = np.tanh(g) / (1 + np.exp(-i))
    wanted = np.tanh(c) / (1 + np.exp(-o))
    out, (h, cell) = model.prediction.step(SOS, model.prediction.zero_state())
    np.testing.assert_allclose(out, wanted, atol=1e-6)
    np.testing.assert_allclose(cell[0], c, atol=1e-6)
    np.testing.assert_array_equal(out, h[-1])
    assert f.shape == i.shape


def test_a10_start_is_a_zero_vector_whatever_the_blank_row_holds(kind):
    model = random_float_model(4)
    tensors = dict(model.tensors())
    embed = tensors["decoder.prediction.embed.weight"].copy()
    embed[-1] = 1.4
    tensors["decoder.prediction.embed.weight"] = embed
    changed = pkrnnt.FloatModel.from_tensors(tensors, max_symbols=3)
    enc = random_enc(model, 40)
    if kind == "int8":
        model, changed = quantized(model), quantized(changed)
    assert rnnt_greedy(model, enc) == rnnt_greedy(changed, enc)


def test_a12_blank_may_stand_anywhere(kind):
    model = random_float_model(5)
    tensors = dict(model.tensors())
    for name in (
        "decoder.prediction.embed.weight",
        "joint.joint_net.2.weight",
        "joint.joint_net.2.bias",
    ):
        tensors[name] = np.roll(tensors[name], 1, axis=0)
    rolled = pkrnnt.FloatModel.from_tensors(tensors, blank_id=0, max_symbols=3)
    enc = random_enc(model, 40)
    if kind == "int8":
        model, rolled = quantized(model), quantized(rolled)
    wanted, found = rnnt_greedy(model, enc), rnnt_greedy(rolled, enc)
    assert len(wanted) > 5
    assert found.tokens == [token + 1 for token in wanted.tokens]
    assert found.frames == wanted.frames


def tied_model(columns):
    """A model all of whose logits are its output biases."""
    tensors = dict(random_float_model(6, vocab=len(columns) - 1).tensors())
    tensors["joint.joint_net.2.weight"] = np.zeros_like(tensors["joint.joint_net.2.weight"])
    tensors["joint.joint_net.2.bias"] = np.array(columns, np.float32)
    return pkrnnt.FloatModel.from_tensors(tensors, max_symbols=2)


@pytest.mark.parametrize(
    ("logits", "wanted"),
    [
        ([5, 9, 9, 1, 9], 1),
        ([1, 2, 9, 0, 9], 2),  # a token ties with blank, which is last
        ([0.0, -0.0, 0.0, -1, 0.0], 0),
        ([-0.0, 0.0, -1, -1, -1], 0),
        ([3, 3, 3, 3, 3], 0),
    ],
)
def test_a07_ties_take_the_lowest_index(kind, logits, wanted):
    model = tied_model(logits)
    if kind == "int8":
        model = quantized(model)
    assert rnnt_greedy(model, random_enc(model, 2)).tokens == [wanted] * 4


def test_a17_no_frames_change_nothing(kind, random_models):
    for models in random_models.values():
        model = models[kind]
        empty = random_enc(model, 0)
        assert rnnt_greedy(model, empty) == pkrnnt.Hypothesis()
        state = rnnt_decode_init(model)
        for _ in range(2):
            before = snapshot(state)
            assert rnnt_decode_frames(model, empty, state) == pkrnnt.Hypothesis()
            assert snapshot(state) == before
            rnnt_decode_frames(model, random_enc(model, 5), state)
        assert len(rnnt_greedy(model, random_enc(model, 1)).tokens) <= model.max_symbols


def test_c05_all_blank_is_an_empty_hypothesis(kind):
    hyp = rnnt_greedy(pair({}, 2, 4)[kind], one_hot([0] * 7, 2))
    assert list(hyp) == []
    assert len(hyp) == 0


def test_b07_tokens_come_out_after_an_end_of_utterance_token(kind):
    # The default: an end-of-utterance token is a token like others, the state is not reset.
    model = pair({(1, SOS): 0, (2, 0): 3, (1, 3): 1}, 3, 4)[kind]
    assert rnnt_greedy(model, one_hot([1, 2, 1], 3)).tokens == [0, 3, 1]


def test_g01_one_prediction_step_a_token():
    model = random_float_model(7)
    steps = []

    class Counting:
        def step(self, token, state):
            steps.append(token)
            return model.prediction.step(token, state)

    state = rnnt_decode_init(model)
    hyp = greedy.decode_frames(Counting(), model.joint, 6, random_enc(model, 50), state, 3)
    assert steps == [SOS, *hyp.tokens][: len(steps)]
    assert len(hyp) <= len(steps) <= len(hyp) + 1


# Chunks


def check_chunks(model, enc, cuts):
    """Any partition equals the whole: tokens, global frames, confidences and final state."""
    whole = rnnt_decode_init(model)
    rnnt_decode_frames(model, enc, whole)
    bounds = [0, *sorted(cuts), len(enc)]
    chunks = [enc[a:b] for a, b in pairwise(bounds)]
    state, hyps = decode_chunks(model, chunks)
    assert snapshot(state) == snapshot(whole)
    assert [token for hyp in hyps for token in hyp.tokens] == whole.hyp.tokens
    globals_ = [a + frame for a, hyp in zip(bounds, hyps, strict=False) for frame in hyp.frames]
    assert globals_ == whole.hyp.frames
    for chunk, hyp in zip(chunks, hyps, strict=True):
        assert all(0 <= frame < len(chunk) for frame in hyp.frames)


@pytest.mark.parametrize("model_key", [("relu", 1), ("tanh", 2), ("sigmoid", 3)], ids=str)
def test_b01_every_split_and_single_frames(kind, random_models, model_key):
    model = random_models[model_key][kind]
    enc = random_enc(model, 70)
    assert len(rnnt_greedy(model, enc)) > 5
    for cut in range(71):
        check_chunks(model, enc, [cut])
    for size in (1, 3, 7):
        check_chunks(model, enc, range(size, 70, size))


@settings(max_examples=50, deadline=None)
@given(cuts=st.lists(st.integers(0, 45), max_size=12), seed=st.integers(0, 2**31))
def test_b01_any_partition(random_models, cuts, seed):
    for key, models in random_models.items():
        for model in models.values():
            check_chunks(model, random_enc(model, 45, seed), cuts)
        assert key


def test_b01_digits_in_chunks(digits_float, digits_int8, digits_utterances):
    for model in (digits_float, digits_int8):
        for enc in digits_utterances[:6]:
            check_chunks(model, enc, [1, 1, 20, 33])
            check_chunks(model, enc, range(1, len(enc)))


def test_b10_b11_returned_frames_are_local_and_hyp_is_cumulative(kind):
    model = pair({(1, SOS): 0, (1, 0): 1, (1, 1): 0}, 2, 4, max_symbols=1)[kind]
    state, hyps = decode_chunks(model, [one_hot([0, 1], 2), one_hot([], 2), one_hot([1, 0, 1], 2)])
    assert [hyp.frames for hyp in hyps] == [[1], [], [0, 2]]
    assert state.hyp.frames == [1, 2, 4]
    assert state.frames_decoded == 5


def test_b13_a_last_chunk_of_one_frame_is_decoded(kind):
    model = pair({(1, SOS): 2}, 2, 4)[kind]
    state, hyps = decode_chunks(model, [one_hot([0] * 8, 2), one_hot([1], 2)])
    assert hyps[-1].tokens == [2]
    assert state.frames_decoded == 9


def test_b14_trailing_blank_frames_count_across_chunks(kind):
    model = pair({(1, last): 2 for last in (SOS, 0, 1, 3)}, 2, 4)[kind]
    state, _ = decode_chunks(model, [one_hot([0] * n, 2) for n in (9, 1, 10)])
    assert state.trailing_blank_frames == 20
    rnnt_decode_frames(model, one_hot([1], 2), state)
    assert state.trailing_blank_frames == 0
    rnnt_decode_frames(model, one_hot([0, 0], 2), state)
    assert state.trailing_blank_frames == 2


# States


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copied_or_pickled_state_goes_on_alone(kind, random_models, copier):
    model = random_models["tanh", 2][kind]
    enc = random_enc(model, 40)
    state = rnnt_decode_init(model)
    rnnt_decode_frames(model, enc[:17], state)
    twin = copier(state)
    assert snapshot(twin) == snapshot(state)
    before = snapshot(twin)
    rnnt_decode_frames(model, enc[17:], state)
    assert snapshot(twin) == before
    rnnt_decode_frames(model, enc[17:], twin)
    assert snapshot(twin) == snapshot(state)


def test_b04_reset_equals_a_new_state(kind, random_models):
    model = random_models["relu", 1][kind]
    state = rnnt_decode_init(model)
    rnnt_decode_frames(model, random_enc(model, 20), state)
    assert snapshot(state) != snapshot(rnnt_decode_init(model))
    state.reset()
    assert snapshot(state) == snapshot(rnnt_decode_init(model))


def test_b04_an_error_leaves_the_state_as_it_was(kind, random_models):
    model = random_models["relu", 1][kind]
    state = rnnt_decode_init(model)
    rnnt_decode_frames(model, random_enc(model, 20), state)
    before = snapshot(state)
    bad = random_enc(model, 9)
    bad[7, 2] = np.nan
    with pytest.raises(ValueError, match="encoder frame 7 holds nan in column 2"):
        rnnt_decode_frames(model, bad, state)
    assert snapshot(state) == before
    rnnt_decode_frames(model, random_enc(model, 3), state)  # and it still works


def test_logits_that_overflow_are_refused_by_frame():
    tensors = dict(random_float_model(8).tensors())
    tensors["joint.enc.weight"] = np.full_like(tensors["joint.enc.weight"], 3e38)
    model = pkrnnt.FloatModel.from_tensors(tensors, joint_activation="relu")
    state = rnnt_decode_init(model)
    enc = np.zeros((3, model.config.enc_hidden), np.float32)
    enc[2] = 3e38
    # And no warning, which would hide the reason where warnings are errors.
    with pytest.raises(ValueError, match="encoder frame 2: logit .* wanted finite logits"):
        rnnt_decode_frames(model, enc, state)
    assert state.frames_decoded == 0


def test_b05_nothing_leaks_between_utterances(kind, random_models):
    model = random_models["tanh", 2][kind]
    a, b = random_enc(model, 30, 1), random_enc(model, 30, 2)
    first = rnnt_greedy(model, a)
    assert rnnt_greedy(model, a) == first
    assert rnnt_greedy(model, a) == first
    states = rnnt_decode_init(model), rnnt_decode_init(model)
    for t in range(30):
        rnnt_decode_frames(model, a[t : t + 1], states[0])
        rnnt_decode_frames(model, b[t : t + 1], states[1])
    assert states[0].hyp == first
    assert states[1].hyp == rnnt_greedy(model, b)


def test_a_state_of_another_model_is_refused(kind, random_models):
    state = rnnt_decode_init(random_models["relu", 1][kind])
    other = random_models["tanh", 2][kind]
    with pytest.raises(ValueError, match="the state was made for model"):
        rnnt_decode_frames(other, random_enc(other, 2), state)


def test_a_state_that_was_tampered_with_is_refused(random_models):
    model = random_models["tanh", 2]["int8"]
    enc = random_enc(model, 5)
    state = rnnt_decode_init(model)
    rnnt_decode_frames(model, enc, state)
    h, c = state.prediction_state
    for name, value, message in (
        ("last_token", 10**9, "last token is 1000000000"),
        ("last_token", -2, "last token is -2"),
        ("last_token", model.config.blank_id, "not blank"),
        ("prediction_state", (h[:1], c[:1]), r"wanted \(2, 5\)"),
        ("prediction_state", (h, c.astype(np.int32)), "mismatch"),
        ("lookahead", (np.zeros(1, np.int16), (h, c)), "projection has 1 values, wanted 7"),
        ("lookahead", (np.zeros(7, np.int16), (h[:, :2].copy(), c)), r"wanted \(2, 5\)"),
    ):
        twin = copy.copy(state)
        setattr(twin, name, value)
        with pytest.raises(ValueError, match=message):
            rnnt_decode_frames(model, enc, twin)


def test_states_cannot_be_written_to(kind, random_models):
    model = random_models["relu", 1][kind]
    state = rnnt_decode_init(model)
    for _ in range(2):
        for one in (state, copy.copy(state), pickle.loads(pickle.dumps(state))):
            arrays = [*one.prediction_state]
            if one.lookahead is not None:
                arrays += [one.lookahead.pred_proj, *one.lookahead.prediction_state]
            for array in arrays:
                with pytest.raises(ValueError, match="read-only"):
                    array[:] = 1
        rnnt_decode_frames(model, random_enc(model, 30), state)


def test_b15_a_state_in_use_is_neither_reset_nor_copied(random_models):
    state = rnnt_decode_init(random_models["relu", 1]["float"])
    with state:
        with pytest.raises(RuntimeError, match="another thread"):
            state.reset()
        with pytest.raises(RuntimeError, match="another thread"):
            copy.copy(state)


def test_b04_an_interrupt_leaves_a_stream_as_it_was(kind, random_models):
    """A signal that arrives while frames are decoded comes up when the decoder returns to Python."""
    model = random_models["tanh", 2][kind]
    long = np.tile(random_enc(model, 500), (60 if kind == "int8" else 3, 1))
    state = rnnt_decode_init(model)
    rnnt_decode_frames(model, long[:50], state)
    before, twin = snapshot(state), copy.copy(state)

    def stop(*_):
        raise TimeoutError("interrupted")

    previous = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        with pytest.raises(TimeoutError):
            rnnt_decode_frames(model, long, state)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert snapshot(state) == before
    rnnt_decode_frames(model, long[:70], state)
    rnnt_decode_frames(model, long[:70], twin)
    assert snapshot(state) == snapshot(twin)


def test_a_states_memory_is_not_taken_for_another_joint(random_models):
    a, b = random_models["relu", 1]["int8"], quantized(random_float_model(1, joint=3000))
    state = rnnt_decode_init(a)
    for frame in random_enc(a, 100):  # until one ends on a blank, with the next joint prepared
        rnnt_decode_frames(a, frame[None], state)
        if state.lookahead is not None:
            break
    with pytest.raises(ValueError, match="projection has 7 values, wanted 3000"):
        decoder.decode_frames(a.prediction, b.joint, 6, random_enc(b, 5), state, 3)


class Liar(np.ndarray):
    """An array that claims another shape than it has."""

    @property
    def shape(self):
        return (20, 4)


def test_an_array_subclass_cannot_lie_about_its_shape(kind, random_models):
    model = random_models["relu", 1][kind]
    with pytest.raises(ValueError, match=r"shape \(3, 1\), wanted \[T, 4\]"):
        rnnt_greedy(model, np.zeros((3, 1), np.float32).view(Liar))
    masked = np.ma.masked_array(random_enc(model, 3), mask=True)
    with pytest.raises(ValueError, match="masked array"):
        rnnt_greedy(model, masked)


def test_b15_two_threads_on_one_state_are_refused(kind, random_models):
    model = random_models["relu", 1][kind]
    state = rnnt_decode_init(model)
    with state, pytest.raises(RuntimeError, match="another thread"):
        rnnt_decode_frames(model, random_enc(model, 2), state)
    rnnt_decode_frames(model, random_enc(model, 2), state)


def test_b15_eight_threads_with_a_state_each(kind, random_models):
    model = random_models["tanh", 2][kind]
    # The float path holds the GIL and takes its time: fewer there.
    utterances = [random_enc(model, 24, seed) for seed in range(200 if kind == "int8" else 30)]
    wanted = [rnnt_greedy(model, enc) for enc in utterances]
    barrier = threading.Barrier(8)

    def work(_):
        barrier.wait()
        state = rnnt_decode_init(model)
        found = []
        for enc in utterances:
            state.reset()
            rnnt_decode_frames(model, enc[:10], state)
            rnnt_decode_frames(model, enc[10:], state)
            found.append(state.hyp)
        return found

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(work, range(8)):
            assert found == wanted


# Frames


def test_frames_of_any_layout_give_the_same(kind, random_models):
    model = random_models["relu", 1][kind]
    exact = random_enc(model, 20).astype(np.float16)  # the same values in every type
    wanted = rnnt_greedy(model, exact.astype(np.float32))
    read_only = exact.astype(np.float32)
    read_only.flags.writeable = False
    strided = np.repeat(exact.astype(np.float32), 2, axis=1)[:, ::2]
    for enc in (
        exact,
        exact.astype(np.float64),
        read_only,
        strided,
        np.asfortranarray(exact.astype(np.float32)),
        exact.astype(np.float32)[::-1][::-1],
        exact.astype(">f4"),
        exact.astype(np.float32).tolist(),
    ):
        assert rnnt_greedy(model, enc) == wanted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda enc: enc[0], r"shape \(4,\), wanted two dimensions \[T, 4\]"),
        (lambda enc: enc[None], "wanted two dimensions"),
        (lambda enc: enc[:, :3], r"shape \(6, 3\), wanted \[T, 4\]$"),
        (lambda enc: enc.T, r"shape \(4, 6\), wanted \[T, 4\]; .*channel first: pass enc.T"),
        (lambda enc: enc.astype(np.int8), "dtype int8, wanted float16, float32 or float64"),
        (lambda enc: enc.astype(complex), "dtype complex128"),
        (
            lambda enc: np.where(enc == enc[3, 1], np.inf, enc),
            "encoder frame 3 holds inf in column 1",
        ),
        (lambda enc: np.where(enc == enc[5, 0], -np.inf, enc), "encoder frame 5 holds -inf"),
        (lambda enc: np.where(enc == enc[2, 3], 1e39, enc.astype(float)), r"frame 2 holds 1e\+39"),
    ],
)
def test_frames_that_do_not_fit_are_refused(kind, random_models, change, message):
    model = random_models["relu", 1][kind]
    with pytest.raises(ValueError, match=message):
        rnnt_greedy(model, change(random_enc(model, 6)))


# Many utterances


@pytest.mark.parametrize("threads", [None, 1, 2, 5])
def test_batch_equals_one_by_one_in_order(kind, random_models, threads):
    model = random_models["tanh", 2][kind]
    utterances = [random_enc(model, seed % 23, seed) for seed in range(40)]
    wanted = [rnnt_greedy(model, enc, 2) for enc in utterances]
    assert pkrnnt.decode_batch(model, utterances, threads, 2) == wanted
    assert pkrnnt.decode_batch(model, [], threads) == []


def test_batch_names_the_utterance_that_does_not_fit(kind, random_models):
    model = random_models["tanh", 2][kind]
    utterances = [random_enc(model, 5), random_enc(model, 5)[:, :2]]
    with pytest.raises(ValueError, match=r"utterance 1: encoder frames have shape \(5, 2\)"):
        pkrnnt.decode_batch(model, utterances)
    with pytest.raises(ValueError, match="threads is 0"):
        pkrnnt.decode_batch(model, utterances, threads=0)


def test_twenty_thousand_one_frame_chunks(random_models):
    model = random_models["relu", 1]["int8"]
    enc = random_enc(model, 20_000)
    whole, state = rnnt_decode_init(model), rnnt_decode_init(model)
    rnnt_decode_frames(model, enc, whole)
    for t in range(len(enc)):
        rnnt_decode_frames(model, enc[t : t + 1], state)
    assert snapshot(state) == snapshot(whole)
