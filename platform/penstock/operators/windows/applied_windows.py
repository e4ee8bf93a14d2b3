"""Call a function of the user's with each window that is due: its rows in the order of arrival (SEMANTICS 3).

The state keeps the rows of a window as the aggregate ROWS does. So lateness, revisions, merging and rescaling are those
of any other aggregate, and the function is called where aggregates would be emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import JobError
from penstock.graph.aggregates import Aggregate, AggregateKind
from penstock.graph.specs.time_windows import KEPT_ROWS
from penstock.graph.window_functions import WindowFunction, WindowView
from penstock.graph.windows import PANE, REVISION
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.columns import column_array
from penstock.operators.functions.python_values import PIECE, key_values
from penstock.operators.functions.window_calls import WindowCalls, output_schema
from penstock.operators.protocol import BoundSide, Emit, StepFacts
from penstock.operators.windows.panes import PANE_FIELDS
from penstock.operators.windows.window_rows import WINDOW_END, WINDOW_START, closed_windows, standing_windows
from penstock.state.key_state import as_datetime
from penstock.state.keys import Bools

__all__ = ["AppliedFunction", "emitting", "plan_of"]


class Emits(Protocol):
    """Turns windows into output; `where` is as for `closed_windows`."""

    def __call__(self, windows: pa.Table, where: Bools | None = None, /) -> Iterator[Emit]:
        """Yield the output of windows."""


def plan_of(aggregates: Mapping[str, Aggregate], side: BoundSide) -> AggregatePlan:
    """Return the plan of a window's aggregates over an input; raises BadExpression where a type has no such one."""
    types: dict[str, pa.DataType | None] = {}
    for name, aggregate in aggregates.items():
        if aggregate.kind is AggregateKind.ROWS:
            assert side.visible is not None
            types[name] = pa.struct([*side.visible])
        else:
            types[name] = None if aggregate.expression is None else side.inputs[aggregate.expression]
    return AggregatePlan.build(aggregates, types)


@dataclass(frozen=True, slots=True)
class AppliedFunction:
    """A function over the windows of a step; `output` are its columns, and with panes those of the pane."""

    step: str
    fn: Any
    returned: pa.Schema
    output: pa.Schema

    @classmethod
    def of(cls, function: WindowFunction | None, step: str, *, panes: bool) -> Self | None:
        """Return the function that a spec names, None where it names none.

        Raises:
            BadExpression: `output` is no DDL.
            JobError: A column has the name of one that a pane has.
        """
        if function is None:
            return None
        returned = output_schema(function, step)
        more = PANE_FIELDS if panes else ()
        if taken := next((name for name in returned.names if panes and name.lower() in (PANE, REVISION)), None):
            raise JobError(f"output= of window {step!r} has a column {taken!r}, which each of its panes gets")
        return cls(step, function.fn, returned, pa.schema([*returned, *more]))

    def emitted(
        self, windows: pa.Table, keys: pa.Schema, calls: WindowCalls, *, at_least: int | None, where: Bools | None
    ) -> Iterator[Emit]:
        """Yield what the function makes of windows, which have keys, bounds, a list of rows, and the pane's columns.

        Each row has the event time and the place in the order of arrival that its window has.
        """
        for at in range(0, windows.num_rows, PIECE):
            piece = windows.slice(at, PIECE).combine_chunks()
            made = [calls.call(key, view) for key, view in _views(piece, keys)]
            counts = np.array([table.num_rows for table in made], dtype=np.int64)
            if not counts.sum():
                continue
            rows = pa.concat_tables(made).combine_chunks()
            places = np.repeat(np.arange(len(made)), counts)
            of_window = pa.array(places)
            for field in self.output:
                if field.name not in self.returned.names:
                    rows = rows.append_column(field, piece[field.name].take(of_window))
            stands = piece.select([*keys.names, WINDOW_END]).take(of_window)
            of_rows = None if where is None else where[at : at + PIECE][places]
            yield standing_windows(rows, stands, keys, at_least=at_least, where=of_rows)


@contextmanager
def emitting(
    applied: AppliedFunction | None, keys: pa.Schema, facts: StepFacts, *, at_least: int | None = None
) -> Iterator[Emits]:
    """Yield what turns windows into output: as they are, or by a function, which is open inside the block.

    `at_least` is the least event time, as for `closed_windows`.
    """
    if applied is None:
        yield lambda windows, where=None: iter((closed_windows(windows, keys, at_least=at_least, where=where),))
        return
    calls = WindowCalls(applied.step, applied.fn, applied.returned, facts)
    with calls.opened():
        yield lambda windows, where=None: applied.emitted(windows, keys, calls, at_least=at_least, where=where)


def _views(windows: pa.Table, keys: pa.Schema) -> Iterator[tuple[Any, WindowView]]:
    """Yield the key and the view of each window."""
    lists = column_array(windows, KEPT_ROWS)
    rows = pa.Table.from_struct_array(pc.list_flatten(lists))
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    names = key_values(windows.select(keys.names), windows.num_rows)
    starts, ends = (column_array(windows, name).cast(pa.int64()).to_pylist() for name in (WINDOW_START, WINDOW_END))
    places = (np.cumsum(lengths) - lengths).tolist()
    for key, start, end, at, length in zip(names, starts, ends, places, lengths.tolist(), strict=True):
        view = WindowView(start=as_datetime(start), end=as_datetime(end), current=rows.slice(at, length))
        yield key, view
