"""Draw simulations as an SVG picture: rate, delay and batch time over time, a line for each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import floor, log10

from penstock.rates.load import Load
from penstock.rates.simulate import SimulatedBatch, Simulation

__all__ = ["picture"]

_WIDTH, _LEFT, _RIGHT, _TOP = 720, 70, 12, 40
_PANEL, _GAP = 110, 44
_KINDS = ("s", "o", "w", "v")
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.h{font-weight:600}.e{text-anchor:end}.l{stroke:#8c959f66}"
    "path{fill:none}.d{stroke:#8c959f;stroke-dasharray:5 4}.s{stroke:#0969da}.o{stroke:#bf8700}.w{stroke:#1a7f37}"
    ".v{stroke:#8250df}path.s,path.o,path.w,path.v{stroke-width:1.5}@media(prefers-color-scheme:dark){text{fill:#c9d1d9}}"
)
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    top: float
    low: float
    high: float
    end: float
    is_log: bool = False

    def path(self, kind: str, points: Sequence[Point]) -> str:
        """Return a line through points of seconds and values, each value until the next second."""
        if not points:
            return ""
        steps = [points[0]]
        for (_, value), (second, after) in pairwise(points):
            steps += [(second, value), (second, after)]
        places = " L".join(f"{self._x(second):.1f} {self._y(value):.1f}" for second, value in steps)
        return f'<path class="{kind}" d="M{places}"/>'

    def frame(self) -> list[str]:
        """Return the title, and lines with their values."""
        ticks = _powers(self.low, self.high) if self.is_log else [self.low, (self.low + self.high) / 2, self.high]
        shapes = [f'<text class="h" x="{_LEFT}" y="{self.top - 8:g}">{escape(self.title)}</text>']
        for tick in ticks:
            y = self._y(tick)
            shapes.append(f'<path class="l" d="M{_LEFT} {y:.1f} L{_WIDTH - _RIGHT} {y:.1f}"/>')
            shapes.append(f'<text class="e" x="{_LEFT - 6}" y="{y + 4:.1f}">{tick:,.0f}</text>')
        return shapes

    def _x(self, second: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(second / self.end, 0.0), 1.0)

    def _y(self, value: float) -> float:
        scale: Callable[[float], float] = log10 if self.is_log else float
        low, high = scale(self.low), scale(self.high)
        part = (scale(min(max(value, self.low), self.high)) - low) / (high - low)
        return self.top + _PANEL * (1 - part)


def picture(simulations: Mapping[str, Simulation], load: Load, label: str) -> str:
    """Return a picture of simulations of one load, by the name of each; four at most.

    The upper panel has the rate in force, in rows a second, and dashed the rows that arrive.
    The second one has the delay of rows, and the third the time of batches, dashed the interval, in milliseconds.

    Args:
        simulations: What to draw, by name.
        load: The rows that arrive.
        label: What the picture shows, for a title and for screen readers.
    """
    kinds = dict(zip(simulations, _KINDS, strict=False))
    batches = {name: simulation.batches for name, simulation in simulations.items()}
    every = [batch for run in batches.values() for batch in run]
    end = max([load.end, *(batch.end for batch in every)])
    arrivals = [(left, (after - before) / (right - left)) for (left, before), (right, after) in pairwise(_points(load))]
    rates = [rate for _, rate in arrivals if rate >= 1] + [batch.rate for batch in every if batch.rate]
    panels = [
        _Panel("rate, rows a second", _TOP + 24, *_decades(rates), end, is_log=True),
        _Panel("delay, ms", _TOP + 24 + _PANEL + _GAP, 0, _rounded([batch.delay_ms for batch in every]), end),
        _Panel("batch time, ms", _TOP + 24 + 2 * (_PANEL + _GAP), 0, _rounded([b.batch_ms for b in every]), end),
    ]
    values: tuple[Callable[[SimulatedBatch], float | None], ...] = (
        lambda batch: batch.rate,
        lambda batch: batch.delay_ms,
        lambda batch: batch.batch_ms,
    )
    shapes = [f'<text class="h" x="{_LEFT}" y="20">{escape(label)}</text>']
    for panel, value in zip(panels, values, strict=True):
        shapes += panel.frame()
        for name, run in batches.items():
            points = [(batch.second, shown) for batch in run if (shown := value(batch)) is not None]
            shapes.append(panel.path(kinds[name], points))
    shapes.append(panels[0].path("d", [*arrivals, (load.end, arrivals[-1][1])]))
    longest = max(batches.values(), key=lambda run: max((b.interval_ms for b in run), default=0), default=())
    shapes.append(panels[2].path("d", [(batch.second, batch.interval_ms) for batch in longest]))
    height = round(panels[-1].top + _PANEL + 46)
    shapes += _legend(kinds, panels[-1].top + _PANEL + 20, end)
    size = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
    head = f'<svg {size} role="img" aria-label="{escape(label)}">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *filter(None, shapes), "</svg>\n"])


def _legend(kinds: Mapping[str, str], y: float, end: float) -> list[str]:
    """Return the names of the lines, and the ends of the time axis."""
    shapes = [
        f'<text x="{_LEFT}" y="{y:g}">0 s</text>',
        f'<text class="e" x="{_WIDTH - _RIGHT}" y="{y:g}">{end:,.0f} s</text>',
    ]
    x = _LEFT + 70.0
    for name, kind in [*kinds.items(), ("arrivals, interval", "d")]:
        shapes.append(f'<path class="{kind}" d="M{x:g} {y - 4:g} L{x + 22:g} {y - 4:g}"/>')
        shapes.append(f'<text x="{x + 28:g}" y="{y:g}">{escape(name)}</text>')
        x += 50 + 7.2 * len(name)
    return shapes


def _points(load: Load) -> list[Point]:
    return list(zip(load.seconds, load.rows, strict=True))


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Return the powers of ten about values above 0."""
    low, high = min(values, default=1.0), max(values, default=10.0)
    return 10.0 ** floor(log10(low)), 10.0 ** (floor(log10(high)) + 1)


def _powers(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(round(log10(low)), round(log10(high)) + 1)]


def _rounded(values: Sequence[float]) -> float:
    """Return the smallest of 1, 2, 5, 10, 20 and so on that is above all values."""
    most = max(values, default=1.0)
    return next(
        step * 10.0**power
        for power in range(16)
        for step in (1, 2, 5)
        if step * 10.0**power >= most or power == 15  # noqa: PLR2004 - no batch takes longer
    )
