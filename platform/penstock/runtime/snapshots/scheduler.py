"""Make data checkpoints beside the batches: decide when, have one made, and rebase the next batch on it (DESIGN 5).

A data checkpoint is of one batch and of all steps with state. While a helper makes it, tasks do not merge the runs that
it folds. The next batch then replaces these runs by the bases, and its Commit says so; from then on nothing older is
read. One that fails, or that a driver's end interrupts, changes nothing: no record names its files.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import structlog

from penstock.checkpoint.log.entries import Commit, SnapshotRef
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.graph.schedules import NEVER, Auto, EveryBatches, EveryMicros, Never, Schedule
from penstock.operators.protocol import Step
from penstock.runtime.snapshots.catalog import snapshots_of
from penstock.runtime.snapshots.writer import SnapshotOrder, Taken, answer, taken_of

__all__ = [
    "DataCheckpointPolicy",
    "DataCheckpoints",
    "HelperProcess",
    "InPlace",
    "Interval",
    "auto_interval",
    "daly",
]

log = structlog.get_logger()

_REST = 3.0
"""How many times as long as it works a helper rests: batches that it works beside are slower, by what they share."""
_ONE_THREAD = {"TOKIO_WORKER_THREADS": "1", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""What many threads of low priority do to the caches of the others, one does not."""
LEAST = 60.0
"""No data checkpoint follows another sooner, where the interval is chosen."""
SHARE = 0.1
"""The most of the time that making them may take."""
_PRIOR = 86_400.0
"""One failure a day is supposed before any is seen."""
_GUESSED_RATE = 50e6
"""Bytes a second at which state is read and written, supposed before it was measured."""
_TELLING = 2**25
"""Bytes from which a data checkpoint tells how fast that is."""


class Helper(Protocol):
    """Somebody who makes a data checkpoint."""

    def poll(self) -> Mapping[str, Any] | None:
        """Return the answer, None while there is none."""

    def end(self) -> None:
        """Give it up."""


class InPlace:
    """Make it at once, in this process: for tests, whose batches then always find it made."""

    def __init__(self, order: SnapshotOrder) -> None:
        self._answer = answer(order)

    def poll(self) -> Mapping[str, Any] | None:
        """Return the answer."""
        return self._answer

    def end(self) -> None:
        """Do nothing: it is made."""


class HelperProcess:
    """Make it in a process of its own, which has little claim to the processors and ends when this one does.

    Order and answer go through files, so that neither waits for the other to read.
    """

    def __init__(self, order: SnapshotOrder) -> None:
        from pyspark import cloudpickle

        self._folder = tempfile.TemporaryDirectory(prefix="penstock-snapshot-")
        order_file, self._said = (Path(self._folder.name) / name for name in ("order", "answer"))
        order_file.write_bytes(cloudpickle.dumps(replace(order, rest=_REST)))  # type: ignore[no-untyped-call]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", "penstock.runtime.snapshots.writer", str(order_file), str(self._said)],
            stdin=subprocess.PIPE,  # it stays open: its end tells the process that we are gone
            stdout=subprocess.DEVNULL,  # what modules of the job print has no place in a driver's output
            # Ctrl-C is for the driver, which ends it. In a session of its own Linux would divide the processors by
            # sessions, and its low priority would count within its own alone.
            process_group=0,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "TMPDIR": self._folder.name,
                **_ONE_THREAD,
            },
        )

    def poll(self) -> Mapping[str, Any] | None:
        """Return the answer once the process has ended."""
        code = self._process.poll()
        if code is None:
            return None
        text = self._said.read_text() if self._said.is_file() else None
        self.end()
        if text is None:
            return {"failed": f"its process ended with {code} and said nothing"}
        parsed: Mapping[str, Any] = json.loads(text)
        return parsed

    def end(self) -> None:
        """Kill the process: no batch is based on a data checkpoint that it has not answered for."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._folder.cleanup()


@dataclass(frozen=True, kw_only=True)
class DataCheckpointPolicy:
    """When data checkpoints are made, how many versions are kept, and what makes them.

    `recover_within` is seconds: how long a restart may read what came since the last one, where the interval is chosen.
    `patience` is seconds as well: one that takes longer hangs, and is given up.
    """

    schedule: Schedule = NEVER
    keep: int = 10
    recover_within: float = 60.0
    patience: float = 3_600.0
    make: Callable[[SnapshotOrder], Helper] = InPlace


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval and why it is that, in words for an operator."""

    seconds: float
    why: str


