"""Merge the rows of a batch into panes of their keys, and panes into windows (SEMANTICS 5.1). Pure.

Rows of a key are numbered from 0. A pane has the rows of `unit` numbers, and the windows that end after each `slide`
rows have whole panes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd

import numpy as np
import pyarrow as pa

from penstock.operators.aggregates import AggregatePlan, Rows
from penstock.operators.aggregates.cells import as_arrow
from penstock.operators.protocol import StepFacts
from penstock.operators.tuple_windows.evaluated import MOST_MEMBERS
from penstock.operators.tuple_windows.rounds import outside_counts
from penstock.state.keys import Bools, Ints

__all__ = ["HeldPanes", "PaneBatch", "PaneWindows", "panes_of"]


@dataclass(frozen=True, slots=True)
class HeldPanes:
    """The panes that keys hold: how many each key has, and their partials, key by key, as a table."""

    sizes: Ints
    partials: pa.Table | None


@dataclass(frozen=True, slots=True)
class PaneWindows:
    """Windows, in the order of the rows that completed them: key, that row, and the results."""

    keys: Ints
    rows: Ints
    results: list[pa.Array]


def panes_of(held: pa.Table, column: str, wanted: Bools) -> HeldPanes:
    """Return the panes of the keys that are wanted, from a column of lists of partials."""
    lists = held[column].combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.chunk(0) if lists.num_chunks else pa.array([], held.schema.field(column).type)
    sizes = np.zeros(len(wanted), dtype=np.int64)
    sizes[wanted] = lists.value_lengths().fill_null(0).to_numpy()[wanted]
    flat = lists.filter(pa.array(wanted)).flatten()
    if not len(flat):
        return HeldPanes(sizes, None)
    return HeldPanes(sizes, pa.Table.from_arrays(flat.flatten(), names=[f.name for f in flat.type]))


class PaneBatch:
    """The rows of a batch in one partition.

    `ids` is the key of each row, in order of arrival, and `counts` how many rows each key has had.
    """

    def __init__(
        self, plan: AggregatePlan, length: int, slide: int, *, ids: Ints, counts: Ints, held: HeldPanes
    ) -> None:
        self.plan, self.length, self.slide, self.unit = plan, length, slide, gcd(length, slide)
        self.counts, self.held = counts, held
        self.order = np.argsort(ids, kind="stable")
        self.ids = ids[self.order]
        self.added = np.bincount(ids, minlength=len(counts)).astype(np.int64)
        self.counts_after = counts + self.added
        self.row_starts = np.cumsum(self.added) - self.added
        self.fired = self.expired = self.in_no_window = 0
        self.time = 0

    def reduce(self, inputs: Mapping[str, pa.Array], facts: StepFacts) -> None:
        """Aggregate the rows, and merge them with the panes that the keys hold; `inputs` in order of arrival."""
        self.time = facts.time
        numbers = self.counts[self.ids] + np.arange(len(self.ids)) - self.row_starts[self.ids]
        self.in_no_window = int(outside_counts(numbers, self.length, self.slide).sum())
        panes = numbers // self.unit
        begins = np.ones(len(panes), dtype=np.bool_)
        begins[1:] = (panes[1:] != panes[:-1]) | (self.ids[1:] != self.ids[:-1])
        groups = np.cumsum(begins) - 1
        at = pa.array(self.order)
        none = np.zeros(len(self.ids), dtype=np.int64)
        rows = Rows(
            inputs={name: column.take(at) for name, column in inputs.items()},
            times=np.full(len(self.ids), facts.time, dtype=np.int64),
            order=(np.full(len(self.ids), facts.batch), none, none, self.order) if self.plan.needs_order else (),
        )
        firsts = np.flatnonzero(begins)
        new = self.plan.reduce(rows, groups, len(firsts))
        new_table = pa.Table.from_arrays(
            [as_arrow(new[field.name]).cast(field.type) for field in self.plan.fields],
            schema=pa.schema(self.plan.fields),
        )
        self._merge(new_table, self.ids[firsts], panes[firsts])

    def _merge(self, new: pa.Table, new_keys: Ints, new_panes: Ints) -> None:
        """Put the panes of each key after each other; the last that it held may be the first of the new ones."""
        held, sizes = self.held.sizes, np.bincount(new_keys, minlength=len(self.counts))
        shared = (held > 0) & (sizes > 0) & (self.counts % self.unit > 0)
        self.sizes = held + sizes - shared
        self.starts = np.cumsum(self.sizes) - self.sizes
        held_keys, held_at = _within(held)
        _, new_at = _within(sizes)
        groups = np.concatenate([self.starts[held_keys] + held_at, (self.starts + held - shared)[new_keys] + new_at])
        self.panes = np.empty(int(self.sizes.sum()), dtype=np.int64)
        first_held = (self.counts - 1) // self.unit - held + 1
        self.panes[groups] = np.concatenate([first_held[held_keys] + held_at, new_panes])
        old = () if self.held.partials is None else (self.held.partials.cast(new.schema),)
        every = pa.concat_tables([*old, new]).combine_chunks()
        merged = self.plan.merge(self.plan.partials_of(every), groups, len(self.panes))
        self.partials = pa.Table.from_arrays(
            [as_arrow(merged[f.name]).cast(f.type) for f in self.plan.fields], schema=pa.schema(self.plan.fields)
        )

    def windows(self) -> Iterator[PaneWindows]:
        """Yield the windows that the rows complete, by blocks, in the order of these rows."""
        first = self.counts // self.slide + 1
        made = self.counts_after // self.slide - first + 1
        keys = np.repeat(np.arange(len(made)), made)
        ends = (first[keys] + np.arange(len(keys)) - np.repeat(np.cumsum(made) - made, made)) * self.slide
        rows = self.order[self.row_starts[keys] + ends - 1 - self.counts[keys]]
        self.fired = len(keys)
        left, left_after = (
            np.maximum(had // self.slide * self.slide - self.length, 0) for had in (self.counts, self.counts_after)
        )
        self.expired = int((left_after - left).sum())
        order = np.argsort(rows)
        most = max(MOST_MEMBERS // (self.length // self.unit), 1)
        for at in range(0, len(order), most):
            block = order[at : at + most]
            yield PaneWindows(keys[block], rows[block], self._results(keys[block], ends[block]))

    def _results(self, keys: Ints, ends: Ints) -> list[pa.Array]:
        low, high = np.maximum(ends - self.length, 0) // self.unit, ends // self.unit
        sizes = high - low
        place = self.starts[keys] + low - self.panes[self.starts[keys]]
        windows = np.repeat(np.arange(len(keys)), sizes)
        members = np.repeat(place, sizes) + np.arange(len(windows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        taken = self.plan.partials_of(self.partials.take(pa.array(members)))
        return self.plan.results(self.plan.merge(taken, windows, len(keys)))

    def kept_panes(self, kind: pa.DataType) -> pa.Array:
        """Return for each key the panes that later windows have, as lists of partials."""
        next_end = (self.counts_after // self.slide + 1) * self.slide
        needed = np.maximum(next_end - self.length, 0) // self.unit
        keys, _ = _within(self.sizes)
        kept = self.panes >= needed[keys]
        sizes = np.bincount(keys[kept], minlength=len(self.counts))
        offsets = pa.array(np.r_[0, np.cumsum(sizes)].astype(np.int32))
        partials = self.partials.filter(pa.array(kept)).combine_chunks()
        columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in partials.columns]
        structs = pa.StructArray.from_arrays(columns, fields=list(self.plan.fields))
        return pa.ListArray.from_arrays(offsets, structs).cast(kind)


def _within(sizes: Ints) -> tuple[Ints, Ints]:
    """Return for each item of groups of these sizes its group, and its number in it."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return groups, np.arange(len(groups)) - (np.cumsum(sizes) - sizes)[groups]
