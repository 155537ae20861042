import numpy as np
from numpy.typing import ArrayLike, NDArray

class Linear:
    def __init__(
        self,
        weight: ArrayLike,
        bias: ArrayLike,
        multiplier: ArrayLike,
        shift: ArrayLike,
        kernels: str | None = None,
    ) -> None: ...
    def accumulate(self, x: ArrayLike) -> NDArray[np.int32]: ...
    def __call__(self, x: ArrayLike) -> NDArray[np.int32]: ...
