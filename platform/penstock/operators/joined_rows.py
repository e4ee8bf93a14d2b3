"""Keep rows of two streams that wait for one another: what the joins of two streams have in common.

A row of state has `_hash`, the keys, `_side`, `_event_time`, and the other columns of its input. `_batch` and `_number`
are its place in the order of arrival, the number being that among rows of its key and side. `_group` is the join's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import JobError, StateError
from penstock.graph.specs.join import SIDES
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.columns import integers
from penstock.operators.interval_pairs import number_in_key
from penstock.operators.protocol import (
    HASHED,
    MAIN,
    TIME,
    BoundSide,
    Emit,
    RowsOfBranch,
    Send,
    StepFacts,
    Tally,
)
from penstock.operators.schema_evolution import Evolution, evolve
from penstock.operators.whole_rows import WholeRows, WholeRowsStep
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH, conform

__all__ = ["KEPT", "OWN", "SIDES", "JoinedRows", "JoinedSide", "refuse_shared_columns", "refuse_taken_columns"]

KEPT = pa.schema(
    [
        ("_side", pa.string()),
        ("_event_time", pa.timestamp("us", tz="UTC")),
        ("_batch", pa.int64()),
        ("_number", pa.int64()),
    ]
)
OWN = frozenset({GROUP, HASH, EXPIRES, DELETED, "_deadline", "_state_partition", *KEPT.names})
"""Columns that rows of state have beside those of the input, in segments and in the tables of data checkpoints."""
_LEAST = -(2**63)


def refuse_taken_columns(side: BoundSide, columns: pa.Schema, what: str, also: Collection[str] = ()) -> None:
    """Raise JobError for a column that the state takes for itself; `what` is the join in a word.

    `also` are columns that a join takes beside OWN.
    """
    if unfit := next((name for name in columns.names if name.lower() in {*OWN, *also}), None):
        raise JobError(
            f"an input of {what} {side.name!r} has a column {unfit!r}, a name that Penstock uses for itself; rename it"
        )


def refuse_shared_columns(step: JoinedRows, what: str) -> None:
    """Raise JobError for a column that both inputs have and that is no key; `what` is the join in a word."""
    left, right = ({name.lower(): name for name in step.columns(side).names} for side in (0, 1))
    if twice := next((name for lower, name in right.items() if lower in left), None):
        raise JobError(
            f"both inputs of {what} {step.name!r} have a column {twice!r}; rename it in one of them before the join, "
            f"as in select('{', '.join(step.keys.names)}', '{twice} AS other_{twice}')"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedSide(WholeRows):
    """Map side of one input: late rows are counted and dropped, and rows with a null key where they match nothing.

    `keeps_null_keys`: whether rows with a null key are sent too, because the join emits rows without a match.
    """

    side: str
    keeps_null_keys: bool = False

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Yield the rows that may match."""
        times = integers(rows.table, TIME)
        late: Bools = times < (_LEAST if facts.late is None else facts.late)
        lacking = np.zeros(len(times), dtype=np.bool_)
        for column in () if self.keeps_null_keys else rows.keys.values():
            lacking |= rows.table[column].is_null().to_numpy()
        dropped, lates = late | lacking, int(late.sum())
        counts = {"rows": int(dropped.sum()), "late": lates, f"late_{self.side}": lates}
        yield Tally({**counts, "null_keys": counts["rows"] - lates})
        yield from WholeRows.prepare(self, rows.only(~dropped) if counts["rows"] else rows, facts)


class JoinedRows(WholeRowsStep):
    """The columns of a join of two inputs: of its output, of its state, and of the table that shows that."""

    __slots__ = ()

    name: str
    inputs: tuple[WholeRows, ...]

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""
        return self.inputs[0].keys

    def columns(self, side: int) -> pa.Schema:
        """Return the columns of an input that are no keys."""
        return pa.schema([field for field in self.inputs[side].visible if field.name not in self.keys.names])

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the output: keys, then the columns of the left and of the right input."""
        return {MAIN_OUTLET: pa.schema([*self.keys, *self.columns(0), *self.columns(1)])}

    @property
    def key_words(self) -> str:
        """Return the keys and their types in words."""
        return ", ".join(f"{field.name} {field.type}" for field in self.keys)

    def stored(self, side: int) -> pa.Schema:
        """Return the columns of a row of an input in the state."""
        return pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys, *KEPT, *self.columns(side)])

    def stored_rows(
        self, side: int, rows: pa.Table, ids: Ints, groups: Ints, batch: int, also: Mapping[str, pa.Array] | None = None
    ) -> pa.Table:
        """Return rows of a batch as the state keeps them.

        Args:
            side: The input.
            rows: Its rows in order of arrival, as `WholeRows.received` returns them.
            ids: For each row the number of its key.
            groups: For each row its group.
            batch: The batch.
            also: Columns that the join stores beside these.
        """
        n = rows.num_rows
        hidden = {
            GROUP: pa.array(groups),
            HASH: rows[HASHED],
            **dict(zip(self.keys.names, self.inputs[side].key_table(rows).columns, strict=True)),
            "_side": pa.repeat(pa.scalar(SIDES[side]), n),
            "_event_time": rows[TIME].cast(KEPT.field("_event_time").type),
            "_batch": pa.array(np.full(n, batch, dtype=np.int64)),
            "_number": pa.array(number_in_key(ids)),
            **(also or {}),
        }
        schema = self.stored(side)
        return pa.table([hidden[name] if name in hidden else rows[name] for name in schema.names], schema=schema)

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, `_side`, `_event_time`, the place in the order of arrival, and the columns of both inputs."""
        return {MAIN: pa.schema([*self.keys, *KEPT, *self.columns(0), *self.columns(1)])}

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return the rows; the columns of the other input are null."""
        return conform(rows, self.tables[MAIN])

    def sides_of(self, rows: pa.Table) -> Sequence[pa.Table]:
        """Return the rows of each input among those that state is rebuilt from.

        Raises:
            StateError: A row does not say its own place, or has a side that there is not.
        """
        for name in KEPT.names:
            if none := rows[name].null_count:
                raise StateError(f"the state given to step {self.name!r} has {none:,} rows without {name}")
        strange = rows.filter(pc.invert(pc.is_in(rows["_side"], pa.array(SIDES))))
        if strange.num_rows:
            side = strange["_side"][0].as_py()
            raise StateError(f"the state given to step {self.name!r} has rows with _side {side!r}, not left or right")
        return [rows.filter(pc.equal(rows["_side"], side)) for side in SIDES]

    def evolved_rows(self, stored: pa.Schema, side: int) -> Evolution:
        """Return how stored rows of an input differ from those that the step keeps."""
        own, columns = {*OWN, *self.keys.names}, self.columns(side)
        return evolve(self.keys, self.keys, pa.schema([f for f in stored if f.name not in own]), columns)
