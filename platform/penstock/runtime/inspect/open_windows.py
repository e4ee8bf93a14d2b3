"""Find what waits for the watermark in the state of steps: the largest open windows, and the rows that others hold.

Read from the checkpoint alone, as `state_reader` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from penstock.checkpoint.log.entries import END_OF_TIME, Commit
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.graph.specs.join import SIDES
from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import ROWS
from penstock.operators.columns import integers
from penstock.operators.join_state import MATCHED, WAITING
from penstock.operators.protocol import LAYOUT
from penstock.operators.sessions.session_layout import BOUNDS, CLOSED, SESSIONS, STANDING, micros_of
from penstock.operators.windows.slice_state import PANES, SLICES
from penstock.operators.windows.slices import due_runs, start_of
from penstock.operators.windows.window_evolution import window_in
from penstock.runtime.inspect.state_reader import readers, with_values
from penstock.state.full_compaction import live_rows
from penstock.state.keys import Ints
from penstock.state.parts import PARTS, Merge, Part
from penstock.state.reader import StateReader
from penstock.state.row_layout import GROUP

__all__ = ["HeldRows", "OpenWindow", "StepWaits", "held_rows", "largest_windows", "open_windows", "what_waits"]

_MOST_ENDS = 1_000_000
_WINDOWS = frozenset({SLICES, PANES, SESSIONS})
"""Parts of the state that only steps with windows have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindow:
    """A window that has not closed: its step, its bounds in microseconds, and the rows that it has so far.

    A session is of one key, any other window of all.
    """

    step: str
    start: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """The rows that a step without windows, such as a join, holds in its files; superseded ones count.

    `waiting` counts the rows among them that an outer join emits unless a match comes, and is None where there are too
    many to look at.
    """

    step: str
    rows: int
    waiting: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWaits:
    """What waits in the state of one step: its largest open windows, or without windows the rows that it holds.

    `windows` is None where there are too many to look at. `trouble` says why the state cannot be read.
    """

    step: str
    windows: tuple[OpenWindow, ...] | None
    held: HeldRows | None = None
    trouble: str | None = None


def open_windows(root: CheckpointFolder, commit: Commit, most: int) -> list[OpenWindow]:
    """Return the largest open windows of all window steps, `most` of each; `root` is the folder of the job's state.

    Of windows with early panes that are discarding, only the rows since the newest pane are known.
    Raises what reading state raises.
    """
    return [
        window for step in sorted(commit.state) for window in _open_of(step, _opened(root, commit, step), commit, most)
    ]


def what_waits(root: CheckpointFolder, commit: Commit, step: str, *, most: int, entries: int) -> StepWaits:
    """Return what waits in the state of a step, for those who look often.

    Args:
        root: The folder of the job's state.
        commit: The Commit that names the state.
        step: The step.
        most: How many open windows are listed.
        entries: How many rows may have to be read. Where there are more, neither windows nor waiting rows are counted.

    Raises what reading state raises.
    """
    opened = _opened(root, commit, step)
    if not _has_windows(opened):
        return StepWaits(step=step, windows=(), held=_held(step, opened, entries))
    if sum(run.rows for reader in opened for part in _WINDOWS for run in reader.manifest.chain(part)) > entries:
        return StepWaits(step=step, windows=None)
    return StepWaits(step=step, windows=tuple(_open_of(step, opened, commit, most)))


def _opened(root: CheckpointFolder, commit: Commit, step: str) -> list[StateReader]:
    return [reader for reader, _ in readers(root, step, commit)]


def _has_windows(opened: Sequence[StateReader]) -> bool:
    return any(_WINDOWS & {*reader.manifest.chains} for reader in opened)


def _open_of(step: str, opened: Sequence[StateReader], commit: Commit, most: int) -> list[OpenWindow]:
    """Return the largest open windows of a step, given what reads its partitions."""
    slices: list[tuple[Ints, Ints]] = []
    values: list[tuple[Ints, Ints]] = []
    sessions: list[OpenWindow] = []
    window: TimeWindow | None = None
    for reader in opened:
        if SESSIONS in reader.manifest.chains:
            sessions = _largest([*sessions, *_open_sessions(step, reader, most)], most)
        named = window_in(str(reader.facts.get(LAYOUT, "")))
        if named is None:
            continue
        window = named
        slices += [(integers(table, GROUP), integers(table, ROWS)) for table in reader.scan(SLICES)]
        if with_values(reader.stored(PANES)):
            part = Part(name=PANES, identity=reader.manifest.keys, merge=Merge.LATEST)
            live = live_rows(reader, PANES, {PANES: part})
            values += [(integers(table, GROUP), integers(table, ROWS)) for table in live]
    closed_to = commit.watermarks_in.get(step, commit.watermarks_out.get(step))
    if window is not None and slices:
        starts, rows = (np.concatenate(column) for column in zip(*slices, strict=True))
        return sessions + largest_windows(step, window, starts, rows, closed_to, most)
    if window is not None and values:
        ends, rows = (np.concatenate(column) for column in zip(*values, strict=True))
        return sessions + _largest_values(step, window, ends, rows, closed_to, most)
    return sessions


