"""Send the rows of an input whole, and put them in order of arrival after it (SEMANTICS 1.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.operators.protocol import HASHED, TIME, BoundSide, Emit, RowsOfBranch, Send, StateView, StepFacts, Tally
from penstock.sources.base import PARTITION, POSITION
from penstock.state.reader import Adapters
from penstock.time.arrival import ARRIVAL, arrival_order, described, of_source, split

__all__ = ["WholeRows", "WholeRowsStep"]

_PLACE = "_penstock_place"
"""int32: the place of a row's port among all, the first part of the order of arrival (SEMANTICS 1.6)."""


class WholeRowsStep:
    """What steps after the shuffle have in common whose inputs are sent whole: nothing is said of most (see `Step`).

    Rows of their state say by their columns what they are, so nothing that was stored has to be adapted.
    """

    __slots__ = ()

    @property
    def explained(self) -> Mapping[str, str]:
        """Return nothing."""
        return {}

    @property
    def described(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    @property
    def may_lack(self) -> frozenset[str]:
        """Return nothing."""
        return frozenset()

    def adapters(self, facts: Mapping[str, Any]) -> Adapters:
        """Return nothing: a column is found by its name, and one that is new is null."""
        return Adapters()

    def adapted(self, table: str, layout: str) -> Callable[[pa.Table], pa.Table]:
        """Return rows as they are."""
        return lambda rows: rows

    def lost(self, state: StateView) -> tuple[str, ...]:
        """Return nothing: the step reads all that it wrote."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRows:
    """Map side of an input that is sent row by row: the columns that the user sees, and the key columns.

    Subclasses drop rows before.

    `chained`: whether ARRIVAL gives their order, because output of another step is among them. If not, and one row may
    come along several of `ways`, its position is written as position * ways + way.
    """

    visible: pa.Schema
    keys: pa.Schema
    chained: bool = False
    ways: int = 1
    renamed: frozenset[str] = frozenset()
    """The keys whose column has another name in this input than in the first."""

    @classmethod
    def of(cls, side: BoundSide, /, **own: Any) -> Self:
        """Return the map side of an input whose spec reads `rows`; `own` are the fields of a subclass."""
        assert side.visible is not None
        renamed = frozenset(key for key, column in zip(side.keys.names, side.columns, strict=True) if key != column)
        return cls(visible=side.visible, keys=side.keys, chained=side.chained, ways=side.ways, renamed=renamed, **own)

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return none."""
        return {}

    def differs(self, other: WholeRows) -> str | None:
        """Return that the columns are others."""
        return None if self == other else "other columns"

    def key(self, name: str) -> str:
        """Return the column by which a key is compared: its own, but for floats, of which some are made alike."""
        other = name in self.renamed or pa.types.is_floating(self.keys.field(name).type)
        return f"_penstock_key_{name}" if other else name

    @property
    def sent(self) -> pa.Schema:
        """Return the columns that travel: those of the user, place, hash, and the keys that are compared otherwise."""
        of_source = [(PARTITION, pa.int32()), (POSITION, pa.int64()), (_PLACE, pa.int32())]
        hidden = [(TIME, pa.int64()), *([(ARRIVAL, pa.binary())] if self.chained else of_source)]
        keys = [pa.field(self.key(field.name), field.type) for field in self.keys if self.key(field.name) != field.name]
        return pa.schema(
            [*self.visible, *(pa.field(*column) for column in hidden), pa.field(HASHED, pa.int64()), *keys]
        )

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Yield the rows as they are."""
        table = rows.table
        n = table.num_rows
        yield Tally({"rows": n})
        if not n:
            return
        sent = table.select([*rows.visible, TIME])
        if self.chained:
            sent = sent.append_column(ARRIVAL, rows.arrivals())
        else:
            sent = sent.append_column(PARTITION, table[PARTITION]).append_column(POSITION, rows.positions())
            sent = sent.append_column(_PLACE, pa.repeat(pa.scalar(rows.place, pa.int32()), n))
        sent = sent.append_column(HASHED, table[rows.hash_column])
        for name, column in rows.keys.items():
            if self.key(name) != name:  # else it is among the columns that the user sees
                sent = sent.append_column(self.key(name), table[column])
        yield Send(sent)

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the rows of a batch in order of arrival (SEMANTICS 1.6)."""
        rows = pa.concat_tables([table.cast(self.sent) for table in tables]) if tables else self.sent.empty_table()
        if self.chained:
            order = arrival_order(rows[ARRIVAL])
        else:
            order = pa.array(np.lexsort([rows[name].to_numpy() for name in (POSITION, PARTITION, _PLACE)]))
        return rows.take(order).combine_chunks()

    def key_table(self, rows: pa.Table) -> pa.Table:
        """Return the key columns of such rows, as they are compared."""
        return pa.table([rows[self.key(name)] for name in self.keys.names], schema=self.keys)

    def arrivals(self, rows: pa.Table) -> pa.Array:
        """Return where such rows stand."""
        if self.chained:
            return rows[ARRIVAL].combine_chunks()
        places, partitions, positions = (rows[name].to_numpy() for name in (_PLACE, PARTITION, POSITION))
        keys = of_source(places, partitions, positions // self.ways)
        return keys if self.ways == 1 else split(keys, positions % self.ways)

    def described(self, rows: pa.Table, place: int) -> str:
        """Return in words where a row of such came from."""
        return described(self.arrivals(rows.slice(place, 1))[0].as_py())