class DataCheckpoints:
    """The data checkpoints of one driver's run. `folder` is the job's checkpoint, `works` its stateful steps."""

    def __init__(
        self, folder: CheckpointFolder, checkpoint: str, works: Mapping[str, Step], policy: DataCheckpointPolicy
    ) -> None:
        self._folder = folder
        self._uuid = checkpoint
        self._works = works
        self._policy = policy
        self._helper: Helper | None = None
        self._of: Commit | None = None
        """The Commit of the data checkpoint that is being made, or that no batch is based on yet."""
        self._taken: Taken | None = None
        self._last: Taken | None = None
        self._refs: dict[str, SnapshotRef] = {}
        self._since: dict[str, int] = {}
        self._tried: tuple[int, int] | None = None
        self._starts = 1
        self._named = 0
        self._began = 0.0
        self._written = 0
        self._written_since: int | None = None
        self.interval: Interval | None = None

    def adopt(self, recovered: Recovered) -> None:
        """Begin from the log's state."""
        commit = recovered.commit
        self._refs = dict(commit.snapshots) if commit is not None else {}
        # Also one that a driver made without a later batch: another is not due at once.
        newest = snapshots_of(self._folder)[-1:]
        if newest and commit is not None and newest[0].commit.batch <= commit.batch:
            self._tried = (newest[0].commit.batch, newest[0].commit.time)
        self._written_since = None if commit is None else commit.time
        self._starts = recovered.last_takeover.epoch if recovered.last_takeover is not None else 1

    # --- for batches -------------------------------------------------------------------------

    @property
    def behind(self) -> int | None:
        """Return the batch whose runs are being folded; None where none are."""
        # Not the Commit's own batch: state that a restore has rewritten has runs of the newest batch there was.
        return self._named if self._of is not None and self._taken is None else None

    @property
    def bases(self) -> dict[str, Mapping[str, Mapping[str, Any]]]:
        """Return the bases that the next batch puts in the place of older runs."""
        return {} if self._taken is None else {step: made.bases for step, made in self._taken.steps.items()}

    @property
    def refs(self) -> dict[str, SnapshotRef]:
        """Return what the next Commit says of data checkpoints."""
        if self._taken is None or self._of is None:
            return self._refs
        of = self._of
        made = {
            step: SnapshotRef(batch=of.batch, time=of.time, version=m.version, rows=m.rows, bytes=m.bytes)
            for step, m in self._taken.steps.items()
        }
        return {**self._refs, **made}

    def pinned(self) -> set[int]:
        """Return the batches whose files must stay: a helper reads them, or the next batch is based on them."""
        return set() if self._of is None else {self._of.batch, self._named}

    # --- between batches ---------------------------------------------------------------------

    def look(self, commit: Commit | None, epoch: int, used: int) -> None:
        """Take a finished data checkpoint, and begin the next where it is due; `used` is the newest batch id.

        A failure is logged, and ends nothing.
        """
        try:
            if self._helper is not None:
                self._poll(self._helper)
            elif self._of is None and commit is not None and self._is_due(commit):
                self._begin(commit, epoch, used)
        except Exception as why:  # noqa: BLE001 - it is not worth a batch
            self._made({"failed": f"{type(why).__name__}: {why}"})

    def committed(self, commit: Commit) -> None:
        """Record a Commit; one that is based on the data checkpoint completes it."""
        self._written += commit.written.get("segments", 0)
        self._written_since = commit.time if self._written_since is None else self._written_since
        if self._taken is not None and self._of is not None:
            self._refs, self._last = dict(commit.snapshots), self._taken
            self._since = dict.fromkeys(self._taken.steps, self._of.batch)
            self._of = self._taken = None

    def end(self) -> None:
        """Give up what is being made."""
        if self._helper is not None:
            self._helper.end()
        self._helper = self._of = self._taken = None

    def said(self) -> dict[str, Any]:
        """Return what the status says of data checkpoints."""
        newest = max(self._refs.values(), key=lambda ref: ref.batch, default=None)
        shown = None if newest is None else {"batch": newest.batch, "time": newest.time}
        every = None if self.interval is None else {"seconds": self.interval.seconds, "why": self.interval.why}
        return {"last": shown, "interval": every, "making": None if self._of is None else self._of.batch}

    # --- inside ------------------------------------------------------------------------------

    def _begin(self, commit: Commit, epoch: int, used: int) -> None:
        self._tried, self._of, self._named, self._began = (commit.batch, commit.time), commit, used, time.monotonic()
        order = SnapshotOrder(
            uuid=self._uuid,
            folder=self._folder,
            commit=commit.model_dump_json(),
            named=used,
            works=self._works,
            epoch=epoch,
            run=uuid.uuid4().hex[:12],
            keep=self._policy.keep,
            since=self._since,
        )
        self._helper = self._policy.make(order)
        self._poll(self._helper)

    def _poll(self, helper: Helper) -> None:
        helper_answer = helper.poll()
        if helper_answer is None and time.monotonic() - self._began > self._policy.patience:
            helper.end()
            helper_answer = {"failed": f"it was not made in {self._policy.patience:,.0f} s"}
        if helper_answer is not None:
            self._made(helper_answer)

    def _made(self, helper_answer: Mapping[str, Any]) -> None:
        self._helper = None
        if "taken" in helper_answer:
            self._taken = taken_of(helper_answer["taken"])
            log.info("data_checkpoint.made", batch=self._of and self._of.batch, seconds=round(self._taken.seconds, 3))
        else:
            log.warning("data_checkpoint.failed", batch=self._of and self._of.batch, reason=helper_answer["failed"])
            self._of, self._since = None, {}

    def _is_due(self, commit: Commit) -> bool:
        if not any(commit.state.get(step) for step in self._works):
            return False
        schedule = self._policy.schedule
        # Batches, and microseconds of batch time, since the last one that was made or tried.
        batch, time = self._tried or (-1, commit.zero)
        batches, micros = commit.batch - batch, commit.time - time
        match schedule:
            case Never():
                return False
            case EveryBatches(batches=wanted):
                self.interval = Interval(0.0, f"every {wanted} batches, as the job or its configuration says")
                return batches >= wanted
            case EveryMicros(micros=wanted):
                self.interval = Interval(wanted / 1e6, "as the job or its configuration says")
                return micros >= wanted and batches > 0
            case Auto():
                self.interval = self._optimum(commit)
                return micros >= self.interval.seconds * 1e6 and batches > 0

    def _optimum(self, commit: Commit) -> Interval:
        last = self._last
        since = 0 if self._written_since is None else commit.time - self._written_since
        return auto_interval(
            self._policy.recover_within,
            state=sum(size for kind, size in commit.written.items() if kind.startswith("state:")),
            cost=None if last is None else last.seconds,
            size=0 if last is None else sum(made.bytes for made in last.steps.values()),
            age=(commit.time - commit.zero) / 1e6,
            starts=self._starts,
            growth=self._written / (since / 1e6) if since > 0 else 0.0,
        )


