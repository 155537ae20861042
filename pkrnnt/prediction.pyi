from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pkrnnt.kernels.linear import Linear

class LstmLayer:
    def __init__(
        self,
        input: Linear,
        hidden: Linear,
        *,
        hidden_zero_point: int,
        cell_scale_power: int,
        cell_clip: int,
        forget_to_cell: tuple[int, int],
        input_to_cell: tuple[int, int],
        output: tuple[int, int],
    ) -> None: ...

class Int8Prediction:
    embed_rows: int
    gate_table_bytes: int
    def __init__(
        self, embed: ArrayLike, layers: Sequence[LstmLayer], gate_table: bool = False
    ) -> None: ...
    def zero_state(self) -> tuple[NDArray[np.int8], NDArray[np.int16]]: ...
    def step(
        self, token: int, state: tuple[NDArray[np.int8], NDArray[np.int16]]
    ) -> tuple[NDArray[np.int8], tuple[NDArray[np.int8], NDArray[np.int16]]]: ...
