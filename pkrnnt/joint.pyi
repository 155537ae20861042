import numpy as np
from numpy.typing import ArrayLike, NDArray

from pkrnnt.kernels.linear import Linear

ACTIVATIONS: dict[str, int]

class Int8Joint:
    def __init__(
        self,
        enc: Linear,
        pred: Linear,
        out: Linear,
        *,
        enc_inverse_scale: float,
        enc_zero_point: int,
        activation: str,
        activation_left_shift: int,
        hidden: tuple[int, int],
        hidden_zero_point: int,
        softmax: tuple[int, int, int],
    ) -> None: ...
    def quantize_enc(self, enc: ArrayLike) -> NDArray[np.int8]: ...
    def project_enc(self, enc: ArrayLike) -> NDArray[np.int16]: ...
    def project_pred(self, g: NDArray[np.int8]) -> NDArray[np.int16]: ...
    def output(
        self, enc_proj_t: NDArray[np.int16], pred_proj: NDArray[np.int16]
    ) -> NDArray[np.int32]: ...
    def logits(self, enc_proj_t: NDArray[np.int16], g: NDArray[np.int8]) -> NDArray[np.int32]: ...
    def argmax(self, logits: NDArray[np.int32]) -> int: ...
    def confidence(self, logits: NDArray[np.int32], token: int) -> float: ...
