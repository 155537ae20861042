"""The int8 LSTM against CMSIS-NN's and TFLite Micro's real outputs and plain Python integers."""

import numpy as np
import oracle
import pytest
from conftest import need_shared
from hypothesis import given, settings
from hypothesis import strategies as st
from tally import agree

from pkrnnt.kernels.linear import Linear
from pkrnnt.prediction import Int8Prediction, LstmLayer

LSTM_REFERENCE = ("LSTM step", "arm_lstm_unidirectional_s8")
GATES = ("input", "forget", "cell", "output")  # i, f, g, o in CMSIS-NN's words


def layer_from(get, sizes, **scalars):
    """An ``LstmLayer`` from CMSIS-NN's per-gate arrays; ``get(gate, key)`` returns one."""
    size, width = sizes
    input_offset, output_offset = scalars.pop("input_offset"), scalars["hidden_zero_point"]

    def stack(weights, bias, pair, cols):
        weight = np.concatenate([get(gate, weights).reshape(size, cols) for gate in GATES])
        offset = bias(weight.astype(int).sum(axis=1))
        pairs = np.array([get(gate, pair) for gate in GATES]).repeat(size, axis=0)
        return Linear(weight, offset, pairs[:, 0], pairs[:, 1])

    biases = []
    for gate in GATES:
        bias = get(gate, "bias")
        biases.append(bias if bias.size else np.zeros(size, int))
    return LstmLayer(
        stack("Wx", lambda s: np.concatenate(biases) + input_offset * s, "input_q", width),
        stack("Wh", lambda s: -output_offset * s, "hidden_q", size),
        **scalars,
    )


def prediction_of(layer, x):
    """The layer under an embedding whose rows are the inputs, so that token t feeds x[t]."""
    return Int8Prediction(x, [layer])


def golden_layer(z, prefix=""):
    scalars = {
        "input_offset": int(z[f"{prefix}input_offset"]),
        "hidden_zero_point": int(z[f"{prefix}output_offset"]),
        "cell_scale_power": int(z[f"{prefix}cell_scale_power"]),
        "cell_clip": int(z[f"{prefix}cell_clip"]),
        "forget_to_cell": z[f"{prefix}forget_to_cell"],
        "input_to_cell": z[f"{prefix}input_to_cell"],
        "output": z[f"{prefix}output_q"],
    }
    size, width = z[f"{prefix}forget/Wx"].shape

    def get(gate, key):
        return z.get(f"{prefix}{gate}/{key}", np.zeros(0, int))

    return layer_from(get, (size, width), **scalars)


CLONE = [
    "x4_h4", "x4_h4_satcell", "x5_h7_nobias", "x16_h24", "x16_h24_clip8192", "x16_h24_presat",
    "x64_h64_csp9",
]  # fmt: skip
FULL = [*CLONE, "x16_h24_clip0", "x64_h64", "x64_h64_satcell", "x128_h128"]


def check_lstm(path):
    with np.load(path) as data:
        z = dict(data)
    network = prediction_of(golden_layer(z), z["x"])
    state = (z["h0"][None], z["c0"][None])
    for t in range(len(z["x"])):
        g, state = network.step(t, state)
        agree(path, *LSTM_REFERENCE, g, z["h"][t], f"h, step {t}")
        agree(path, *LSTM_REFERENCE, state[1][0], z["c"][t], f"c, step {t}")
    # B06: from a given state, not from zeros.
    state = (z["mid_h0"][None], z["mid_c0"][None])
    for t in range(len(z["mid_h"])):
        g, state = network.step(t, state)
        agree(path, *LSTM_REFERENCE, g, z["mid_h"][t], f"h from a given state, step {t}")
    agree(path, *LSTM_REFERENCE, state[1][0], z["mid_c_final"])


@pytest.mark.parametrize("name", CLONE)
def test_lstm_equals_cmsis_nn(name, pytestconfig):
    check_lstm(pytestconfig.rootpath / f"tests/golden/cmsis_nn/lstm_s8_{name}.npz")


@pytest.mark.parametrize("name", FULL)
def test_lstm_equals_all_of_cmsis_nn(name):
    check_lstm(need_shared() / f"golden/cmsis_nn/lstm_s8_{name}.npz")


@pytest.mark.parametrize(
    "case", ["trained", "x4", "x16_presat", "cell15_sat", "clip_half", "hidden_zp17"]
)
def test_lstm_equals_cmsis_nn_where_tflite_micro_differs(case):
    path = need_shared() / "golden/cmsis_nn/tflm_reference_lstm_s8.npz"
    with np.load(path) as data:
        z = dict(data)
    network = prediction_of(golden_layer(z, f"{case}/"), z[f"{case}/x"])
    state = network.zero_state()
    for t in range(len(z[f"{case}/x"])):
        g, state = network.step(t, state)
        agree(path, *LSTM_REFERENCE, g, z[f"{case}/h_cmsis"][t])
        agree(path, *LSTM_REFERENCE, state[1][0], z[f"{case}/c_cmsis"][t])


