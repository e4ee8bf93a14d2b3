"""Draw what an operator makes of rows on one axis of time: a lane for each input, and below it what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.drawings import box, line, svg, text

__all__ = ["Bar", "Dot", "Lane", "Timeline", "drawn"]

_WIDTH, _LEFT, _RIGHT = 760, 128, 36
_LANE, _BAR, _TOP = 46, 30, 44
_LETTER = 7.2
"""Pixels of a letter at 12 or 13 px, on average."""
_KINDS = "swo"
"""A colour for each batch, in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A row: its time in seconds, a short label, and the batch that it came or went with."""

    at: float
    label: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A window that came out: its bounds in seconds, what is written on it, and the batch that emitted it."""

    start: float
    end: float
    label: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The rows of an input, or rows that came out."""

    name: str
    dots: Sequence[Dot]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run of an operator. `watermarks` are those by which the step had closed after each batch, in seconds.

    `ticks` are the seconds at which the axis has a label, ascending; the first and the last are its ends.
    """

    title: str
    inputs: Sequence[Lane]
    outputs: Sequence[Lane] = ()
    bars: Sequence[Bar] = ()
    watermarks: Sequence[float | None] = ()
    ticks: Sequence[float] = ()


def drawn(made: Timeline) -> str:
    """Return the picture."""
    first, last = made.ticks[0], made.ticks[-1]
    scale = (_WIDTH - _LEFT - _RIGHT) / (last - first)

    def x(at: float) -> float:
        return round(_LEFT + (min(max(at, first), last) - first) * scale, 1)

    shapes = [text(10, 22, made.title, "h")]
    y = _TOP
    for lane in made.inputs:
        shapes += _lane(lane, y, x)
        y += _LANE
    axis = y
    shapes.append(line("l", (_LEFT, axis), (_WIDTH - _RIGHT, axis)))
    for tick in made.ticks:
        shapes += [line("l", (x(tick), axis - 4), (x(tick), axis + 4)), text(x(tick) - 10, axis + 20, f"{tick:g} s")]
    y = axis + 34
    for batch, mark in enumerate(made.watermarks):
        if mark is not None and first <= mark <= last and mark not in made.watermarks[:batch]:
            shapes.append(line("d", (x(mark), _TOP - 8), (x(mark), axis)))
            words = f"watermark {batch}"
            shapes.append(text(min(x(mark) + 3, _WIDTH - len(words) * _LETTER - 4), _TOP - 2, words))
    for bar in made.bars:
        wide = max(x(bar.end) - x(bar.start), 4)
        shapes.append(box(x(bar.start), y, wide, _BAR - 6, _kind(bar.batch)))
        words = f"{bar.label} · batch {bar.batch}"
        fits = len(words) * _LETTER + 12 <= wide
        after = x(bar.start) + wide + 6
        if not fits and after + len(words) * _LETTER > _WIDTH:
            after = x(bar.start) - len(words) * _LETTER - 6
        shapes.append(text(x(bar.start) + 8 if fits else after, y + 17, words))
        y += _BAR
    for lane in made.outputs:
        shapes += _lane(lane, y + 6, x)
        y += _LANE
    return svg(_WIDTH, round(y + 10), made.title, *shapes)


def _kind(batch: int) -> str:
    return _KINDS[batch % len(_KINDS)]


def _lane(lane: Lane, y: float, x: object) -> list[str]:
    assert callable(x)
    shapes = [text(10, y + 18, lane.name), line("l", (_LEFT, y + 14), (_WIDTH - _RIGHT, y + 14))]
    ends = [0.0, 0.0]
    for dot in sorted(lane.dots, key=lambda each: each.at):
        at = x(dot.at)
        shapes.append(box(at - 4, y + 9, 9, 9, _kind(dot.batch)))
        # Labels of rows that are near each other stand below and above the line in turn.
        side = 0 if ends[0] <= at - 4 else 1
        ends[side] = at + len(dot.label) * _LETTER + 4
        left = min(at - 4, _WIDTH - len(dot.label) * _LETTER - 4)
        shapes.append(text(left, y + 34 if side == 0 else y + 5, dot.label))
    return shapes
