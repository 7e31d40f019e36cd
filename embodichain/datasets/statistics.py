"""Statistics of a dataset's features, in the form of LeRobot's ``meta/stats.json``.

Shapes: T frames, K numbers of a frame, or [3, 1, 1] for an image's channels; Q quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
_LEVELS = np.arange(256) / 255.0


@dataclass(frozen=True)
class FeatureStatistics:
    """Statistics of one feature over ``count`` frames; images are scaled to [0, 1], all pixels counting.

    Attributes:
        low, high, mean, square: minimum, maximum, mean, and mean of the squares, [K] or [3, 1, 1].
        quantiles: [Q, ...]. Several episodes have the mean of each one's, weighted by its frames, as LeRobot
            has them.
    """

    count: int
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    quantiles: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> FeatureStatistics:
        """Return the statistics of an episode's values [T] (as K = 1), [T, K], or images [T, H, W, 3] uint8."""
        if values.ndim == 4:
            return cls._of_images(values)
        rows = values.reshape(len(values), -1).astype(np.float64)
        quantiles = np.quantile(rows, list(_QUANTILES.values()), axis=0, method="inverted_cdf")
        return cls(len(rows), rows.min(0), rows.max(0), rows.mean(0), (rows**2).mean(0), quantiles)

    @classmethod
    def _of_images(cls, images: np.ndarray) -> FeatureStatistics:
        # How often each level occurs has all that is asked, and is small however many pixels there are.
        counts = np.stack([np.bincount(channel.ravel(), minlength=256) for channel in np.moveaxis(images, 3, 0)])
        shares = counts.cumsum(axis=1) / counts[0].sum()
        quantiles = np.stack([_LEVELS[(shares >= share).argmax(axis=1)] for share in _QUANTILES.values()])
        low, high = np.where(counts > 0, _LEVELS, 1.0).min(axis=1), np.where(counts > 0, _LEVELS, 0.0).max(axis=1)
        mean, square = ((counts @ values) / counts[0].sum() for values in (_LEVELS, _LEVELS**2))
        low, high, mean, square = (part.reshape(3, 1, 1) for part in (low, high, mean, square))
        return cls(len(images), low, high, mean, square, quantiles.reshape(-1, 3, 1, 1))

    def merged(self, other: FeatureStatistics) -> FeatureStatistics:
        """Return the statistics of both's frames."""
        count = self.count + other.count
        own, others = self.count / count, other.count / count
        return FeatureStatistics(
            count,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            own * self.mean + others * other.mean,
            own * self.square + others * other.square,
            own * self.quantiles + others * other.quantiles,
        )

    def as_data(self) -> dict[str, Any]:
        """Return ``min``, ``max``, ``mean``, ``std``, ``count`` and the quantiles ``q01`` to ``q99`` as lists."""
        std = np.sqrt(np.maximum(self.square - self.mean**2, 0.0))
        arrays = {"min": self.low, "max": self.high, "mean": self.mean, "std": std, "count": np.array([self.count])}
        arrays |= dict(zip(_QUANTILES, self.quantiles, strict=True))
        return {name: array.tolist() for name, array in arrays.items()}