@pytest.mark.parametrize(
    "name", ["lstm_1", "lstm_2", "lstm_one_time_step", "lstm_stateful_batch_major_multibatch"]
)
def test_lstm_equals_cmsis_nns_own_tests(name):
    path = need_shared() / f"golden/cmsis_nn/upstream_{name}.npz"
    with np.load(path) as z:
        p = {key[2:]: z[key] for key in z if key.startswith("p/")}
        batch, steps = int(p["batch_size"]), int(p["time_steps"])
        width, size = int(p["input_size"]), int(p["hidden_size"])

        def get(gate, key):
            if key == "bias":
                return z[f"a/{gate}_gate_bias"]
            if key in ("Wx", "Wh"):
                return z[f"a/{gate}_gate_{'input' if key == 'Wx' else 'hidden'}_weights"]
            prefix = f"{gate}_gate_{key[:-2]}"
            return np.array([p[f"{prefix}_multiplier"], p[f"{prefix}_shift"]])

        layer = layer_from(
            get,
            (size, width),
            input_offset=int(p["input_zero_point"]),  # upstream's name for the offset
            hidden_zero_point=int(p["output_zero_point"]),
            cell_scale_power=int(p["cell_scale_power"]),
            cell_clip=int(p["cell_clip"]),
            **{
                name: (int(p[f"{name}_multiplier"]), int(p[f"{name}_shift"]))
                for name in ("forget_to_cell", "input_to_cell", "output")
            },
        )
        time_major = bool(p["time_major"])
        shape = (steps, batch, width) if time_major else (batch, steps, width)
        x = z["a/input_tensor"].reshape(shape)
        wanted = z["a/output"].reshape(*shape[:2], size)
        for b in range(batch):
            sequence = x[:, b] if time_major else x[b]
            network = prediction_of(layer, sequence)
            state = network.zero_state()
            for t in range(steps):
                g, state = network.step(t, state)
                step = wanted[t, b] if time_major else wanted[b, t]
                agree(path, "LSTM step", "CMSIS-NN's own unit tests", g, step)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 5), st.integers(-16, -8))
def test_lstm_step_equals_the_oracle(sigmoid_table, seed, width, size, power):
    rng = np.random.default_rng(seed)

    def matrix(cols):
        return (
            rng.integers(-127, 128, (4 * size, cols)),
            rng.integers(-3000, 3000, 4 * size),
            rng.integers(2**30, 2**31, 4 * size),
            rng.integers(-6, 3, 4 * size),  # gates far beyond +-8 too
        )

    plain = {
        "input": [a.tolist() for a in matrix(width)],
        "hidden": [a.tolist() for a in matrix(size)],
        "hidden_zero_point": int(rng.integers(-128, 128)),
        "cell_scale_power": power,
        "cell_clip": int(rng.choice([0, 1000])),
        "forget_to_cell": (2**30, -14),
        "input_to_cell": (2**30, int(rng.integers(-22, -12))),
        "output": (int(rng.integers(2**30, 2**31)), int(rng.integers(-24, -19))),
    }
    scalars = {key: value for key, value in plain.items() if key not in ("input", "hidden")}
    layer = LstmLayer(Linear(*plain["input"]), Linear(*plain["hidden"]), **scalars)
    x = rng.integers(-128, 128, (1, width)).astype(np.int8)
    h = rng.integers(-128, 128, size)
    c = rng.integers(-32768, 32768, size)
    network = prediction_of(layer, x)
    _, (h_new, c_new) = network.step(0, (h[None].astype(np.int8), c[None].astype(np.int16)))
    wanted = oracle.lstm_step(plain, x[0].tolist(), h.tolist(), c.tolist(), sigmoid_table)
    assert (h_new[0].tolist(), c_new[0].tolist()) == wanted


def small_linear(rows, cols):
    return Linear(np.ones((rows, cols)), np.zeros(rows), [2**30] * rows, [0] * rows)


SCALARS = {
    "hidden_zero_point": 0,
    "cell_scale_power": -11,
    "cell_clip": 0,
    "forget_to_cell": (2**30, -14),
    "input_to_cell": (2**30, -18),
    "output": (2**30, -22),
}


def test_e12_a_cell_scale_beyond_the_table_is_refused():
    with pytest.raises(ValueError, match=r"cell_scale_power is -7, wanted -16..-8"):
        LstmLayer(small_linear(8, 3), small_linear(8, 2), **{**SCALARS, "cell_scale_power": -7})


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="wanted 4H x I and 4H x H"):
        LstmLayer(small_linear(8, 3), small_linear(9, 2), **SCALARS)
    layer = LstmLayer(small_linear(8, 3), small_linear(8, 2), **SCALARS)
    with pytest.raises(ValueError, match="0 LSTM layers"):
        Int8Prediction(np.zeros((4, 3), np.int8), [])
    with pytest.raises(ValueError, match="takes 3 inputs, wanted 5"):
        Int8Prediction(np.zeros((4, 5), np.int8), [layer])
    wider = LstmLayer(small_linear(12, 2), small_linear(12, 3), **SCALARS)
    with pytest.raises(ValueError, match="LSTM layer 1 has 3 units, wanted 2"):
        Int8Prediction(np.zeros((4, 3), np.int8), [layer, wider])
    network = Int8Prediction(np.zeros((4, 3), np.int8), [layer])
    with pytest.raises(ValueError, match=r"token is 4, wanted SOS \(-1\) or 0..3"):
        network.step(4, network.zero_state())
    h, c = network.zero_state()
    with pytest.raises(ValueError, match="state c has shape"):
        network.step(0, (h, c[:, :1].copy()))


def test_e14_the_start_is_exact_zero():
    layer = LstmLayer(small_linear(8, 3), small_linear(8, 2), **{**SCALARS, "hidden_zero_point": -7})
    h, c = Int8Prediction(np.zeros((4, 3), np.int8), [layer]).zero_state()
    assert h.tolist() == [[-7, -7]]
    assert c.tolist() == [[0, 0]]
