"""Say what the plan has to know of an aggregate that one cell with one column computes (decision 204)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.operators.aggregates.cells import Cell, Column, InvertibleCell, as_arrow

__all__ = ["OneCell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneCell:
    """An aggregate over one input, whose result is computed from one partial.

    Attributes:
        part: The name of the partial in checkpoints, which therefore stays.
        cell: The class of the cell; rows can leave it where it is an InvertibleCell.
        accepts: Whether values of an Arrow type have this aggregate.
        refused: What is said of other types, behind their name.
        result: The type of the result; None for that of the input.
        compute: What makes the results of a column of partials, one a group.
        kept: What the layout says of the values, with `{}` for their type; None where it says nothing.
        hides: What the partials are called where their column does not show the type of the values.
    """

    part: str
    cell: type[Cell]
    accepts: Callable[[pa.DataType], bool]
    refused: str
    result: pa.DataType | None = None
    compute: Callable[[Column], pa.Array] = as_arrow
    kept: str | None = None
    hides: str | None = None

    @property
    def exact_inverse(self) -> bool:
        """Return whether rows can leave without a trace (SEMANTICS 3.3)."""
        return issubclass(self.cell, InvertibleCell)
