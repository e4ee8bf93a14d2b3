"""Compare the sessions that a step keeps with those that its state was written for (schema evolution on restart)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.graph.durations import Duration
from penstock.graph.policies import Accumulation
from penstock.graph.windows import REVISION
from penstock.operators.schema_evolution import Evolution
from penstock.operators.sessions.session_layout import BOUNDS, CLOSED, STANDING, SessionLayout
from penstock.operators.windows.partials import NEW_ROWS
from penstock.operators.windows.stored_partials import GENERATION, StoredPartials
from penstock.operators.windows.window_evolution import changed_aggregates, kept_now
from penstock.state.row_layout import DELETED

__all__ = ["changed_sessions", "layout_text", "reads", "reads_table"]

_BESIDE = (*BOUNDS.names, REVISION, CLOSED, NEW_ROWS, STANDING, DELETED)

_LAYOUT = re.compile(
    r"\[(.*?)\] (.*) in sessions(?: until (\d+) us after their end)?(, discarding)?(, early panes)?", re.DOTALL
)


def layout_text(layout: SessionLayout) -> str:
    """Return in words what is kept; the gap is no part of it, and may change."""
    keys = ", ".join(f"{field.name} {field.type}" for field in layout.keys)
    kept = ", ".join(f"{aggregate} {result}" for aggregate, result in kept_now(layout.plan))
    until = f" until {layout.lateness} us after their end" if layout.lateness else ""
    panes = ", discarding" if layout.accumulation is Accumulation.DISCARDING else ""
    early = ", early panes" if layout.early else ""
    return f"[{keys}] {kept} in sessions{until}{panes}{early}"


def reads(layout: SessionLayout, facts: Mapping[str, Any], was: str | None) -> StoredPartials:
    """Return what reads state with these facts, which was written as `was` says; None where nothing was."""
    match = None if was is None else _LAYOUT.fullmatch(was)
    known = {GENERATION: 0, **facts}
    return StoredPartials.of_state(layout, known, None if match is None else match[2], {}, beside=_BESIDE)


def reads_table(layout: SessionLayout, names: Iterable[str]) -> StoredPartials:
    """Return what reads a table of its own with these columns."""
    return StoredPartials.of_table(layout, names, {}, beside=_BESIDE)


def changed_sessions(was: str, now: str, read: StoredPartials, stored: pa.Schema | None) -> Evolution:
    """Return how two layouts differ; `stored` are the columns that were written, None where there are no rows.

    Keys are to be the same. Aggregates may be others: those that are new count from now on. The allowed lateness may be
    another: a session that is forgotten is not revised, because rows that join no session are late.
    """
    if was == now:
        return Evolution()
    old, new = _LAYOUT.fullmatch(was), _LAYOUT.fullmatch(now)
    if old is None or new is None:
        return Evolution(refused=(f"it keeps {now}, and its state is {was}",))
    refused = [f"its keys were [{old[1]}] and are [{new[1]}]"] if old[1] != new[1] else []
    before, after = Duration(int(old[3] or 0)), Duration(int(new[3] or 0))
    if bool(before.micros) != bool(after.micros):
        refused.append(f"its allowed lateness was {before} and is {after}")
    if old[4] != new[4]:
        refused.append(f"its panes were {_panes(old)} and are {_panes(new)}")
    if old[5] != new[5]:
        refused.append(f"it had {'' if old[5] else 'no '}early panes and has {'some' if new[5] else 'none'}")
    of_aggregates = changed_aggregates(old[2], read, stored)
    if refused or of_aggregates.refused:
        return Evolution(refused=(*refused, *of_aggregates.refused))
    other = [f"sessions are forgotten {after} after their end, not {before}"] if before != after else []
    return Evolution(accepted=(*other, *of_aggregates.accepted))


def _panes(layout: re.Match[str]) -> str:
    panes = Accumulation.DISCARDING if layout[4] else Accumulation.ACCUMULATING
    return str(panes.value)
