"""Compare the sessions that a step keeps with those that its state was written for (schema evolution on restart)."""

from __future__ import annotations

import re

from penstock.graph.durations import Duration
from penstock.graph.policies import Accumulation
from penstock.operators.schema_evolution import Evolution
from penstock.operators.sessions.session_layout import SessionLayout
from penstock.operators.windows.window_evolution import kept_now

__all__ = ["changed_sessions", "layout_text"]

_LAYOUT = re.compile(r"\[(.*?)\] (.*) in sessions(?: until (\d+) us after their end)?(, discarding)?", re.DOTALL)


def layout_text(layout: SessionLayout) -> str:
    """Return in words what is kept; the gap is no part of it, and may change."""
    keys = ", ".join(f"{field.name} {field.type}" for field in layout.keys)
    kept = ", ".join(f"{aggregate} {result}" for aggregate, result in kept_now(layout.plan))
    until = f" until {layout.lateness} us after their end" if layout.has_panes else ""
    panes = ", discarding" if layout.accumulation is Accumulation.DISCARDING else ""
    return f"[{keys}] {kept} in sessions{until}{panes}"


def changed_sessions(was: str, now: str) -> Evolution:
    """Return how two layouts differ.

    Keys and aggregates are to be the same. The allowed lateness may be another: a session that is forgotten is not
    revised, because rows that join no session are late.
    """
    if was == now:
        return Evolution()
    old, new = _LAYOUT.fullmatch(was), _LAYOUT.fullmatch(now)
    if old is None or new is None or old.group(1, 2) != new.group(1, 2):
        return Evolution(refused=(f"it keeps {now}, and its state is {was}",))
    before, after = Duration(int(old[3] or 0)), Duration(int(new[3] or 0))
    if bool(before.micros) != bool(after.micros):
        return Evolution(refused=(f"its allowed lateness was {before} and is {after}",))
    if old[4] != new[4]:
        return Evolution(refused=(f"its panes were {_panes(old)} and are {_panes(new)}",))
    return Evolution(accepted=(f"sessions are forgotten {after} after their end, not {before}",))


def _panes(layout: re.Match[str]) -> str:
    panes = Accumulation.DISCARDING if layout[4] else Accumulation.ACCUMULATING
    return str(panes.value)
