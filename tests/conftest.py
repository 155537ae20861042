"""Where golden values come from, and the models tests share."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tally import summary

import pkrnnt

ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ.get("PKRNNT_SHARED", ROOT.parent / "shared"))
DIGITS = ROOT / "examples" / "digits"


def need_shared():
    """Skips a test that needs the full golden files where they do not stand; fails in CI."""
    if not (SHARED / "golden").is_dir():
        message = f"the full golden files are not at {SHARED} (PKRNNT_SHARED names another place)"
        if os.environ.get("PKRNNT_REQUIRE_SHARED") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return SHARED


@pytest.fixture(params=["clone", "shared"])
def golden(request):
    """Folder of golden files: the trimmed copies every clone has, then the full ones."""
    if request.param == "clone":
        return ROOT / "tests" / "golden"
    return need_shared() / "golden"


@pytest.fixture(scope="session")
def digits_float():
    return pkrnnt.load(DIGITS / "float.safetensors")


@pytest.fixture(scope="session")
def digits_utterances():
    """The first 24 bundled evaluation utterances, float16 [T, 128]."""
    with np.load(DIGITS / "evaluation.npz") as data:
        enc, offsets = data["enc"], data["enc_offsets"]
    return [enc[a:b] for a, b in pairwise(offsets[:25])]


@pytest.fixture(scope="session")
def sigmoid_table():
    """The 256 table entries as CMSIS-NN's golden file has them, as Python integers."""
    path = ROOT / "tests" / "golden" / "cmsis_nn" / "activation_sigmoid_s16_ls_0_p4.npz"
    with np.load(path) as data:
        return data["sigmoid_table_uint16"].tolist()


@pytest.fixture(scope="session")
def digits_int8(digits_float):
    """The digits model quantized as ``python -m quant`` does, on a part of its calibration frames."""
    from pkrnnt.dataset import Utterances
    from quant import observe, quantize_model
    from quant.ranges import range_method

    with np.load(DIGITS / "calibration.npz") as data:
        enc, offsets = data["enc"], data["enc_offsets"]
    utterances = [enc[a:b] for a, b in pairwise(offsets[:31])]
    observed = observe(digits_float, Utterances(utterances), range_method("minmax"))
    return quantize_model(digits_float, observed.ranges, moments=observed.moments)


def pytest_terminal_summary(terminalreporter):
    lines = summary()
    if lines:
        terminalreporter.section("golden values that agree")
        terminalreporter.line("| operation | reference | in a clone | in the full files |")
        terminalreporter.line("|---|---|---|---|")
        for line in lines:
            terminalreporter.line(line)
