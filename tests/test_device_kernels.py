"""The exported runtime's kernels against the oracle: on this computer under sanitizers, and emulated."""

from functools import cache
from pathlib import Path

import numpy as np
import oracle
import pytest
from mcu import CORES, Kernels, need_mcu

from pkrnnt.device.export import runtime

MATVEC, LSTM_CELL, ADD_ACTIVATE, ARGMAX, CONFIDENCE = range(1, 6)
KINDS = {"sigmoid": 0, "tanh": 1, "relu": 2}
DRIVER = (Path(__file__).parent / "device" / "kernels.c").read_text()
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-Werror"]

# This computer, every core with the kernels it gets, and two with the portable ones.
TARGETS = ["host", *CORES, "cortex-m0plus portable", "cortex-m55 portable"]


@pytest.fixture(scope="module", params=TARGETS)
def kernels(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    if request.param == "host":
        return Kernels(folder, runtime(), DRIVER, flags=SANITIZERS)
    need_mcu()
    core, *portable = request.param.split()
    return Kernels(
        folder, runtime(), DRIVER, core, ["-Werror", *(["-DPKRNNT_PORTABLE"] if portable else [])]
    )


def matrix(rng, rows, cols, shifts):
    """Weights, biases, multipliers and shifts that reach as far as the loader lets them."""
    weight = (
        rng.choice([-127, 127, -1, 0, 3], (rows, cols))
        if rows % 2
        else rng.integers(-127, 128, (rows, cols))
    )
    shift = rng.choice(shifts, rows)
    room = (2**31 - 2**16 - 1) // 2 ** np.maximum(shift, 0) - 128 * np.abs(weight).sum(1)
    bias = (rng.uniform(-1, 1, rows) * room).astype(np.int64)
    bias[::3] = room[::3] * np.sign(bias[::3] + 0.5).astype(np.int64)
    multiplier = rng.choice([0, 2**30, 2**31 - 1, 1583594044, 1200000001], rows)
    return weight, bias, multiplier, shift


@pytest.mark.parametrize("shifts", [(-31, -9, -8, -1), (0,), (-20, -3, 0, 1, 2)])
def test_matrix_vector_products(kernels, shifts):
    """Every remainder of rows and columns, and the largest sums there can be."""
    rng = np.random.default_rng(len(shifts))
    requests, wanted = [], []
    sizes = [(rows, cols) for rows in (1, 2, 3, 4, 5, 8, 31, 34) for cols in (1, 3, 4, 7, 8, 15, 16, 17)]
    sizes += [
        (6, cols) for cols in (31, 32, 33, 47, 48, 63, 64, 95, 96, 97, 111, 112, 127, 128, 129, 200, 640)
    ]
    for rows, cols in sizes:
        parts = matrix(rng, rows, cols, shifts)
        x = rng.choice([-128, 127, 5, -77], cols) if cols % 3 else rng.integers(-128, 128, cols)
        add = rng.choice([-32768, 32767, 0, 40], rows)
        found = oracle.linear(*(part.tolist() for part in parts), x.tolist())
        requests.append([MATVEC, rows, cols, 0, 0, *parts, x])
        wanted += found
        requests.append([MATVEC, rows, cols, 1, 0, *parts, x])
        wanted += [oracle.sat16(v) for v in found]
        requests.append([MATVEC, rows, cols, 1, 1, *parts, x, add])
        wanted += [oracle.sat16(v + int(a)) for v, a in zip(found, add, strict=True)]
    assert kernels.run(requests) == wanted


@cache
def activations(kind, left_shift, table):
    return [oracle.activation(v, left_shift, kind, table) for v in range(-32768, 32768)]


@cache
def narrowed(kind, left_shift, table, start, multiplier, shift, zero):
    values = activations(kind, left_shift, table)[start : start + 4096]
    return [oracle.sat8(oracle.requantize(v, multiplier, shift) + zero) for v in values]


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
def test_activation_on_every_input(kernels, kind, sigmoid_table):
    requests, wanted = [], []
    x, table = np.arange(-32768, 32768), tuple(sigmoid_table)
    for left_shift in range(-4, 5):
        values = activations(kind, left_shift, table)
        for start in range(0, len(values), 4096):
            part = x[start : start + 4096]
            # The high byte and the low ones: what int8 can show of a Q0.15 value, by two scales.
            for pair, zero in (((2**30, -7), 0), ((2**30, 0), -(values[start] // 2))):
                numbers = [KINDS[kind], left_shift, *pair, zero]
                requests.append([ADD_ACTIVATE, len(part), *numbers, part, np.zeros_like(part)])
                wanted += narrowed(kind, left_shift, table, start, *pair, zero)
    assert kernels.run(requests) == wanted


@pytest.mark.parametrize("kind", ["relu", "sigmoid", "tanh"])
def test_sums_at_their_extremes(kernels, kind, sigmoid_table):
    rng = np.random.default_rng(4)
    requests, wanted = [], []
    for n in range(1, 40):
        a, b = rng.choice([-32768, -20000, -1, 0, 5, 32767], (2, n))
        pair, zero = [
            ((2**30, -6), -9),
            ((1998244353, -11), -128),
            ((2**31 - 1, 3), 5),
            ((2**30, 0), 0),
        ][n % 4]
        requests.append([ADD_ACTIVATE, n, KINDS[kind], n % 3 - 1, *pair, zero, a, b])
        for total in (a + b).tolist():
            value = oracle.sat16(total)
            if kind == "relu":
                value = max(value, 0)
            else:
                value = oracle.activation(value, n % 3 - 1, kind, sigmoid_table)
            wanted.append(oracle.sat8(oracle.requantize(value, *pair) + zero))
    assert kernels.run(requests) == wanted


@pytest.mark.parametrize("power", [-16, -12, -8])
@pytest.mark.parametrize("clip", [0, 1000])
def test_lstm_cells_at_their_extremes(kernels, power, clip, sigmoid_table):
    forget, into, output, zero = (2**30, -14), (2**30, -29 - power), (1998244353, -22), -3
    rng = np.random.default_rng(-power)
    requests, wanted = [], []
    for n in (1, 2, 3, 4, 5, 15, 16, 17, 50, 97):
        gates = rng.choice([-32768, -32767, -9000, -1, 0, 1, 9000, 32767], (4, n))
        gates[:, n // 2 :] = rng.integers(-32768, 32768, (4, n - n // 2))
        c = rng.choice([-32768, -5, 0, 5, 32767], n)
        requests.append([LSTM_CELL, n, power, clip, *forget, *into, *output, zero, gates, c])
        cells, hiddens = [], []
        for j in range(n):
            i, f, g, o = (
                oracle.activation(
                    int(gates[gate, j]), 0, "tanh" if gate == 2 else "sigmoid", sigmoid_table
                )
                for gate in range(4)
            )
            carried = oracle.sat16(oracle.requantize(f * int(c[j]), *forget))
            limits = (-clip, clip) if clip else (-32768, 32767)
            cell = oracle.clamp(oracle.requantize(i * g, *into) + carried, *limits)
            squashed = oracle.activation(cell, power + 12, "tanh", sigmoid_table)
            cells.append(cell)
            hiddens.append(oracle.sat8(oracle.requantize(o * squashed, *output) + zero))
        wanted += cells + hiddens
    assert kernels.run(requests) == wanted


def test_argmax_takes_the_first_of_every_tie(kernels):
    rng = np.random.default_rng(2)
    requests = []
    for n in range(1, 70):
        requests += [[ARGMAX, n, rng.choice([-(2**31), -5, 7, 2**31 - 1], n)] for _ in range(4)]
    assert kernels.run(requests) == [int(np.argmax(values)) for _, _, values in requests]


def test_confidences_at_their_extremes(kernels):
    """From logits that all differ by more than int32 holds to logits that all tie."""
    rng = np.random.default_rng(3)
    requests, wanted = [], []
    for softmax in (
        (2137673837, 17, -15872),
        (2**31 - 1, 31, 0),
        (2**30, 0, -31 * 2**26),
        (1374389535, 5, -60000000),
    ):
        for n in (1, 2, 3, 28, 100, 1025):
            for logits in (
                rng.integers(-(2**31), 2**31, n),
                rng.integers(-4000, 4000, n),
                np.full(n, -(2**31)),
                2**31 - 1 + rng.integers(max(softmax[2], -50000) - 3, 1, n),
            ):
                requests.append([CONFIDENCE, n, *softmax, logits])
                best = int(np.argmax(logits))
                wanted.append(oracle.confidence_q15(logits.tolist(), best, softmax))
    found = kernels.run(requests)
    assert found == wanted
    assert min(found) == 0
    assert max(found) == 32767
