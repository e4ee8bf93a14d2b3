"""Write reports as pages that need no server and no internet: one for a run, and the history of a job's checks."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.quality.reports.summary import (
    BUCKETS,
    CheckHistory,
    RuleSummary,
    RunSummary,
    failing,
    history,
    rules_of,
    runs,
    summary,
)

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["KEPT", "history_page", "run_page", "write_page"]

KEPT = 200
"""Runs whose pages are kept; what older ones found stays in the results, and in the history."""
_LISTED = 50
_FAILING = 200
_LEAST_SHARE = 0.001
_LONGEST = 1e15  # below it a double holds every whole number exactly
_STATES = {"passed": "passed", "noted": "failed only rules that never block", "failed": "failed"}
_PLOT_WIDTH, _PLOT_HEIGHT = 960, 120
_SPARK_WIDTH, _SPARK_HEIGHT = 240, 36


def run_page(job: str, rows: pa.Table, *, run: str, notes: Sequence[str] = ()) -> str:
    """Return the page of a run; `rows` are its results, one at least, and `notes` say what they do not."""
    bad = failing(rows)
    return _render(
        "run.html",
        job=job,
        run=run,
        found=summary(rows),
        rules=rules_of(rows),
        bad=bad[:_FAILING],
        hidden=max(0, len(bad) - _FAILING),
        notes=notes,
    )


def history_page(job: str, rows: pa.Table, *, kept: Sequence[str] = (), docs: bool = False) -> str:
    """Return the history of a job's checks; `kept` are the ids of the runs that have a page."""
    listed: list[RunSummary] = runs(rows)[:_LISTED] if rows.num_rows else []
    checks: list[CheckHistory] = history(rows) if rows.num_rows else []
    return _render("history.html", job=job, checks=checks, runs=listed, kept=set(kept), docs=docs)


def write_page(path: Path, text: str) -> None:
    """Write a page so that who opens it meanwhile sees the old one or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"moment": _moment, "share": _share, "number": _number, "short": _short}
    made.globals |= {
        "bars": _bars,
        "line": _line,
        "most": lambda check: max((bucket.windows for bucket in check.buckets), default=0),
        "scale": _scale,
        "ticks": _ticks,
        "plot": {"width": _PLOT_WIDTH, "height": _PLOT_HEIGHT},
        "spark": {"width": _SPARK_WIDTH, "height": _SPARK_HEIGHT},
    }
    return made


def _moment(micros: int | None) -> str:
    return "never" if micros is None else f"{datetime.fromtimestamp(micros / 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"


def _share(value: float | None) -> str:
    if value is None:
        return ""
    # Rounded, one bad row in a million would read as none.
    return "0 %" if value == 0 else "< 0.1 %" if value < _LEAST_SHARE else f"{value * 100:.1f} %"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if value.is_integer() and abs(value) < _LONGEST else f"{value:,.6g}"


def _short(rule: str) -> str:
    """Return a rule in words, without the name of its suite: its place, its type and its column."""
    _, _, rest = rule.partition(":")
    place, _, name = rest.partition(":")
    if not name:
        return rule
    kind, _, column = name.partition("(")
    words = kind.removeprefix("expect_").replace("_", " ")
    return f"{place}. {words}: {column.removesuffix(')')}" if column else f"{place}. {words}"


def _bars(check: CheckHistory) -> Iterator[dict[str, float | str]]:
    """Yield the bars of a plot: for each bucket what passed, was noted and failed, one upon the other, as shares."""
    step = _PLOT_WIDTH / max(1, len(check.buckets))
    most = max((bucket.windows for bucket in check.buckets), default=1) or 1
    for place, bucket in enumerate(check.buckets):
        base = float(_PLOT_HEIGHT)
        for state, count in (
            ("passed", bucket.windows - bucket.failed - bucket.noted),
            ("noted", bucket.noted),
            ("failed", bucket.failed),
        ):
            if count:
                # A single failed window among thousands is still to be seen.
                height = max(2.0 if state != "passed" else 0.0, count / most * (_PLOT_HEIGHT - 6))
                base -= height
                says = f"{_moment(bucket.start)}: {count:,} of {bucket.windows:,} windows {_STATES[state]}"
                x, width = place * step, max(1.0, step - 1)
                yield {"x": x, "y": max(0.0, base), "w": width, "h": height, "state": state, "says": says}


def _ticks(check: CheckHistory) -> list[str]:
    """Return the moments at the two ends of a plot and between them; of a check with one window, that one's."""
    starts = [bucket.start for bucket in check.buckets]
    chosen = [starts[0], starts[len(starts) // 2], starts[-1]] if len(starts) > 2 else starts  # noqa: PLR2004
    return [_moment(start)[:16] for start in chosen]


def _scale(rule: RuleSummary) -> tuple[str, str] | None:
    """Return the least and the greatest value of a small plot in words, None where it has none."""
    known = [value for value in rule.shares if value is not None]
    if not known:
        return None
    in_words = _share if rule.on_rows else _number
    return in_words(min(0.0, *known)), in_words(max(known))


def _line(shares: Sequence[float | None]) -> list[str]:
    """Return the points of a small plot, a list for each stretch without gaps, from the least to the greatest."""
    known = [value for value in shares if value is not None]
    if not known:
        return []
    low, high = min(0.0, *known), max(known)
    span = (high - low) or 1.0
    step = _SPARK_WIDTH / max(1, min(len(shares), BUCKETS) - 1)
    stretches: list[list[str]] = [[]]
    for place, value in enumerate(shares):
        if value is None:
            stretches.append([])
            continue
        y = _SPARK_HEIGHT - 3 - (value - low) / span * (_SPARK_HEIGHT - 6)
        stretches[-1].append(f"{place * step:.1f},{y:.1f}")
    return [" ".join(points if len(points) > 1 else points * 2) for points in stretches if points]
