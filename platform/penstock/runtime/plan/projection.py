"""Collect the columns that a branch hands to its Python stage, so that only those cross from Java."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.operators.columns import arrow_schema
from penstock.runtime.plan.branch_frame import BranchFrame, hash_of, normalised, quoted, refuse_functions
from penstock.runtime.tasks.specs import ROW_STATUS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["KEY", "Projection", "map_in_arrow", "unless_dropped"]

Batches = Iterator[pa.RecordBatch]

KEY = "_penstock_k"
"""How the names of key columns begin that are computed for the step."""


def map_in_arrow(frame: DataFrame, task: Callable[[Batches], Batches], schema: pa.Schema) -> DataFrame:
    """Run a function over the Arrow batches of each task, whatever the columns are named.

    pyspark selects the columns for Python by name as if the names were SQL, where a dot or a backtick means more.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    names = frame.columns
    if all(name.isidentifier() for name in names):
        return frame.mapInArrow(task, from_arrow_schema(schema))

    def renamed(batches: Batches) -> Batches:
        return task(batch.rename_columns(names) for batch in batches)

    plain = frame.toDF(*(f"c{number}" for number in range(len(names))))
    return plain.mapInArrow(renamed, from_arrow_schema(schema))


class Projection:
    """Collect the columns that the leaves of a branch need, each once."""

    def __init__(self, chain: BranchFrame) -> None:
        self.chain = chain
        self._columns: dict[str, Any] = {}
        """Name to what is computed; None for a column that the user sees."""
        self.hidden: list[str] = []
        """The columns that the user does not see."""

    def keep_visible(self) -> None:
        """Add every column that the user sees."""
        self._columns.update(dict.fromkeys(self.chain.visible))

    def add(self, name: str, column: Any, *, plain: str | None = None) -> str:
        """Add a column; where `plain` is the name of a visible one and nothing is computed (None), that is kept."""
        if column is None or (self._is_visible(plain) and not name.startswith(KEY)):
            assert plain is not None
            name, column = plain.strip("` "), None
        self._columns[name] = column
        return name

    def add_key(self, name: str, key: str) -> str:
        """Add a key column, and return the name of what is compared: one of floats under this other name."""
        return self.add(name, normalised(key, self.chain.types()[key]), plain=key)

    def add_hash(self, name: str, columns: Sequence[str]) -> str:
        """Add the hash of columns that were added."""
        return self.add(name, hash_of([self._column(c) for c in columns]))

    def add_inputs(self, names: Mapping[str, str]) -> Mapping[str, str]:
        """Add what aggregates read, each expression under its name, and return the column of each."""
        read = {sql: self.add(name, self.chain.alive(sql), plain=sql) for sql, name in names.items()}
        frame, _, _ = self.computed()
        refuse_functions(frame, names)
        return read

    def type_of(self, expression: str) -> pa.DataType:
        """Return the type of an expression over the branch's columns."""
        from pyspark.sql import functions as F

        if self._is_visible(expression):
            return self.schema((expression.strip("` "),)).field(0).type
        return arrow_schema(self.chain.frame.select(F.expr(expression).alias("c")).schema).field("c").type

    def schema(self, names: tuple[str, ...]) -> pa.Schema:
        """Return the types of columns of the branch."""
        from pyspark.sql.types import StructType

        # Not of the whole frame: what nothing reads may be of a type that Arrow lacks.
        return arrow_schema(StructType([self.chain.frame.schema[name] for name in names]))

    def hide(self, *names: str) -> None:
        """Add columns that the user does not see."""
        self.hidden += names

    def frame(self) -> DataFrame:
        """Return the frame of the columns that were added."""
        frame, _, _ = self.computed()
        # As texts: each is one call to Java, a column made in Python is several.
        return frame.selectExpr(*map(self._crossing, self._columns), *self.hidden)

    def computed(self) -> tuple[DataFrame, list[str], list[str]]:
        """Return the frame with what is computed, and of the columns that cross those untouched since the fork."""
        computed = {name: column for name, column in self._columns.items() if column is not None}
        frame = self.chain.frame.withColumns(computed) if computed else self.chain.frame
        untouched = [name for name, column in self._columns.items() if column is None and name in self.chain.untouched]
        return frame, untouched, [name for name in self._columns if name not in untouched]

    # --- inside ------------------------------------------------------------------------------
    def _crossing(self, name: str) -> str:
        """Return a column as it crosses into Python."""
        fates = [ROW_STATUS] if self.chain.filters else None
        return f"{unless_dropped(quoted(name), fates)} AS {quoted(name)}"

    def _column(self, name: str) -> Any:
        from pyspark.sql import functions as F

        computed = self._columns[name]
        return F.col(quoted(name)) if computed is None else computed

    def _is_visible(self, expression: str | None) -> bool:
        return expression is not None and expression.strip("` ") in self.chain.visible


def unless_dropped(column: str, fates: Iterable[str] | None) -> str:
    """Return a column of which nothing crosses for a row that a filter has dropped; None for no filter."""
    alive = " OR ".join(f"{fate} <= 0" for fate in fates or ())
    return f"CASE WHEN {alive} THEN {column} END" if alive else column
