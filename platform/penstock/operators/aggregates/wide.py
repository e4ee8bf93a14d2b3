"""Add up integers of 128 bits by group, exactly, with numpy.

A number is two 64-bit words in two's complement, the layout of Arrow's decimal128.
Where all numbers fit into 64 bits and no sum can leave them, one 64-bit addition does. Otherwise four limbs of 32 bits
are added separately, each in 64 bits, which is enough for 2**31 rows. The carries are passed on once at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import IntegerOverflow
from penstock.state.keys import Bools, Ints

__all__ = ["Wide", "group_sum"]

_LIMB = np.int64(0xFFFF_FFFF)
_SHIFT = np.int64(32)


@dataclass(frozen=True, slots=True)
class Wide:
    """Integers of 128 bits: `low` the bits of the lower word, `high` the upper word, both int64.

    `high` None says that every number fits into `low`, read as a signed number.
    """

    low: Ints
    high: Ints | None = None

    @classmethod
    def from_carry(cls, low: Ints, carry: Ints) -> Wide:
        """Read numbers written as low + carry * 2**64, with `low` signed."""
        return cls(low, carry + (low >> 63) if carry.any() else None)

    @classmethod
    def from_decimals(cls, decimals: pa.Array) -> Wide:
        """Read the unscaled values of a decimal128 array; the item of a null is anything."""
        words = np.frombuffer(decimals.buffers()[1], dtype=np.int64).reshape(-1, 2)
        words = words[decimals.offset : decimals.offset + len(decimals)]
        low, high = words[:, 0].copy(), words[:, 1].copy()
        return cls(low, None if np.array_equal(low >> 63, high) else high)

    @property
    def carry(self) -> Ints:
        """Return how often each number went round 2**64: 0 where it fits into 64 bits."""
        return np.zeros_like(self.low) if self.high is None else self.high - (self.low >> 63)

    def to_decimals(self, kind: pa.Decimal128Type, present: Bools | None = None) -> pa.Array:
        """Write the numbers as unscaled values of a decimal128 type, null where not `present`."""
        words = np.empty((len(self.low), 2), dtype=np.int64)
        words[:, 0] = self.low
        words[:, 1] = self.low >> 63 if self.high is None else self.high
        validity = None
        if present is not None and not present.all():
            validity = pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(kind, len(self.low), [validity, pa.py_buffer(words)])

    def reaches(self, limit: int) -> Bools:
        """Return which numbers have an absolute value of at least `limit`, which is below 2**127."""
        low = self.low.view(np.uint64)
        high = self.low >> 63 if self.high is None else self.high
        negative = high < 0
        low = np.where(negative, ~low + np.uint64(1), low)
        upper = np.where(negative, ~high + (low == 0), high)
        top, bottom = divmod(limit, 2**64)
        # -2**127 has no positive twin: its upper word stays negative.
        above: Bools = (upper > top) | ((upper == top) & (low >= np.uint64(bottom))) | (upper < 0)
        return above

    def to_list(self) -> list[int]:
        """Return the numbers as Python integers."""
        high = self.low >> 63 if self.high is None else self.high
        low = self.low.view(np.uint64)
        return [(int(h) << 64) | int(b) for h, b in zip(high, low, strict=True)]


def group_sum(numbers: Wide, ids: Ints, groups: int, sign: Ints | None = None) -> Wide:
    """Add up numbers by group id; with `sign` (1 or -1, int64), those of -1 are subtracted.

    The order of the rows does not matter: only the sum of a whole group must fit.
    Raises IntegerOverflow where it does not fit into 128 bits.
    """
    if not len(ids):
        return Wide(np.zeros(groups, dtype=np.int64))
    if numbers.high is None:
        largest = max(-int(numbers.low.min()), int(numbers.low.max()))
        # Most numbers are so small that no group needs to be counted.
        if largest * len(ids) < 2**63 or largest * int(np.bincount(ids).max()) < 2**63:
            total = np.zeros(groups, dtype=np.int64)
            np.add.at(total, ids, numbers.low if sign is None else numbers.low * sign)
            return Wide(total)
    limbs = [np.zeros(groups, dtype=np.int64) for _ in range(4)]
    high = numbers.low >> 63 if numbers.high is None else numbers.high
    for limb, part in zip(
        limbs,
        (numbers.low & _LIMB, (numbers.low >> _SHIFT) & _LIMB, high & _LIMB, high >> _SHIFT),
        strict=True,
    ):
        np.add.at(limb, ids, part if sign is None else part * sign)
    for place in range(3):
        limbs[place + 1] += limbs[place] >> _SHIFT
        limbs[place] &= _LIMB
    if ((limbs[3] < -(2**31)) | (limbs[3] >= 2**31)).any():
        raise IntegerOverflow("a sum does not fit into 128 bits")
    low = limbs[0] | (limbs[1] << _SHIFT)
    high = limbs[2] | (limbs[3] << _SHIFT)
    return Wide(low, None if np.array_equal(low >> 63, high) else high)
