"""The protocol between operators and the runtime: the whole seam between the two (decision 90).

An operator keeps state for keys. Rows of each of its inputs come to the *map side* in the task that made them, which
sends what the step needs through the shuffle. After it each task owns one *state partition*, and runs the step there,
once in every batch. Neither side knows Spark, files of its own, or the driver.

To add one: `graph/specs/x.py` with its `StepSpec` and the method of streams, `operators/x.py` with `bind_side` and
`bind`, a test module, and the method's class among the bases of `graph.keyed.StatefulSteps`. CONTRIBUTING.md has the
list. `operators/deduplicate.py` is one to begin from.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.operators.schema_evolution import Evolution
from penstock.state.keys import Bools
from penstock.state.manifest import Manifest
from penstock.state.parts import Part
from penstock.state.reader import Adapters, StateReader
from penstock.state.writer import Change
from penstock.time.arrival import ARRIVAL, PARTITION, POSITION, Stand, of_source, split

__all__ = [
    "HASHED",
    "LAYOUT",
    "MAIN",
    "TIME",
    "TIMERS",
    "BoundSide",
    "Due",
    "Emit",
    "MapSide",
    "Operator",
    "Rebuilt",
    "RowsOfBranch",
    "Send",
    "StateLayout",
    "StateView",
    "Step",
    "StepContext",
    "StepFacts",
    "Tally",
    "arrivals_of",
]

TIME = "_penstock_time"
"""int64: event time in microseconds since 1970, null where a row has none."""
HASHED = "_penstock_hash"
"""int64: the hash of the keys, in all that is sent through the shuffle and in tables that state is rebuilt from."""
LAYOUT = "layout"
"""The fact that says in words what a partition's state was written as."""
MAIN, TIMERS = "", "timers"
"""The tables that show a step's state. One has a row for each key (or key and slice), one for each timer that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """The facts of a batch for a step; times and watermarks are microseconds, None is the beginning of time.

    `watermark` is the one by which the step closes, `late` the one that judges its rows late. `judged` is the highest
    by which downstream steps judge its output, and `judged_least` the lowest. None where none does, and before the
    shuffle.
    `reached` is the event time of what no single row has caused, None where none is known yet. `epoch` is that of the
    driver (DESIGN 3). `zero` is the job's zero time, from which batch times count (SEMANTICS 1.1). `interval` is that
    of the batch's ticks, None for as fast as possible. `before` is the time of the batch before, None for the first,
    and also where state is rebuilt. `read` are the outlets that anybody reads: rows of others go nowhere, and need
    not be made. In `debug` mode the step checks what users' functions promise.
    """

    batch: int
    time: int
    watermark: int | None
    late: int | None = None
    judged: int | None = None
    judged_least: int | None = None
    reached: int | None = None
    epoch: int = 0
    zero: int = 0
    interval: int | None = None
    before: int | None = None
    debug: bool = False
    read: frozenset[str] = field(default_factory=frozenset)


# --- what the two sides yield --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send rows through the shuffle, each to the partition that owns the hash in its column HASHED."""

    rows: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Emit rows, which have their event time in the column TIME beside those of the outlet.

    `arrivals` returns the places of rows in the order of arrival (SEMANTICS 1.6). On the map side these are the rows
    that it emits. After the shuffle they are those of the batch, and `stand` gives for each row the one that caused it.
    None where time has caused all rows. Neither is called unless somebody asks for the order.
    """

    rows: pa.Table
    outlet: str = ""
    stand: Callable[[], Stand] | None = None
    arrivals: Callable[[], pa.Array] | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """When a state partition has work though no row comes: by the watermark, and by the batch time.

    Of several that a step yields the earliest counts; None is never.
    """

    watermark: int | None
    time: int | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """Count rows for the accounting of the step (SEMANTICS 2.10), under names of its spec's `counts` and `sums`."""

    counts: Mapping[str, int]


# --- the map side --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsOfBranch:
    """Rows of one branch of the job that lead to an input of a step.

    `table` has TIME and the columns that are named here. `visible` are those that the user sees; there are these only
    where the spec reads `rows`. `keys` has for each key the column of it, in which NaN is one and zero is one. `inputs`
    has for each expression that the spec reads the column of it. `hash_column` has the hash of the keys, int64.
    `place` is that of the rows' port in the order of arrival, `way` the branch's among the `ways` to the step.
    """

    table: pa.Table
    visible: Sequence[str]
    keys: Mapping[str, str]
    inputs: Mapping[str, str]
    hash_column: str
    place: int
    way: int
    ways: int

    def positions(self) -> pa.Array:
        """Return the rows' positions in their source partition, distinct also where a row comes several ways."""
        positions = self.table[POSITION]
        return positions if self.ways == 1 else pc.add(pc.multiply(positions, self.ways), self.way)

    def arrivals(self) -> pa.Array:
        """Return where the rows stand in the order of arrival, as bytes, along whichever way they come."""
        keys = arrivals_of(self.table, self.place)
        return keys if self.ways == 1 else split(keys, self.way)

    def only(self, mask: Bools) -> RowsOfBranch:
        """Return the rows where a mask is true."""
        return replace(self, table=self.table.filter(pa.array(mask)))


