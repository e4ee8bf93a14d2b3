"""Tell the batches that restores have undone from those that a Commit follows from (decision 179)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.checkpoint.log.entries import Commit

__all__ = ["are_superseded", "superseded_before"]


def superseded_before(batch: int, before: Commit | None) -> list[list[int]]:
    """Return the ids below a batch that are not in its line, as ranges whose ends are exclusive.

    `before` is the Commit from which the batch continues, None for nothing. Ids count without gaps, so those between
    the two were undone, or given up by a Void.
    """
    known, first = ([], 0) if before is None else (before.superseded, before.batch + 1)
    return [*known, *([[first, batch]] if first < batch else [])]


def are_superseded(batches: npt.NDArray[np.int64], ranges: Sequence[Sequence[int]]) -> npt.NDArray[np.bool_]:
    """Return, for each of some batches, whether one of the ranges has it; they are in order and do not overlap."""
    bounds = np.asarray(ranges, dtype=np.int64).reshape(-1)
    # Behind an odd number of bounds is inside a range: its end has not passed.
    inside: npt.NDArray[np.bool_] = np.searchsorted(bounds, batches, side="right") % 2 == 1
    return inside
