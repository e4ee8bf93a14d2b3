"""Hold what the Python stages of a batch are told when the plan is made: plain, picklable values."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.graph.windows import TimeWindow
from penstock.operators.evolution import Evolution
from penstock.runtime.facts import BatchFacts
from penstock.state import Change, Combine

if TYPE_CHECKING:
    from penstock.operators.key_ledger import Moment
    from penstock.runtime.partition_state import PartitionState

__all__ = [
    "AHEAD",
    "FATE",
    "HASHED",
    "MAIN",
    "TIME",
    "TIMERS",
    "FunctionLeafSpec",
    "Outlet",
    "Rebuilt",
    "RouteSpec",
    "SinkLeafSpec",
    "SourceSpec",
    "StateSpec",
    "StepDone",
    "StepWork",
    "WindowLeafSpec",
]

TIME = "_penstock_time"
"""int64: event time in microseconds since 1970, null where a row has none."""
FATE = "_penstock_fate"
"""int32: 0 for a row that goes on, -1 to -3 for quarantine, k for a row that the branch's k-th filter dropped."""

AHEAD = "too far in the future"
"""Why a row beyond batch time + max_future is in quarantine (SEMANTICS 2.7)."""


@dataclass(frozen=True, kw_only=True)
class Outlet:
    """Say where the rows of a port go: to sinks as they are, and along lanes to hops."""

    sinks: tuple[str, ...]
    lanes: tuple[str, ...]
    schema: pa.Schema

    @property
    def used(self) -> bool:
        """Return whether anybody reads the port."""
        return bool(self.sinks or self.lanes)


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """Say how a branch accounts for the rows of its source; None in a branch that does not."""

    name: str
    quarantine: Outlet


@dataclass(frozen=True, kw_only=True)
class WindowLeafSpec:
    """Say how rows become partials of a window step.

    `keys` maps the step's key columns to columns of the branch, `inputs` each aggregate to the column it reads.
    """

    step: str
    window: TimeWindow
    plan: Any
    partitions: int
    order: int
    """The place of the port among the sources, part of the arrival order (SEMANTICS 1.6)."""
    rank: int
    """The place of the branch among the `ranks` inputs of the step: one row may come along several."""
    ranks: int
    keys: dict[str, str]
    inputs: dict[str, str]
    hash_column: str
    visible: tuple[str, ...]
    late: Outlet | None


@dataclass(frozen=True, kw_only=True)
class FunctionLeafSpec:
    """Say how rows go to the partition that keeps their key's state.

    `keys` maps the step's key columns to columns of the branch. `order`, `rank` and `ranks` are as for a window.
    """

    step: str
    partitions: int
    order: int
    rank: int
    ranks: int
    keys: dict[str, str]
    hash_column: str
    visible: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SinkLeafSpec:
    """Say how rows are staged: for these sinks, and behind a check with what its gate decides on."""

    sinks: tuple[str, ...]
    visible: tuple[str, ...]
    check: str | None = None
    gate: Any = None
    judged: Mapping[str, str] = field(default_factory=dict)
    """For each column that the gate reads the column of the branch, which several checks may share."""
    by_window: bool = False
    """Whether the unit of the check is a window (SEMANTICS 11.1)."""
    separate: bool = False
    """Whether rows that fail a rule are staged apart, because the verdict may withhold them."""
    quarantine: Outlet | None = None


@dataclass(frozen=True, kw_only=True)
class RouteSpec:
    """Say what the Python stage at the end of a branch does."""

    source: SourceSpec | None
    filters: tuple[str | None, ...]
    """The names of the branch's filters in order; None for one that another branch counts."""
    leaves: tuple[WindowLeafSpec | FunctionLeafSpec | SinkLeafSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """Hold what a batch did in one state partition.

    `due` and `due_time`: when the partition is to be looked at
    next though no row comes, by the watermark and by the batch time. `rows`: those that were taken. `aside`: what goes
    to the step's quarantine, `aside_rows` the rows of the batch in it. `now`: the event time of a snapshot.
    """

    change: Change
    due: int | None
    due_time: int | None
    rows: int
    aside: pa.Table | None = None
    aside_rows: int = 0
    now: int | None = None


MAIN, TIMERS = "", "timers"
"""The tables that show a step's state: a row for each key, or key and slice; and a row for each timer that waits."""
HASHED = "_penstock_hash"
"""The column that has the hash of the keys, where state is made again from tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Hold the change that makes a partition from tables, and when it is to be looked at, as in `StepDone`."""

    change: Change
    due: int | None
    due_time: int | None


class StepWork(Protocol):
    """What a step keeps in its state, and what a batch does with it in one partition; sent to tasks."""

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the rows put out."""

    @property
    def layout_name(self) -> str:
        """Return in words what is kept."""

    @property
    def described(self) -> Mapping[str, Any]:
        """Return what those who read the state without the job's code must know, as JSON values."""

    @property
    def hash_column(self) -> str:
        """Return the column of what comes through the shuffle that has the hashes of the keys."""

    @property
    def counted_as(self) -> str:
        """Return under which name the step's rows are accounted for."""

    @property
    def merge(self) -> Mapping[str, Combine | None]:
        """Return how compaction merges the rows of each part."""

    def evolution(self, state: PartitionState) -> Evolution:
        """Return how this state differs from what the step keeps, and what of that forbids going on."""

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of state that was kept in these columns, as a `layout_name` said."""

    def run(
        self, state: PartitionState, tables: list[pa.Table], facts: BatchFacts
    ) -> Generator[pa.Table, None, StepDone]:
        """Do a batch's work with what came through the shuffle.

        Yields the output piece by piece, rows with their event time in the column TIME, and returns what was done.
        """

    def rows(self, state: PartitionState) -> list[dict[str, Any]]:
        """Return the state as rows for people."""

    def whole(self, state: PartitionState) -> pa.Table:
        """Return the state as a table that anybody can read: the key columns and what is kept for them."""

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return the columns of the tables that hold all there is of the state, by table; MAIN is always there."""

    @property
    def shown_in(self) -> Mapping[str, str]:
        """Return the table that each part stands in; parts that are left out are made again from the others."""

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return rows of such a part, which are live ones as `live_rows` yields them, with the columns of its table."""

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: Moment) -> Rebuilt:
        """Return the state of an empty partition that has what the tables say, with HASHED beside their columns.

        The rows of each are sorted by HASHED. A table may lack the columns that begin with an underscore: then a key is
        as one whose last row came at the moment.
        """


@dataclass(frozen=True, kw_only=True)
class StateSpec:
    """Say what the state stage does for one step."""

    step: str
    partitions: int
    work: StepWork
    output: Outlet
    aside: Outlet | None = None
    """Where rows go that the step puts aside."""
    snapshots: Outlet | None = None
    """Where the whole state goes, behind each batch."""
