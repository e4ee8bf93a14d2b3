"""Hold what the Python stages of a batch are told when the plan is made: plain, picklable values."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.graph.windows import TimeWindow
from penstock.operators.schema_evolution import Evolution
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState, StateLayout
from penstock.runtime.tasks.staging import Outlet
from penstock.state.keys import Ints
from penstock.state.writer import Change
from penstock.time.arrival import ARRIVAL, Stand

if TYPE_CHECKING:
    from penstock.operators.functions.key_index import BatchClock

__all__ = [
    "AHEAD",
    "HASHED",
    "MAIN",
    "ROW_STATUS",
    "TIME",
    "TIMERS",
    "FunctionLeafSpec",
    "Piece",
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
ROW_STATUS = "_penstock_fate"
"""int32: 0 for a row that goes on, -1 to -3 for quarantine, k for a row that the branch's k-th filter dropped."""

AHEAD = "too far in the future"
"""Why a row beyond batch time + max_future is in quarantine (SEMANTICS 2.7)."""


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """Say how a branch accounts for the rows of its source; None in a branch that does not."""

    name: str
    place: int
    """The place of the source among the ports, the first part of the arrival order (SEMANTICS 1.6)."""
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
    place: int
    """The place of the step among the ports."""
    chained: bool
    """Whether any of the step's inputs is the output of a step: order is then told by ARRIVAL, of all inputs."""
    keys: dict[str, str]
    inputs: dict[str, str]
    hash_column: str
    visible: tuple[str, ...]
    late: Outlet | None


@dataclass(frozen=True, kw_only=True)
class FunctionLeafSpec:
    """Say how rows go to the partition that keeps their key's state.

    `keys` maps the step's key columns to columns of the branch. The rest is as for a window.
    """

    step: str
    partitions: int
    order: int
    rank: int
    ranks: int
    chained: bool
    keys: dict[str, str]
    hash_column: str
    visible: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SinkLeafSpec:
    """Say how rows are staged: for these sinks, and behind a check with what its gate decides on.

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

    @property
    def staged(self) -> tuple[str, ...]:
        """Return the columns that are staged; `TaskFiles.stage` takes the last from sinks that are not ordered."""
        return (*self.visible, ARRIVAL) if self.ordered else self.visible


@dataclass(frozen=True, kw_only=True)
class RouteSpec:
    """Say what the Python stage at the end of a branch does."""

    source: SourceSpec | None
    filters: tuple[str | None, ...]
    """The names of the branch's filters in order; None for one that another branch counts."""
    leaves: tuple[WindowLeafSpec | FunctionLeafSpec | SinkLeafSpec, ...]
    timed_by: tuple[str, str] | None = None
    """The vectorised step whose output this is, and by what, where its event time is computed behind it."""
    columns: Mapping[str, str] | None = None
    """For each column of the branch the one that crosses with the rows of all branches; None where they are its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Hold rows that a step emits, with their event time in the column TIME, and how to learn where they stand.

    `stand` tells it in terms of the batch's rows, of which `arrivals` returns the places in the order of arrival; None
    where time causes all of the rows.
    """

    rows: pa.Table
    stand: Callable[[], Stand]
    arrivals: Callable[[], pa.Array] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """Hold what a batch did in one state partition.

    `due` and `due_time`: when the partition is to be looked at next though no row comes, by the watermark and by the
    batch time. `rows`: those that were taken. `aside`: what goes to the step's quarantine, `aside_rows` the rows of the
    batch in it. `now` returns the event times of rows of a snapshot, from the hashes of their keys.
    """

    change: Change
    due: int | None
    due_time: int | None
    rows: int
    aside: Piece | None = None
    aside_rows: int = 0
    now: Callable[[Ints], Ints] | None = None


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


class StepWork(StateLayout, Protocol):
    """What a step keeps in its state, and what a batch does with it in one partition; sent to tasks."""

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the rows put out."""

    def adapted(self, table: str, layout: str) -> Callable[[pa.Table], pa.Table]:
        """Return what does the same to rows of a table that was written when a `layout_name` was this."""

    @property
    def counted_as(self) -> str:
        """Return under which name the step's rows are accounted for."""

    def evolution(self, state: PartitionState) -> Evolution:
        """Return how this state differs from what the step keeps, and what of that forbids going on."""

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of state that was kept in these columns, as a `layout_name` said."""

    def lost(self, state: PartitionState) -> tuple[str, ...]:
        """Return, in clauses, what stands in this state that nothing in the step would ever look at again."""

    def run(
        self, state: PartitionState, tables: list[pa.Table], facts: BatchContext
    ) -> Generator[Piece, None, StepDone]:
        """Do a batch's work with what came through the shuffle: yield the output by pieces, return what was done."""

    def rows(self, state: PartitionState) -> list[dict[str, Any]]:
        """Return the state as rows for people."""

    def whole(self, state: PartitionState) -> pa.Table:
        """Return the state as a table that anybody can read, with HASHED: the key columns and what is kept for them."""

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return the columns of the tables that hold all there is of the state, by table; MAIN is always there."""

    @property
    def shown_in(self) -> Mapping[str, str]:
        """Return the table that each part stands in; parts that are left out are made again from the others."""

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return rows of such a part, which are live ones as `live_rows` yields them, with the columns of its table."""

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: BatchClock) -> Rebuilt:
        """Return the state of an empty partition that has what the tables say, with HASHED beside their columns.

        The rows of each are sorted by HASHED. A table may lack the columns that begin with an underscore: then a key is
        as one whose last row came at the moment.
        """


@dataclass(frozen=True, kw_only=True)
class StateSpec:
    """Say what the state stage does for one step."""

    step: str
    partitions: int
    depth: int
    """How many steps with state, this one included, stand on the longest way to here."""
    work: StepWork
    output: Outlet
    aside: Outlet | None = None
    """Where rows go that the step puts aside."""
    snapshots: Outlet | None = None
    """Where the whole state goes, behind each batch."""
