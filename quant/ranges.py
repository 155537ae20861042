"""Ranges of activations: observed in one pass whatever the order, then chosen by a method."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]


class RangeObserver:
    """Histogram of a tensor's values over a data set.

    Bins are a power of two wide and start at zero, so widening them merges pairs exactly: the same
    data give the same histogram in any order and any batching.
    """

    BINS = 2048  # on each side of zero

    def __init__(self) -> None:
        self._exponent = -60
        self.counts = np.zeros(2 * self.BINS, np.int64)
        self.low = np.inf
        self.high = -np.inf

    @property
    def width(self) -> float:
        return 2.0**self._exponent

    def update(self, values: NDArray[np.floating]) -> None:
        """Adds values of any shape; they must be finite."""
        if not values.size:
            return
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        while max(-self.low, self.high) >= self.BINS * self.width:
            self._exponent += 1
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts[:] = 0
            self.counts[self.BINS // 2 : self.BINS // 2 + self.BINS] = pairs
        bins = np.floor(values.ravel().astype(np.float64) / self.width).astype(np.int64)
        self.counts += np.bincount(bins + self.BINS, minlength=2 * self.BINS)

    def edges(self) -> NDArray[np.float64]:
        """Lower edges of the bins."""
        return np.arange(-self.BINS, self.BINS, dtype=np.float64) * self.width

    def percentile(self, percent: float) -> Interval:
        """The interval that leaves out (100 - percent) / 2 percent of the values at either end."""
        cumulative = np.cumsum(self.counts)
        total = cumulative[-1]
        tail = total * (100 - percent) / 200
        first = int(np.searchsorted(cumulative, tail, side="right"))
        last = int(np.searchsorted(cumulative, total - tail, side="left"))
        edges = self.edges()
        return (
            max(self.low, float(edges[first])),
            min(self.high, float(edges[last] + self.width)),
        )

    def least_square_error(self, levels: int) -> Interval:
        """The fraction of the observed interval that quantizes with the least mean square error."""
        centres = self.edges() + self.width / 2
        best, best_error = 1.0, np.inf
        for fraction in np.linspace(1.0, 0.2, 81):
            low, high = fraction * min(self.low, 0.0), fraction * max(self.high, 0.0)
            step = (high - low) / (levels - 1)
            clipped = np.maximum(np.maximum(low - centres, centres - high), 0.0)
            error = float((self.counts * np.where(clipped > 0, clipped**2, step**2 / 12)).sum())
            if error < best_error:
                best, best_error = float(fraction), error
        return best * self.low, best * self.high


RangeMethod = Callable[[RangeObserver, int], Interval]
"""Chooses an interval for an observed tensor that is stored in so many bits."""


def range_method(text: str) -> RangeMethod:
    """A method from its name: ``minmax``, ``mse`` or ``percentile:P`` with 50 < P <= 100.

    Raises:
        ValueError: another name, or P outside its range.
    """
    if text == "minmax":
        return lambda observer, bits: (observer.low, observer.high)
    if text == "mse":
        return lambda observer, bits: observer.least_square_error(2**bits)
    match = re.fullmatch(r"percentile:([0-9.]+)", text)
    if match:
        try:
            percent = float(match[1])
        except ValueError:
            percent = 0.0
        if 50 < percent <= 100:
            return lambda observer, bits: observer.percentile(percent)
    raise ValueError(
        f"range is {text!r}, wanted minmax, mse or percentile:P with P above 50 and at most 100"
    )


@dataclass(frozen=True)
class Ranges:
    """Ranges of every activation of a model, as the quantizer takes them."""

    enc: Interval
    """encoder frames"""
    hidden: tuple[Interval, ...]
    """h of each LSTM layer"""
    cell: tuple[float, ...]
    """largest |c| of each LSTM layer"""
    joint_sum: float
    """largest magnitude of the joint's projections and of their sum"""
    joint_hidden: Interval
    """the joint's activation"""