def _largest_values(
    step: str, window: TimeWindow, ends: Ints, rows: Ints, closed_to: int | None, most: int
) -> list[OpenWindow]:
    """Return the same of windows that have values of their own, as the ends and rows of keys."""
    of_windows, place = np.unique(ends, return_inverse=True)
    held = np.bincount(place, rows, minlength=len(of_windows)).astype(np.int64)
    is_open = np.ones(len(of_windows), dtype=np.bool_) if closed_to is None else of_windows > closed_to
    of_windows, held = of_windows[is_open], held[is_open]
    largest = np.argsort(-held, kind="stable")[:most]
    starts = start_of(of_windows, window)
    return [OpenWindow(step=step, start=int(starts[i]), end=int(of_windows[i]), rows=int(held[i])) for i in largest]


def _open_sessions(step: str, reader: StateReader, most: int) -> list[OpenWindow]:
    """Return the open sessions of a partition with the most rows."""
    part = Part.read(SESSIONS, reader.facts[PARTS][SESSIONS], None)
    largest: list[OpenWindow] = []
    for rows in live_rows(reader, SESSIONS, {SESSIONS: part}):
        table = rows
        # Neither closed ones nor the panes that tables have of open ones.
        for mark in (name for name in (CLOSED, STANDING) if name in rows.column_names):
            table = table.filter(pc.invert(pc.fill_null(table[mark], fill_value=False)))
        table = table.combine_chunks()
        held, (starts, ends) = integers(table, ROWS), (micros_of(table, name) for name in BOUNDS.names)
        places = np.lexsort((starts, ends, -held))[:most]
        made = zip(*(column[places].tolist() for column in (starts, ends, held)), strict=True)
        windows = [OpenWindow(step=step, start=start, end=end, rows=count) for start, end, count in made]
        largest = _largest([*largest, *windows], most)
    return largest


def _largest(windows: list[OpenWindow], most: int) -> list[OpenWindow]:
    return sorted(windows, key=lambda window: (-window.rows, window.end, window.start))[:most]


def largest_windows(
    step: str, window: TimeWindow, starts: Ints, rows: Ints, closed_to: int | None, most: int
) -> list[OpenWindow]:
    """Return the windows with the most rows of those that end after `closed_to`, largest first.

    `starts` and `rows` are the starts of slices and the rows that each has, int64; a slice may be there several times.
    """
    live, place = np.unique(starts, return_inverse=True)
    sums = np.r_[0, np.cumsum(np.bincount(place, rows, minlength=len(live)).astype(np.int64))]
    ends = [
        np.arange(first, min(last, first + _MOST_ENDS * window.every) + 1, window.every)
        for first, last in due_runs(live, closed_to, END_OF_TIME, window)
    ]
    if not ends:
        return []
    of_windows = np.concatenate(ends)
    starts_of = start_of(of_windows, window)
    held = sums[np.searchsorted(live, of_windows)] - sums[np.searchsorted(live, starts_of)]
    largest = np.argsort(-held, kind="stable")[:most]
    return [OpenWindow(step=step, start=int(starts_of[i]), end=int(of_windows[i]), rows=int(held[i])) for i in largest]


def held_rows(root: CheckpointFolder, commit: Commit) -> list[HeldRows]:
    """Return what the other steps hold, those with the most rows first."""
    opened = ((step, _opened(root, commit, step)) for step in sorted(commit.state))
    held = [_held(step, readers_of) for step, readers_of in opened if not _has_windows(readers_of)]
    return sorted(held, key=lambda of: -of.rows)


def _held(step: str, opened: Sequence[StateReader], most: int | None = None) -> HeldRows:
    """Return what a step holds; rows that wait are counted where their files have `most` rows at most."""
    # A side without entries has no row that waits.
    sides = [(reader, SIDES[n]) for reader in opened for n, name in enumerate(WAITING) if reader.manifest.chain(name)]
    rows = sum(_shown(reader) for reader in opened)
    if most is not None and sum(run.rows for reader, side in sides for run in reader.manifest.chain(side)) > most:
        return HeldRows(step=step, rows=rows, waiting=None)
    return HeldRows(step=step, rows=rows, waiting=sum(_unmatched(reader, side) for reader, side in sides))


def _shown(reader: StateReader) -> int:
    """Return how many rows the files have of parts with a table; one without a table only repeats their keys."""
    shown = (name for name, part in reader.facts[PARTS].items() if part.get("table") is not None)
    return sum(run.rows for name in shown for run in reader.manifest.chain(name))


def _unmatched(reader: StateReader, side: str) -> int:
    """Return how many rows of an outer side have had no match; the newest of a row's versions says so."""
    part = Part.read(side, reader.facts[PARTS][side], None)
    tables = live_rows(reader, side, {side: part})
    return sum(table.num_rows - int(pc.sum(table[MATCHED], min_count=0).as_py()) for table in tables)
