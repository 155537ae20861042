"""The float path against real decodes of NVIDIA NeMo and of parakeet.cpp."""

import numpy as np
import pytest
from models import nemo_case
from tally import agree

import pkrnnt
from pkrnnt import SOS, rnnt_decode_frames, rnnt_decode_init, rnnt_greedy

NEMO, PARAKEET = "NVIDIA NeMo 3.0.0", "parakeet.cpp 7532bc2"
CASES = [
    "a_lstm1_relu_v28", "a2_dropout0_names", "b_lstm2_tanh_v128", "c_lstm1_sigmoid_v40",
    "d_maxsym_1", "d_maxsym_2", "d_maxsym_10", "e_blank_as_pad_false", "e_blank_as_pad_true",
    "e_nonzero_pad_row", "f_T1", "f_all_blank", "g_ties_5_and_blank", "g_ties_all",
    "g_ties_twins", "h_streaming", "k_large_640_512_l1", "k_large_640_1024_l2",
    "n_sparse_lstm1_tanh_v64", "n_sparse_lstm2_relu_v64",
]  # fmt: skip


def joint_calls(model, enc, hyp):
    """(labels, logits) of every joint call, by walking the networks as the hypothesis says."""
    calls, emitted = [], 0
    g, state = model.prediction.step(SOS, model.prediction.zero_state())
    for t, projected in enumerate(model.joint.project_enc(enc)):
        for _ in range(model.max_symbols):
            logits = model.joint.logits(projected, g)
            label = model.joint.argmax(logits)
            calls.append((label, logits))
            if label == model.config.blank_id:
                break
            assert (hyp.tokens[emitted], hyp.frames[emitted]) == (label, t)
            emitted += 1
            g, state = model.prediction.step(label, state)
    assert emitted == len(hyp)
    labels, logits = zip(*calls, strict=True)
    return np.array(labels), np.array(logits)


@pytest.mark.parametrize("name", CASES)
def test_whole_decode_equals_nemo(golden, name):
    model, enc, wanted, config = nemo_case(golden / "nemo", name)
    state = rnnt_decode_init(model)
    hyp = rnnt_decode_frames(model, enc, state, max_symbols=config["max_symbols"])
    agree(golden, "float: tokens, frames", NEMO, hyp.tokens, wanted["tokens"])
    agree(golden, "float: tokens, frames", NEMO, hyp.frames, wanted["timestamps"])
    assert hyp.spans == [1] * len(hyp)
    if "conf.max_prob_a1.token" in wanted:
        confidence = wanted["conf.max_prob_a1.token"]
        agree(golden, "float: confidence within 1e-4", NEMO, hyp.confidence, confidence, atol=1e-4)
    if "final_state.0" in wanted:
        h, c = state.prediction_state
        agree(golden, "float: state within 1e-4", NEMO, h, wanted["final_state.0"], atol=1e-4)
        agree(golden, "float: state within 1e-4", NEMO, c, wanted["final_state.1"], atol=1e-4)
    last = int(wanted["final_last_token"])
    assert state.last_token == (last if last >= 0 else SOS)
    labels, logits = joint_calls(model, enc, hyp)
    assert labels.tolist() == wanted["step_label"].tolist()
    if "raw_logits" in wanted:
        agree(golden, "float: logits within 2e-4", NEMO, logits, wanted["raw_logits"], atol=2e-4)
    top = np.partition(logits, -2, axis=1)
    np.testing.assert_allclose(top[:, -1] - top[:, -2], wanted["step_margin"], atol=4e-4)


def test_streaming_equals_nemo(golden):
    model, enc, wanted, _ = nemo_case(golden / "nemo", "h_streaming")
    state = rnnt_decode_init(model)
    start = 0
    for chunk, length in enumerate([3, 1, 19, 0, 17, 20]):
        hyp = rnnt_decode_frames(model, enc[start : start + length], state)
        start += length
        assert hyp.tokens == wanted[f"chunk{chunk}.tokens"].tolist()
        assert hyp.frames == wanted[f"chunk{chunk}.timestamps_relative"].tolist()
        if f"chunk{chunk}.h" in wanted:
            h, c = state.prediction_state
            np.testing.assert_allclose(h, wanted[f"chunk{chunk}.h"], atol=1e-4)
            np.testing.assert_allclose(c, wanted[f"chunk{chunk}.c"], atol=1e-4)
    assert start == len(enc)
    assert state.hyp.tokens == wanted["tokens"].tolist()


def test_a17_no_frames_gives_nothing_as_nemo_does(golden):
    with np.load(golden / "nemo/f_T0.npz") as wanted:
        assert wanted["tokens"].size == 0
    model, enc, _, _ = nemo_case(golden / "nemo", "f_T1")
    assert rnnt_greedy(model, enc[:0]).tokens == []


def parakeet_cpp_case(folder, name):
    with np.load(folder / "parakeet_cpp" / f"{name}.npz") as data:
        wanted = dict(data)
    tensors = {key[2:]: wanted[key] for key in wanted if key.startswith("w/")}
    model = pkrnnt.FloatModel.from_tensors(tensors, max_symbols=int(wanted["meta_max_symbols"]))
    return model, wanted


@pytest.mark.parametrize(
    "name",
    [
        "rnnt_h32_j64_v40_l2_cap1", "rnnt_h64_j96_v28_l1_cap3", "rnnt_tie_rows",
        "rnnt_h64_v28_l1", "rnnt_h64_v28_l2", "rnnt_tie_blank",
    ],
)  # fmt: skip
def test_decode_equals_parakeet_cpp(golden, name):
    if not (golden / "parakeet_cpp" / f"{name}.npz").exists():
        assert golden.parent.name == "tests"  # only the full folder has this one
        return
    model, wanted = parakeet_cpp_case(golden, name)
    hyp = rnnt_greedy(model, wanted["enc"])
    agree(golden, "float: tokens, frames", PARAKEET, hyp.tokens, wanted["f32_tokens"])
    agree(golden, "float: tokens, frames", PARAKEET, hyp.frames, wanted["f32_frames"])
    assert hyp.spans == wanted["f32_span"].tolist()
    confidence = wanted["f32_conf"]
    agree(golden, "float: confidence within 1e-4", PARAKEET, hyp.confidence, confidence, atol=1e-4)
    enc_proj = model.joint.project_enc(wanted["enc"])
    state = model.prediction.zero_state()
    outputs = []
    for token in [SOS, *hyp.tokens]:
        g, state = model.prediction.step(token, state)
        outputs.append(g)
    if "pred_out" in wanted:
        np.testing.assert_allclose(outputs, wanted["pred_out"], atol=1e-4)
        np.testing.assert_allclose(enc_proj, wanted["enc_proj"], atol=2e-4)
    for (t, u), logits in zip(wanted["path_tu"], wanted["path_logits"], strict=True):
        found = model.joint.logits(enc_proj[t], outputs[u])
        agree(golden, "float: logits within 2e-4", PARAKEET, found, logits, atol=2e-4)
