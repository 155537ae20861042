"""Trims the full golden files to what a clone carries: python tests/golden/make.py FULL_FOLDER."""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent

# file -> (keys to drop by substring, keep every n-th row by key prefix)
CMSIS_NN = {
    "requantize_grid": (("single",), {"": 3}),
    "requantize_random": (("single",), {"rand": 3, "tie": 6}),
    "doubling_high_mult_divide_by_pot": (("mpot",), {"": 3}),
    "activation_sigmoid_s16_ls_m4_m1": ((), {}),
    "activation_sigmoid_s16_ls_0_p4": ((), {}),
    "activation_tanh_s16_ls_m4_m1": ((), {}),
    "activation_tanh_s16_ls_0_p4": ((), {}),
    "fc_s8_small": (("single",), {}),
    "fc_s8_edge": (("single", "filter_offset_", "sat_gain64"), {}),
    "fc_s8_in640_out65_perch": (("single", "in65_out640", "nobias"), {}),
    "lstm_s8_x4_h4": (("single",), {}),
    "lstm_s8_x4_h4_satcell": (("single",), {}),
    "lstm_s8_x5_h7_nobias": (("single",), {}),
    "lstm_s8_x16_h24": (("single",), {}),
    "lstm_s8_x16_h24_clip8192": (("single",), {}),
    "lstm_s8_x16_h24_presat": (("single",), {}),
    "lstm_s8_x64_h64_csp9": (("single",), {}),
    "softmax_primitives": ((), {"": 3}),
    "softmax_s8": (("y_s8",), {}),
    "quantize_multiplier": ((), {}),
}
# The recipe in config gives weights and frames back, so only results are kept.
NEMO_BY_RECIPE = (
    "a_lstm1_relu_v28", "a2_dropout0_names", "b_lstm2_tanh_v128", "c_lstm1_sigmoid_v40",
    "d_maxsym_1", "d_maxsym_2", "d_maxsym_10", "e_blank_as_pad_false", "e_nonzero_pad_row",
    "f_T0", "f_T1", "f_all_blank", "h_streaming", "k_large_640_512_l1", "k_large_640_1024_l2",
    "n_sparse_lstm1_tanh_v64", "n_sparse_lstm2_relu_v64",
)  # fmt: skip
# Their weights were changed after the recipe; tests/models.py knows how, and checks their sha256.
NEMO_CHANGED = ("e_blank_as_pad_true", "g_ties_5_and_blank", "g_ties_all", "g_ties_twins")
NEMO_KEYS = (
    "tokens", "timestamps", "step_frame", "step_label", "step_margin", "raw_logits", "enc_len",
    "final_state.0", "final_state.1", "final_last_token", "conf.max_prob_a1.token", "config",
)  # fmt: skip
PARAKEET_CPP = ("rnnt_h32_j64_v40_l2_cap1", "rnnt_h64_j96_v28_l1_cap3", "rnnt_tie_rows")


def write(folder, name, arrays):
    (HERE / folder).mkdir(exist_ok=True)
    np.savez_compressed(HERE / folder / f"{name}.npz", **arrays)


def main(full):
    for name, (dropped, strides) in CMSIS_NN.items():
        with np.load(full / "cmsis_nn" / f"{name}.npz") as data:
            kept = {k: data[k] for k in data if not any(part in k for part in dropped)}
        for prefix, stride in strides.items():
            kept |= {k: kept[k][::stride] for k in kept if k.startswith(prefix) and kept[k].ndim}
        write("cmsis_nn", name, kept)
    for name in NEMO_BY_RECIPE + NEMO_CHANGED:
        with np.load(full / "nemo" / f"{name}.npz") as data:
            kept = {k: data[k] for k in data if k in NEMO_KEYS or k.startswith("chunk")}
        write("nemo", name, kept)
    for name in PARAKEET_CPP:
        with np.load(full / "parakeet_cpp" / f"{name}.npz") as data:
            kept = {k: data[k] for k in data if k.startswith(("w/", "enc", "meta", "f32", "path"))}
        write("parakeet_cpp", name, kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
