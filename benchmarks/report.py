"""Show results as tables, and keep them as JSON with the machine and its load."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.data import BENCH

__all__ = ["Claim", "Report", "Trend", "console", "report"]

console = Console()
RESULTS = BENCH / "results.json"


@dataclass(frozen=True, slots=True)
class Claim:
    """Hold a number and what it must reach: at least `goal`, or at most, where `at_most`."""

    name: str
    found: float
    goal: float
    unit: str = ""
    at_most: bool = False

    @property
    def holds(self) -> bool:
        """Return whether the number reaches its goal."""
        return self.found <= self.goal if self.at_most else self.found >= self.goal

    def __str__(self) -> str:
        bound = "at most" if self.at_most else "at least"
        text = f"{self.name}: {self.found:,.2f}{self.unit}, to be {bound} {self.goal:g}{self.unit}"
        return text + ("" if self.holds else " -- MISSED")


@dataclass(slots=True)
class Report:
    """Collect what one benchmark says: tables to read, claims to judge, and numbers for the file."""

    name: str
    numbers: dict[str, Any] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table; numbers are shown with one decimal."""
        shown = Table(title=title, title_justify="left")
        for number, column in enumerate(columns):
            shown.add_column(column, justify="right" if number else "left")
        for row in rows:
            shown.add_row(*(f"{cell:,.1f}" if isinstance(cell, float) else str(cell) for cell in row))
        console.print(shown)
        self.numbers[title] = [dict(zip(columns, row, strict=True)) for row in rows]

    def note(self, text: str) -> None:
        """Print a line."""
        console.print(text)

    def claim(self, *claims: Claim) -> None:
        """Note claims and print them."""
        for claim in claims:
            self.claims.append(claim)
            console.print(str(claim), style="green" if claim.holds else "bold red")


@contextmanager
def report(name: str) -> Iterator[Report]:
    """Run one benchmark and add what it found to the file of results."""
    console.rule(name)
    began, before = time.time(), os.getloadavg()
    made = Report(name)
    yield made
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known[name] = {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(began)),
        "seconds": round(time.time() - began),
        "machine": _machine(),
        "load": {"before": before, "after": os.getloadavg()},
        "claims": [
            {"name": c.name, "found": c.found, "goal": c.goal, "at_most": c.at_most, "holds": c.holds, "unit": c.unit}
            for c in made.claims
        ],
        **made.numbers,
    }
    BENCH.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(known, indent=2, default=float), encoding="utf-8")
    console.print(f"load before {before[0]:.1f}, after {os.getloadavg()[0]:.1f}; added to {RESULTS}", style="dim")


@dataclass(frozen=True, slots=True)
class Trend:
    """Hold the straight line through values by least squares.

    `change` is what it rises from the first value to the last, and `give` two standard errors of that, both in percent
    of the `level`, the mean.
    """

    level: float
    change: float
    give: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Trend:
        """Lay the line; at least three values."""
        last = len(values) - 1
        mean = statistics.fmean(values)
        spread = sum((x - last / 2) ** 2 for x in range(last + 1))
        slope = sum((x - last / 2) * (y - mean) for x, y in enumerate(values)) / spread
        left = sum((y - mean - slope * (x - last / 2)) ** 2 for x, y in enumerate(values))
        error = math.sqrt(left / (last - 1) / spread)
        whole = 100 * last / (mean or 1.0)
        return cls(mean, slope * whole, 2 * error * whole)

    @property
    def surely(self) -> float:
        """Return the rise that noise does not explain, percent; 0 where it may explain all."""
        return max(0.0, self.change - self.give)

    def __str__(self) -> str:
        """Say it in words."""
        word = "flat" if round(abs(self.change) - self.give, 6) <= 0 else "grows" if self.change > 0 else "falls"
        return f"{word}: {self.change:+.1f}% ± {self.give:.1f} over the run"


def _machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = named[0] if named else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = {name: version(name) for name in ("pyspark", "delta-spark", "deltalake", "pyarrow", "numpy")}
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        **packages,
    }
