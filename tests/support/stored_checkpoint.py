"""A small checkpoint with everything in it, as an older commit wrote it, and what its job put out without a stop (F22).

`python -m tests.support.stored_checkpoint FILE` writes such an archive with the code that is there. An archive that a
test opens is never written again: it stands for the checkpoints that users have. A later format gets a file beside it.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock import EveryBatches, Job, agg, seconds
from penstock.errors import JobError
from penstock.runtime.driver.settings import DriverSettings
from penstock.sinks import Delta, MemorySink
from penstock.sources import FileReplay
from penstock.state import BATCH, event_time, idle
from penstock.testing import Crashed, Harness
from penstock.windows import Sliding, Tumbling

STORED = Path(__file__).resolve().parents[1] / "golden" / "checkpoint-version-1.tar.xz"
NAME = "stored"
SAVED_AT, SNAPSHOT_EVERY, WRITTEN, BATCHES = 9, 7, 20, 32
"""Batches: the saved one, from one data checkpoint to the next, those in the archive, and all."""
SAVED = "half"
ROWS_A_BATCH = 6
ROWS = "rows.csv"
TABLE = "table"
ROOT = "checkpoints"
PUT_OUT = "put_out.json"
"""What each batch put out, by sink, and what each step kept behind the last in the archive."""
ON_EVENT_TIME = ("blocks_out", "exact_out", "hops_out", "late", "counts_out", "rings_out")
"""The sinks whose rows do not depend on the times of batches, which are others behind a restore."""


def settings() -> DriverSettings:
    """Return the settings of the driver."""
    return DriverSettings(keep=8)


def write_rows(path: Path) -> None:
    """Write the rows of the source: some keys come again and again, others once; some rows come out of order or late.

    The newest time moves by one slide a batch, so that each closes one window, and the running parts of state are used.
    """
    lines = ["n,k,t,v,d"]
    for n in range(BATCHES * ROWS_A_BATCH):
        batch, place = divmod(n, ROWS_A_BATCH)
        key = f"once{n}" if n % 7 == 3 else ("a", "b", "c", "d", "")[(n * 3 + n // 11) % 5]
        back = 0 if not place else 40 if n % 23 == 2 else (n * 11) % 10
        second = max(0, 2 * batch + 10 - back)
        d = "" if n % 17 == 0 else f"{(n * 37) % 23 / 4}"
        lines.append(f"{n},{key},1970-01-01T00:{second // 60:02d}:{second % 60:02d}Z,{n % 6 - 1},{d}")
    path.write_text("\n".join(lines) + "\n")


def ring(time, key, row, state):
    """Set timers of event time and deadlines, and tell both when they come."""
    if state.is_timing_out():
        return {"k": key, "what": "over", "n": state.get()["n"]}
    if row is None:
        (fired,) = state.fired_timers
        return {"k": key, "what": f"rang {fired.at:%M:%S}", "n": state.get_or({"n": 0})["n"]}
    state.update(n=state.get_or({"n": 0})["n"] + row["v"], tags=[str(row["v"])] * (row["v"] % 3 + 1))
    state.set_timer(row["t"] + timedelta(seconds=9))
    state.set_deadline(row["t"] + timedelta(seconds=12))
    return None


def watch(time, key, row, state):
    """Expire by batch time; a row of -1 removes the key, and a timer of batch time tells it."""
    if state.is_timing_out():
        return {"k": key, "what": "idle", "n": state.get()["n"]}
    if row is None:
        return {"k": key, "what": "timer", "n": -1}
    if row["v"] < 0:
        state.remove()
        state.set_timer(time + timedelta(seconds=6), clock=BATCH)
        return None
    state.update(n=state.get_or({"n": 0})["n"] + row["v"])
    return None


def total(values: Sequence[int], old: int | None) -> int | None:
    """Add up, and forget what gets large."""
    new = (old or 0) + sum(value for value in values if value is not None)
    return None if new > 25 else new


def job_in(folder: Path, *, partitions: int = 2) -> Job:
    """Return the job whose file, table and checkpoint are in a folder."""
    job = Job(NAME, partitions=partitions)
    job.checkpoint(every=EveryBatches(SNAPSHOT_EVERY))
    schema = "n long, k string, t timestamp, v int, d double"
    source = FileReplay(folder / ROWS, order_by="n", rows_per_batch=ROWS_A_BATCH, schema=schema)
    rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(5))
    by_key = rows.key_by("k")
    blocks = by_key.window("blocks", Sliding(seconds(12), every=seconds(2)).late_to("too_late"))
    blocks.aggregate(n=agg.count(), low=agg.min("d"), mean=agg.mean("d"), last=agg.last("v")).write(
        "blocks_out", Delta(folder / TABLE)
    )
    job.late("too_late").write("late", MemorySink())
    exact = by_key.window("exact", Sliding(seconds(10), every=seconds(2)).drop_late())
    exact.aggregate(n=agg.count(), v=agg.sum("v")).write("exact_out", MemorySink())
    hops = by_key.window("hops", Tumbling(seconds(10)).drop_late())
    hops.aggregate(first=agg.first("v"), high=agg.max("v")).write("hops_out", MemorySink())
    by_key.update_state_by_key("counts", total, state="n long", value="v").write("counts_out", MemorySink())
    shown = "k string, what string, n long"
    by_key.map_with_state("rings", ring, state="n long, tags array<string>", output=shown, timeout=event_time()).write(
        "rings_out", MemorySink()
    )
    by_key.map_with_state("idles", watch, state="n long", output=shown, timeout=idle(seconds(4))).write(
        "idles_out", MemorySink()
    )
    return job


def plain(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return rows as sorted texts, which JSON can hold."""
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def one_batch(h: Harness) -> dict[str, list[str]]:
    """Run one batch and return what it put out."""
    return {sink: plain(rows) for sink, rows in h.batch(follow=False).items()}


def put_out(folder: Path, *, partitions: int = 2) -> list[dict[str, list[str]]]:
    """Run the job from its first to its last batch in a folder without a checkpoint."""
    write_rows(folder / ROWS)
    with Harness(job_in(folder, partitions=partitions), folder / ROOT, settings=settings()) as h:
        return [one_batch(h) for _ in range(BATCHES)]


def write_checkpoint(folder: Path) -> dict[str, list[str]]:
    """Run the job in a folder until its driver dies behind the offsets of a batch; return what the steps keep."""
    write_rows(folder / ROWS)
    with Harness(job_in(folder), folder / ROOT, settings=settings()) as h:
        for batch in range(WRITTEN):
            one_batch(h)
            if batch == SAVED_AT:
                h.save(SAVED)
        kept = {step: plain(h.state(step)) for step in h.commit().state}
        h.crash_after("FixOffsets")
        try:
            h.batch(follow=False)
        except Crashed:
            return kept
    raise JobError("the driver did not die")


def write_archive(archive: Path) -> None:
    """Write rows, checkpoint, table and what is to come out, packed."""
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as part:
        outputs = put_out(Path(whole))
        kept = write_checkpoint(Path(part))
        (Path(part) / PUT_OUT).write_text(json.dumps({"batches": outputs, "kept": kept}))
        with tarfile.open(archive, "w:xz", preset=9) as packed:
            packed.add(part, arcname=".", filter=_plain_owner)


def _plain_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpacked(folder: Path, archive: Path = STORED) -> dict[str, Any]:
    """Unpack an archive into a folder, and return what the job puts out and its steps keep."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    expected: dict[str, Any] = json.loads((folder / PUT_OUT).read_text())
    return expected


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
