"""Lay out the steps of a job as a picture: sources at the top, sinks at the bottom. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Flow", "Node", "flow_of"]

_MOST = 200
"""Steps that are drawn at most."""
_WIDE, _HIGH, _GAP, _FALL = 152, 44, 16, 34
_LETTERS = 20
_WORDS = {
    "withcolumns": "columns", "late": "late data", "function": "state function", "snapshot": "state of a step",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step: its `name`, `shown` as far as it fits, what it is, and the upper left corner of its box."""

    name: str
    shown: str
    kind: str
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The picture: its size, its boxes, the lines between them as paths of SVG, and the same in words."""

    width: int
    height: int
    nodes: tuple[Node, ...]
    lines: tuple[str, ...]
    says: str
    box: tuple[int, int] = (_WIDE, _HIGH)


def flow_of(steps: object) -> Flow | None:
    """Return the picture of what a driver's record says of its job, None where it says nothing that can be drawn."""
    if not isinstance(steps, list) or not 0 < len(steps) <= _MOST:
        return None
    if not all(isinstance(step, Mapping) and isinstance(step.get("reads"), list) for step in steps):
        return None
    reads = [[p for p in step["reads"] if isinstance(p, int) and 0 <= p < len(steps)] for step in steps]
    levels = _levels(reads)
    if levels is None:
        return None
    rows: dict[int, list[int]] = {}
    for place, level in enumerate(levels):
        rows.setdefault(level, []).append(place)
    widest = max(len(row) for row in rows.values())
    width = widest * (_WIDE + _GAP) - _GAP
    corners = {}
    for level, row in rows.items():
        left = (width - len(row) * (_WIDE + _GAP) + _GAP) // 2
        corners.update({place: (left + at * (_WIDE + _GAP), level * (_HIGH + _FALL)) for at, place in enumerate(row)})
    nodes = [_node(step, *corners[place]) for place, step in enumerate(steps)]
    words = [
        f"{nodes[place].name} reads {' and '.join(nodes[p].name for p in row)}"
        for place, row in enumerate(reads)
        if row
    ]
    return Flow(
        width=width,
        height=(max(rows) + 1) * (_HIGH + _FALL) - _FALL,
        nodes=tuple(nodes),
        lines=tuple(_line(corners[above], corners[place]) for place, row in enumerate(reads) for above in row),
        says="; ".join(words),
    )


def _levels(reads: Sequence[Sequence[int]]) -> list[int] | None:
    """Return each step's distance from the sources; None where steps read each other in a circle."""
    levels = [0] * len(reads)
    for _ in reads:
        deeper = [1 + max((levels[above] for above in row), default=-1) for row in reads]
        if deeper == levels:
            return levels
        levels = deeper
    return None


def _node(step: Mapping[str, object], x: int, y: int) -> Node:
    kind = str(step.get("kind", ""))
    kind = _WORDS.get(kind, kind)
    name = str(step.get("name") or kind)
    shown = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
    return Node(name=name, shown=shown, kind=kind if name != kind else "", x=x, y=y)


def _line(above: tuple[int, int], below: tuple[int, int]) -> str:
    x, y, to_x, to_y = above[0] + _WIDE // 2, above[1] + _HIGH, below[0] + _WIDE // 2, below[1] - 5
    return f"M{x} {y} C{x} {y + _FALL // 2} {to_x} {to_y - _FALL // 2} {to_x} {to_y}"
