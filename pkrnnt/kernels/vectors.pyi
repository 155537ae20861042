from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FUNCTIONS: dict[str, int]

def requantize(
    values: NDArray[np.int32],
    multiplier: NDArray[np.int32],
    shift: NDArray[np.int8],
    kernels: str | None,
) -> NDArray[np.int32]: ...
def argmax(values: NDArray[np.int32], kernels: str | None) -> int: ...
def exp_sum(values: NDArray[np.int32], softmax: tuple[int, int, int], kernels: str | None) -> int: ...
def add_activate(
    a: NDArray[np.int16],
    b: NDArray[np.int16],
    function: str,
    left_shift: int,
    requantization: tuple[int, int],
    zero_point: int,
    kernels: str | None,
) -> tuple[NDArray[np.int8], int, int]: ...
def lstm_cell(
    gates: NDArray[np.int16],
    to_add: NDArray[np.int32],
    c: NDArray[np.int16],
    scalars: Mapping[str, Any],
    kernels: str | None,
) -> tuple[NDArray[np.int8], NDArray[np.int16], tuple[int, int, int]]: ...
