"""Rounding float weights to int8 steps: to the nearest, or so that the layer's output errs least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pkrnnt.reference import product

WEIGHT_ROUNDINGS = ("gptq", "nearest")

DAMPING = (
    0.01  # of the mean diagonal, as in the GPTQ paper; keeps few calibration frames from overfitting
)


class InputMoments:
    """Second moments of a layer's input over calibration data, with a constant 1 for the bias."""

    def __init__(self, width: int) -> None:
        self.total = np.zeros((width + 1, width + 1))

    def update(self, x: NDArray[np.floating]) -> None:
        """Adds input vectors [n, width]."""
        augmented = np.concatenate([x.astype(np.float64), np.ones((len(x), 1))], axis=1)
        self.total += product(augmented.T, augmented)


def round_nearest(
    weight: NDArray[np.floating], bias: NDArray[np.floating], scale: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """int8 [rows, cols] nearest to ``weight / scale`` of each row, and the bias as it was."""
    steps = np.clip(np.rint(weight / scale[:, None]), -127, 127).astype(np.int8)
    return steps, bias.astype(np.float64)


def round_second_order(
    weight: NDArray[np.floating],
    bias: NDArray[np.floating],
    scale: NDArray[np.float64],
    moments: InputMoments,
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """int8 [rows, cols] and float64 biases [rows] whose output differs least from the float layer's.

    GPTQ (Frantar et al. 2022, arXiv 2210.17323): columns are rounded one after another, and the
    error of each is made up for by those still to come, as far as the inputs move together. The
    bias is the last column and is not rounded, so it takes up what is left on average.
    """
    rows, cols = weight.shape
    hessian = moments.total / max(moments.total[-1, -1], 1.0)
    diagonal = np.diag(hessian)[:-1]
    # Columns without any input still need a pivot; the absolute floor is for all-zero inputs.
    hessian[np.arange(cols), np.arange(cols)] += DAMPING * diagonal.mean() + 1e-12
    hessian[-1, -1] += 1e-12
    order = np.append(np.argsort(-diagonal, kind="stable"), cols)
    # U upper triangular with inverse(hessian) = U^T U: row k holds how column k's error spreads.
    spread = np.linalg.cholesky(np.linalg.inv(hessian[np.ix_(order, order)])).T
    rest = np.concatenate([weight, bias[:, None]], axis=1).astype(np.float64)[:, order]
    steps = np.empty((rows, cols), np.int8)
    for k in range(cols):
        rounded = np.clip(np.rint(rest[:, k] / scale), -127, 127)
        steps[:, order[k]] = rounded
        error = (rest[:, k] - rounded * scale) / spread[k, k]
        rest[:, k + 1 :] -= np.outer(error, spread[k, k + 1 :])
    return steps, rest[:, -1]
