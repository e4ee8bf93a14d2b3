"""Add floats exactly, so that a sum does not depend on how rows were cut into tasks.

Each double is a mantissa times a power of two. The mantissas are added as integers in bins of eight exponents: the
superaccumulator of Kulisch, with only the bins that occur.
Partial sums are then integers, whose addition is exact in every order; rounding happens once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["BINS", "bins_of", "rounded"]

# frexp's mantissa has 53 bits and the smallest subnormal is 2**-1074 = 0.5 * 2**-1073, so mantissa * 2**53 is a
# whole number whose weight is at least 2**-1126.
_LEAST = 1126
_BITS = 3  # a bin has 2**3 exponents
_HALF = 26  # a mantissa is added in two halves, so that int64 has room for the sums
BINS = (1024 - 53 + _LEAST >> _BITS) + 1


def bins_of(
    values: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each finite double its bin, and the high and low part of its mantissa shifted within the bin.

    Each part stays below 2**34, so int64 sums of up to 2**29 of them cannot overflow.
    """
    mantissa, exponent = np.frexp(values)
    whole = (mantissa * 2.0**53).astype(np.int64)
    weight = exponent.astype(np.int64) + (_LEAST - 53)
    shift = weight & ((1 << _BITS) - 1)
    return weight >> _BITS, (whole >> _HALF) << shift, (whole & ((1 << _HALF) - 1)) << shift


def rounded(parts: Iterable[tuple[int, int, int]]) -> float:
    """Return the double nearest to the sum of (bin, high, low), infinite where it is beyond the largest double."""
    total = sum(((high << _HALF) + low) << (place << _BITS) for place, high, low in parts)
    try:
        return total / (1 << _LEAST)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