def daly(cost: float, mtbf: float) -> float:
    """Return the interval between checkpoints that loses least time, all in seconds.

    Young's first-order optimum, sqrt(2 C M) (CACM 1974), with the higher order of Daly (FGCS 2006, equation 37).

    >>> round(daly(1.0, 86_400.0))
    415
    """
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


def auto_interval(
    recover_within: float, *, state: int, cost: float | None, size: int, age: float, starts: int, growth: float
) -> Interval:
    """Return the optimum, cut so that what was written since is read back within `recover_within`, and not too short.

    A restart reads the base and the later segments, so the longer the interval, the more there is to read.

    Args:
        recover_within: The seconds that a restart may read.
        state: The bytes of state.
        cost: The seconds that the last data checkpoint took, None before the first.
        size: Its bytes.
        age: The seconds that the job exists.
        starts: The drivers it has had: all but the first are counted as failures, though some were stopped by a person.
        growth: The bytes of segments that batches write in a second.
    """
    # Of little state the cost is that of a process and a table, and says nothing of how fast bytes are read.
    rate = size / cost if cost and size >= _TELLING else _GUESSED_RATE
    cost = 1.0 + state / rate if cost is None else cost
    mtbf = (age + _PRIOR) / max(1, starts)
    best = daly(cost, mtbf)
    reason = f"a data checkpoint of {cost:.1f} s and a failure in {mtbf / 3600:.1f} h make {best:.0f} s the optimum"
    if growth > 0 and best > (bound := recover_within * rate / growth):
        best, reason = (
            bound,
            f"{reason}; {bound:.0f} s, so that a restart reads what came since in {recover_within:.0f} s",
        )
    least = max(LEAST, cost / SHARE)
    if best < least:
        best, reason = least, f"{reason}; {least:.0f} s, so that they take at most {SHARE:.0%} of the time"
    return Interval(best, reason)
