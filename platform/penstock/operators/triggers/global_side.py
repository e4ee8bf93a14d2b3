"""Send what global windows read of rows, and rows whole where they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.operators.columns import column_array
from penstock.operators.protocol import BoundSide, Emit, RowsOfBranch, Send, StepFacts, Tally
from penstock.operators.whole_rows import WholeRows

__all__ = ["GlobalSide"]

_SENT = "_penstock_input_"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalSide(WholeRows):
    """Map side: what trigger, evictor and aggregates read of the rows, and the rows whole where the spec reads them."""

    inputs: tuple[tuple[str, pa.DataType], ...]

    @classmethod
    def reading(cls, side: BoundSide, expressions: Sequence[str]) -> GlobalSide:
        """Return the map side of an input of which these expressions are read."""
        inputs = tuple((sql, side.inputs[sql]) for sql in expressions)
        if side.visible is not None:
            return cls.of(side, inputs=inputs)
        # The keys are not among the columns of the user then: they travel beside them, as renamed ones do.
        renamed = frozenset(side.keys.names)
        none = pa.schema([])
        return cls(visible=none, keys=side.keys, chained=side.chained, ways=side.ways, renamed=renamed, inputs=inputs)

    @property
    def sent(self) -> pa.Schema:
        """Return the columns that travel: those of rows that are sent whole, and the inputs."""
        own = [pa.field(f"{_SENT}{number}", kind) for number, (_, kind) in enumerate(self.inputs)]
        return pa.schema([*WholeRows.sent.fget(self), *own])  # type: ignore[attr-defined]

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Yield the rows and their inputs."""
        # Another step that reads the same rows may need more of them.
        for piece in WholeRows.prepare(self, replace(rows, visible=self.visible.names), facts):
            if isinstance(piece, Send):
                table = piece.rows
                for number, (sql, _) in enumerate(self.inputs):
                    table = table.append_column(f"{_SENT}{number}", rows.table[rows.inputs[sql]])
                yield Send(table)
            else:
                yield piece

    def input_of(self, rows: pa.Table, expression: str) -> pa.Array:
        """Return the values of an expression for rows that were received."""
        number = [sql for sql, _ in self.inputs].index(expression)
        return column_array(rows, f"{_SENT}{number}")
