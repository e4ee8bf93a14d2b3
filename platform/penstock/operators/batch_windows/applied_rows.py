"""Call a function of the user's with the rows of each key and window of batch time (SEMANTICS 4.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from penstock.operators.batch_windows.batch_sides import RowSide
from penstock.operators.batch_windows.window_forms import PLACE, Made, Whole, WholeForm, entry
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.python_values import PIECE, key_values
from penstock.operators.functions.window_calls import WindowCalls, WindowView
from penstock.operators.grouping import group_rows
from penstock.operators.protocol import HASHED, StepFacts
from penstock.state.key_state import as_datetime
from penstock.state.row_layout import GROUP, HASH

__all__ = ["AppliedForm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedForm(WholeForm):
    """What `fn(key, view)` returns for each key of a window; `returned` are the columns of that.

    `calls` is there inside of `opened`.
    """

    side: RowSide
    step: str
    fn: Any
    returned: pa.Schema
    calls: WindowCalls | None = None

    bounded: ClassVar[bool] = False

    @property
    def stored(self) -> pa.Schema:
        """Return the user's columns, keys that are compared otherwise than the user sees them, and the place."""
        return pa.schema([*self.side.visible, *self._compared.values(), (PLACE, pa.int64())])

    @property
    def made(self) -> pa.Schema:
        """Return what the function returns."""
        return self.returned

    @property
    def leading(self) -> int:
        """Return none: there are no bounds."""
        return 0

    @property
    def _compared(self) -> dict[str, pa.Field]:
        """Return by name the keys that have a column of their own."""
        named = {field.name: field.with_name(self.side.key(field.name)) for field in self.side.keys}
        return {name: field for name, field in named.items() if name != field.name}

    @contextmanager
    def opened(self, facts: StepFacts) -> Iterator[Self]:
        """Yield the same, with the function open."""
        calls = WindowCalls(self.step, self.fn, self.returned, facts)
        with calls.opened():
            yield replace(self, calls=calls)

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the rows of a batch in order of arrival."""
        rows = self.side.received(tables)
        return entry(rows[HASHED], rows.select([n for n in self.stored.names if n != PLACE]), placed=True)

    def of(self, window: Whole) -> Made:
        """Return what the function makes of each key, keys in order of their hashes.

        Raises:
            UserFunctionError: The function raises.
            WrongWindowOutput: It returns what does not fit the output.
            UnfitValue: A key is a value that Python cannot hold.
        """
        assert self.calls is not None
        rows = window.rows
        grouping = group_rows(
            [column_array(rows, self.side.key(name)) for name in self.side.keys.names], integers(rows, HASH)
        )
        order = np.lexsort([integers(rows, PLACE), integers(rows, GROUP), grouping.ids])
        ends = np.searchsorted(grouping.ids[order], np.arange(grouping.groups), side="right").tolist()
        shown = rows.select(self.side.visible.names).take(pa.array(order)).combine_chunks()
        heads = self.side.key_table(rows.take(pa.array(grouping.first)))
        start, end = as_datetime(window.start), as_datetime(window.end)
        tables: list[pa.Table] = []
        at = 0
        for piece in range(0, grouping.groups, PIECE):
            keys = key_values(heads.slice(piece, PIECE), min(PIECE, grouping.groups - piece))
            for key, until in zip(keys, ends[piece : piece + PIECE], strict=True):
                view = WindowView(start=start, end=end, current=shown.slice(at, until - at))
                tables.append(self.calls.call(key, view))
                at = until
        made = pa.concat_tables([self.returned.empty_table(), *tables]).combine_chunks()
        hashes = integers(rows, HASH)[grouping.first]
        return Made(made, np.repeat(hashes, [table.num_rows for table in tables]))
