import numpy as np
from numpy.typing import ArrayLike, NDArray

def check_frames(enc: ArrayLike, width: int) -> NDArray[np.float32]: ...