def arrivals_of(rows: pa.Table, place: int) -> pa.Array:
    """Return where rows stand in the order of arrival; `place` is that of their source, where they are of one."""
    if ARRIVAL in rows.column_names:
        return rows[ARRIVAL].combine_chunks()
    return of_source(place, rows[PARTITION].to_numpy(), rows[POSITION].to_numpy())


class MapSide(Protocol):
    """The work of a task before the shuffle on rows of one input; a frozen value that is sent to tasks.

    Each branch that leads to an input has its own; `differs` sees to it that they send alike.
    """

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the columns of the outlets that this side fills."""

    def differs(self, other: Any) -> str | None:
        """Return in words what a branch of the same input has otherwise, so that they cannot share a state."""

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Yield what becomes of the rows of a task; called for each piece of them, which may be empty.

        Each row has to be tallied. What is yielded must follow from the rows and the facts alone: a task runs again.
        """


# --- after the shuffle ---------------------------------------------------------------------------


class StateView(StateReader):
    """The state of one partition as the last Commit left it, read as the step's `layout` has it.

    Nothing here changes it. `adapt` is that of the layout, unless it is known already.
    """

    def __init__(
        self, folder: CheckpointFolder, manifest: Manifest, layout: StateLayout, adapt: Adapters | None = None
    ) -> None:
        super().__init__(folder, manifest, layout.adapters(manifest.facts) if adapt is None else adapt)
        self.layout = layout

    @property
    def written_as(self) -> str:
        """Return in words what the state was written as."""
        return str(self.facts.get(LAYOUT, self.layout.layout_name))


class StateLayout(Protocol):
    """The content of a step's state, and its layout."""

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""

    @property
    def layout_name(self) -> str:
        """Return in words what is kept."""

    @property
    def described(self) -> Mapping[str, Any]:
        """Return what those who read the state without the job's code must know, as JSON values."""

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return each part by its name: how its rows merge, and the table that shows them.

        The step rebuilds the parts that no table shows from the others.
        """

    def adapters(self, facts: Mapping[str, Any]) -> Adapters:
        """Return what makes of rows that were stored with these facts those of today, by part."""

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs from what the step keeps, and what of that forbids to resume from it."""

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of state that was kept in these columns, as a `layout_name` said."""

    def lost(self, state: StateView) -> tuple[str, ...]:
        """Return, in clauses, what of this state nothing in the step would ever read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The change that makes a partition from tables, and when the partition is due next, as in `Due`."""

    change: Change
    due: int | None
    due_time: int | None


class Step(StateLayout, Protocol):
    """A step after the shuffle, which is sent to tasks: what it keeps, how that is shown, and what it does.

    Tables show the state to anybody, and it is rebuilt from them (SEMANTICS 7.3, 10.1).
    """

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return the columns of the tables that hold all there is of the state: MAIN, and TIMERS where there are."""

    @property
    def may_lack(self) -> frozenset[str]:
        """Return the columns that a table may lack: then a key is as one whose last row came at the moment."""

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return rows of a part that a table shows, live ones as `live_rows` yields them, with the table's columns."""

    def adapted(self, table: str, layout: str) -> Callable[[pa.Table], pa.Table]:
        """Return what makes those of today of rows of a table that was written when a `layout_name` was this."""

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return the state of an empty partition that has what the tables say, with HASHED beside their columns.

        The rows of each are sorted by HASHED.
        """

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the columns of the outlets that the step fills after the shuffle; "" is the main one."""

    @property
    def explained(self) -> Mapping[str, str]:
        """Return what `explain` tells of the step once its columns are known: titles, and a text for each."""

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Do a batch's work in one partition; called in every batch, without rows as well.

        `inputs` are for each input the tables that its map sides have sent, in an order that is the same in every run.
        Each piece is sent on before the step resumes, so a step that emits by pieces holds little. At
        most one Change is yielded; what comes back for it is the state as that leaves it.
        """


# --- how a spec becomes both ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSide:
    """The analysis of a branch for an input: `name` is the step's, `side` the input's place.

    `keys` are the key columns under the names of the first input, and `columns` their names in this one. `visible` are
    all columns, where the spec reads them, `inputs` the type of each expression. `chained`: whether output of
    another step is among its inputs. Then bytes give the order of arrival of all its rows. `ways` is how many
    branches lead to the step.
    """

    name: str
    side: int
    keys: pa.Schema
    columns: tuple[str, ...]
    visible: pa.Schema | None
    inputs: Mapping[str, pa.DataType]
    chained: bool = False
    ways: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """The graph's facts of a step: whether its rows have event time, and whether a step reads its output.

    `retracts` says whether a sink needs a row for each that the step takes back.
    """

    name: str
    event: bool
    timed: bool
    retracts: bool = False


class Operator(Protocol):
    """The two functions of a module that `StepSpec.operator` names; they may raise JobError and BadExpression."""

    def bind_side(self, spec: Any, side: BoundSide, /) -> MapSide:
        """Return the map side of an input; called for each branch that leads there."""

    def bind(self, spec: Any, sides: Sequence[Any], context: StepContext, /) -> Step:
        """Return the step; `sides` are the map sides, one an input."""
