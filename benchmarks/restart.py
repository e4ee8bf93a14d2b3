"""Kill both sides with SIGKILL in the middle of a batch, again and again, and time how they come back (P8).

Each life is a process of its own (`benchmarks.restarted`), and the two sides live in turn, never at once.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.beside_spark import scratch
from benchmarks.report import Claim, Report, report
from benchmarks.restarted import TOUCHED, given_of
from benchmarks.spark_side import show_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_restart"]

MILLION = 1_000_000
SIDES = {"penstock": "Penstock", "peer": "Structured Streaming"}
BETWEEN = 12
"""Batches from a restart to the next kill; the peer has made a snapshot by then, and has few changes to replay."""

_OURS = (
    ("driver and JVM: analyse the job", ("SparkEngine",)),
    ("driver: prove the store, read whose it is", ("prove_exclusive", "open_or_create")),
    ("driver: find the tail, own the log", ("survey", "claim", "confirm")),
    ("driver: recovery from the log", ("recover",)),
    ("driver: compare the job with its state", ("accept",)),
    ("driver: open the sinks, ask what they show", ("prepare", "_refuse_old_copy", "_find_damaged")),
    ("driver: publish the last commit again", ("PublishSinks",)),
    ("JVM: plan the first batch, return its result", ("plan",)),
    ("Spark job of the first batch", ("job",)),
    ("  its tasks, summed over 2 cores", ("tasks",)),
    ("  of that until Python workers stand ready", ("starting",)),
    ("  of that Python", ("python",)),
    ("driver: receipts, verdicts, accounting", ("account",)),
    ("driver: commit into the log", ("CommitBatch",)),
)
_PEERS = (
    ("start the query: analyse, open its log", ("start",)),
    ("find the batch that was begun", ("find",)),
    ("plan the first batch", ("queryPlanning",)),
    ("compute it, state included", ("addBatch",)),
    ("  of that load RocksDB, summed over 2 tasks", ("rocksdbLoadLatencyMs",)),
    ("  of that replay of changes", ("rocksdbReplayChangeLogLatencyMs",)),
    ("  change logs replayed, number", ("rocksdbNumReplayChangelogFiles",)),
    ("commit", ("commitOffsets",)),
)


@dataclass(slots=True)
class _Life:
    """Hold what a process said: when each thing was, seconds, and the parts of its way to the first commit."""

    born: float
    at: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    commits: list[float] = field(default_factory=list)
    killed_in: int = -1

    @property
    def back(self) -> float:
        """Return milliseconds from the session to the first commit."""
        return (self.commits[0] - self.at["ready"]) * 1000

    @property
    def whole(self) -> float:
        """Return milliseconds from the start of the process to the first commit."""
        return (self.commits[0] - self.born) * 1000


def run_restart(_spark: SparkSession, *, quick: bool) -> list[Claim]:
    """P8: count and sum by key, 100,000 touched of 10M keys a batch; killed in a batch, both sides in turn."""
    keys, kills = (MILLION, 3) if quick else (10 * MILLION, 5)
    full = keys // TOUCHED
    given = given_of(keys)
    batches = full + (kills + 1) * (BETWEEN + 3)
    given.prepare(batches)
    with report("P8 restart after kill -9") as results, scratch() as root:
        (root / "peer").mkdir()
        show_files(given, root / "peer" / "watched", range(batches))
        lives: dict[str, list[_Life]] = {side: [] for side in SIDES}
        for side in SIDES:
            _live(side, root, keys, full)
        for _ in range(kills):
            for side, name in SIDES.items():
                life = _live(side, root, keys, BETWEEN)
                lives[side].append(life)
                line = f"{life.back:,.0f} ms, {life.whole:,.0f} with its start; load {os.getloadavg()[0]:.1f}"
                results.note(f"{name}: back in {line}")
        _show(results, keys, lives)
    return results.claims


def _show(results: Report, keys: int, lives: Mapping[str, Sequence[_Life]]) -> None:
    back = {side: statistics.median(life.back for life in lives[side]) for side in SIDES}
    whole = {side: statistics.median(life.whole for life in lives[side]) for side in SIDES}
    rows = [
        (name, len(lives[side]), back[side], *_ends(life.back for life in lives[side]), whole[side])
        for side, name in SIDES.items()
    ]
    what = f"{keys:,} keys, killed in a batch: from the session to the first new commit"
    columns = ("side", "kills", "median ms", "least", "most", "from the start of the process")
    results.table(what, columns, rows)
    for side, parts in (("penstock", _OURS), ("peer", _PEERS)):
        taken = [(name, _median_of(lives[side], keys_of)) for name, keys_of in parts]
        results.table(f"{SIDES[side]} taken apart", ("part", "median"), [*taken, ("the whole", back[side])])
    by_kill = [peer.back / ours.back for ours, peer in zip(lives["penstock"], lives["peer"], strict=True)]
    ratio = back["peer"] / back["penstock"]
    results.numbers["ratios"] = {"medians": ratio, "by kill": by_kill, "processes": whole["peer"] / whole["penstock"]}
    results.note(f"ratio of medians {ratio:.1f} (by kill {', '.join(f'{of_kill:.1f}' for of_kill in by_kill)})")
    results.note(f"from the start of the process {whole['peer'] / whole['penstock']:.1f}")
    results.claim(Claim(f"P8, {keys:,} keys, times Structured Streaming's restart", ratio, 3, "x"))


def _ends(values: Iterator[float]) -> tuple[float, float]:
    all_of = list(values)
    return min(all_of), max(all_of)


def _median_of(lives: Sequence[_Life], names: Sequence[str]) -> float:
    return statistics.median(sum(life.parts.get(name, 0.0) for name in names) for life in lives)


def _live(side: str, root: Path, keys: int, batches: int) -> _Life:
    """Start a side, let it commit so many batches, and kill it in the middle of the next."""
    with _process(side, root / side, keys) as (life, output):
        for line in output:
            what, at = line["what"], line["at"]
            if what == "commit":
                life.commits.append(at)
            elif what == "parts":
                life.parts = line["parts"]
            elif what == "offsets" and len(life.commits) >= batches and life.parts:
                gaps = [b - a for a, b in zip(life.commits, life.commits[1:], strict=False)]
                time.sleep(statistics.median(gaps[-BETWEEN:]) / 2)
                life.killed_in = line["batch"]
                return life
            else:
                life.at.setdefault(what, at)
    raise RuntimeError(f"{SIDES[side]} ended by itself")


@contextmanager
def _process(side: str, root: Path, keys: int) -> Iterator[tuple[_Life, Iterator[dict[str, Any]]]]:
    """Run a side in a group of its own, Java included; at the end all of it is killed, as a machine's end would."""
    root.mkdir(exist_ok=True)
    life = _Life(time.time())
    with (root / "errors").open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.restarted", side, str(root), str(keys)],
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        yield life, map(json.loads, process.stdout)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
