"""The specifications of a batch's Python stages, which the plan makes: plain, picklable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.operators.protocol import MapSide, RowsOfBranch, Step
from penstock.runtime.tasks.staging import Outlet
from penstock.sources.base import PartitionNames
from penstock.time.arrival import ARRIVAL

__all__ = ["AHEAD", "ROW_STATUS", "RouteSpec", "SinkLeafSpec", "SourceSpec", "StateSpec", "StepLeafSpec"]

ROW_STATUS = "_penstock_fate"
"""int32: 0 for a row that stays, -1 to -3 for quarantine, k for a row that the branch's k-th filter dropped."""

AHEAD = "too far in the future"
"""Why a row beyond batch time + max_future is in quarantine (SEMANTICS 2.7)."""


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """How a branch accounts for the rows of its source; None in a branch that does not."""

    name: str
    place: int
    """The place of the source among the ports, the first part of the arrival order (SEMANTICS 1.6)."""
    quarantine: Outlet
    names: PartitionNames | None = None
    """How rows in quarantine name their partition."""


@dataclass(frozen=True, kw_only=True)
class StepLeafSpec:
    """How rows of a branch become what a step takes of its input `side`."""

    step: str
    side: int
    map_side: MapSide
    counted_as: str
    partitions: int
    rows: RowsOfBranch
    """What the map side is given, with an empty table in the place of the rows."""
    place: int
    """The place of the step among the ports."""
    outlets: Mapping[str, Outlet]
    """The outlets of rows that the map side emits."""


@dataclass(frozen=True, kw_only=True)
class SinkLeafSpec:
    """How a task stages rows: for these sinks, and with a check for its gate.

    `ordered` are the sinks that want the order of arrival, those of the quarantine included; `order` as for a window.
    """

    sinks: tuple[str, ...]
    visible: tuple[str, ...]
    order: int
    ordered: tuple[str, ...] = ()
    check: str | None = None
    gate: Any = None
    judged: Mapping[str, str] = field(default_factory=dict)
    """For each column that the gate reads the column of the branch, which several checks may share."""
    by_window: bool = False
    """Whether the unit of the check is a window (SEMANTICS 11.1)."""
    separate: bool = False
    """Whether rows that fail a rule are staged apart, because the verdict may withhold them."""
    quarantine: Outlet | None = None
    deleting: tuple[str, ...] = ()
    """The sinks that delete what is taken back; the check may have withheld from the others what that was."""

    @property
    def staged(self) -> tuple[str, ...]:
        """Return the columns that are staged; `TaskFiles.stage` takes the last from sinks that are not ordered."""
        return (*self.visible, ARRIVAL) if self.ordered else self.visible


@dataclass(frozen=True, kw_only=True)
class RouteSpec:
    """The work of the Python stage at the end of a branch."""

    source: SourceSpec | None
    filters: tuple[str | None, ...]
    """The names of the branch's filters in order; None for one that another branch counts."""
    leaves: tuple[StepLeafSpec | SinkLeafSpec, ...]
    made: tuple[int, ...] = ()
    """The numbers among the filters of the functions that took all rows and made others."""
    timed_by: tuple[str, str] | None = None
    """The vectorised step whose output this is, and its event time, where that is computed after the step."""
    columns: Mapping[str, str] | None = None
    """For each column of the branch the one that crosses with the rows of all branches; None where they are its own."""

    def of_branch(self, table: pa.Table) -> pa.Table:
        """Return the branch's columns of rows that came for all branches of its fork."""
        return table if self.columns is None else pa.table({name: table[c] for name, c in self.columns.items()})


@dataclass(frozen=True, kw_only=True)
class StateSpec:
    """The work of the state stage for one step."""

    step: str
    sides: int
    partitions: int
    depth: int
    """How many steps with state, this one included, are on the longest path from a source."""
    behind: tuple[str, ...]
    """The steps that read its output, at any distance."""
    counted_as: str
    work: Step
    outlets: Mapping[str, Outlet]
    """The outlets of the rows that it emits."""
