"""Each record of a topic is said late, or is in all results that it must be in, by what the log says was read."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from session_model import SessionModel

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.rates.limits import Limits
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.spark import engine
from penstock.sinks import MemorySink
from penstock.sources import Json, Kafka
from penstock.testing import Crashed, Harness
from penstock.windows import Session, Tumbling

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.sample(2, of="jobs from Kafka")]

S = 1_000_000
BOUND, SIZE, GAP, REACH, PARTITIONS = 5, 10, 4, 3, 3


@dataclass(frozen=True)
class Record:
    """A record: its number in order of writing, its key and its event time in microseconds."""

    n: int
    k: str
    t: int


@dataclass(frozen=True)
class Batch:
    """The records that a Commit says were read, in order of arrival, and the watermark that was in force."""

    records: Sequence[Record]
    watermark: int | None


def job_of(servers: str, topic: str) -> Job:
    """Return a job with windows, sessions and a join over one source."""
    job = Job("proof", partitions=2)
    source = Kafka([topic], servers=servers, format=Json("n int, k string, at timestamp"))
    rows = job.source("rows", source, event_time="at", max_out_of_order=seconds(BOUND))
    for name, spec in {"windows": Tumbling(seconds(SIZE)), "sessions": Session(seconds(GAP))}.items():
        step = rows.key_by("k").window(name, spec.late_to(f"late_{name}"))
        step.aggregate(rows=agg.collect("n", limit=1_000)).write(f"out_{name}", MemorySink())
        job.late(f"late_{name}").write(f"out_late_{name}", MemorySink())
    left, right = (rows.filter(f"n % 2 = {rest}").select("k", f"n AS {name}") for rest, name in enumerate(("l", "r")))
    within = (seconds(-REACH), seconds(REACH))
    left.join("pairs", right, on=["k"], within=within, how="inner").write("out_pairs", MemorySink())
    return job


def written(rng: random.Random, numbers: Iterator[int], clock: int) -> list[Record]:
    """Return records of a few seconds, some of them out of order within the bound, and some far behind it."""
    records = []
    for _ in range(rng.randrange(4, 14)):
        behind = rng.choice([0, 0, 0, 1, 2, 4, 9, 15, 30])
        records.append(Record(next(numbers), rng.choice("ab"), (clock + rng.randrange(6) - behind) * S))
    return records


def batches_of(folder: Path, topic: str, log: dict[int, list[Record]]) -> tuple[list[Batch], int]:
    """Return what each batch has read by the offsets of its Commit, and the watermark after the last (2.1, 2.2)."""
    entries = Log(LocalFolder(folder / "proof").store())
    commits = [entry for _, entry in entries.entries_back(entries.find_tail()) if isinstance(entry, Commit)][::-1]
    read, highest = dict.fromkeys(log, 0), dict[int, int]()
    batches: list[Batch] = []
    mark: int | None = None
    for commit in commits:
        position: Any = commit.sources["rows"].position
        offsets = {int(number): offset for number, offset in position["topics"][topic]["offsets"].items()}
        new = {number: log[number][read[number] : offset] for number, offset in sorted(offsets.items())}
        batches.append(Batch([record for records in new.values() for record in records], mark))
        for number, records in new.items():
            if records:
                highest[number] = max([record.t for record in records] + [highest.get(number, records[0].t)])
        read |= offsets
        mark = min(highest.values()) - BOUND * S if len(highest) == PARTITIONS else None
    assert read == {number: len(records) for number, records in log.items()}, "all was read"
    assert mark is not None
    return batches, mark


def as_json(record: Record) -> bytes:
    at = datetime.fromtimestamp(record.t / S, UTC).isoformat()
    return json.dumps({"n": record.n, "k": record.k, "at": at}).encode()


def end_of(record: Record) -> int:
    """Return the end of the one window of a record."""
    return (record.t // (SIZE * S) + 1) * SIZE * S


def is_late(record: Record, watermark: int | None) -> bool:
    """Return whether the only window of a record is forgotten (2.5)."""
    return watermark is not None and end_of(record) <= watermark


def late_in(output: Mapping[str, Sequence[Any]], step: str) -> dict[int, int]:
    """Return the records that a step says are late, each once, and the watermark that it says of each."""
    rows = output[f"out_late_{step}"]
    assert len({row["n"] for row in rows}) == len(rows)
    return {row["n"]: micros(row["_watermark"]) for row in rows}


def rows_of(results: Sequence[Any]) -> list[tuple[str, int, list[int]]]:
    """Return key, end and the records of each result."""
    return sorted((row["k"], micros(row["window_end"]), sorted(row["rows"])) for row in results)


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * S)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)])
def test_each_record_is_late_or_in_each_result(
    kafka: Any, topic: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.1, 2.2, 2.3, 2.5, 2.10, 3, 7.6: through crashes and batches that limits cut, nothing but the log is believed.

    A partition has a pace of its own. Of each record the watermark of its batch follows from the offsets in the
    Commits, and says whether windows, sessions and the join take it. What they make of those is the definition.
    """
    monkeypatch.setattr(engine, "_FEW", 20)  # so that batches of one task and of several take turns
    kafka.create(topic, PARTITIONS)
    rng, numbers = random.Random(seed), count()
    log: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
    settings = DriverSettings(limits=lambda: Limits(rows=22))
    with Harness(job_of(kafka.address, topic), tmp_path, settings=settings) as h:
        for second in range(0, 42, 6):
            for number in log:
                new = written(rng, numbers, second + 3 * number)
                log[number] += new
                kafka.produce(topic, map(as_json, new), number)
            if stage := rng.choice([None, "FixOffsets", "Compute", "CommitBatch", "PublishSinks"]):
                h.crash_after(stage)
                with pytest.raises(Crashed):
                    h.batch()
                h.restart()
            h.batch()
        everything = [record for records in log.values() for record in records]
        while h.commit().totals["source:rows"]["read"] < len(everything):
            h.batch()
        output, totals = h.output(), h.commit().totals
    batches, last = batches_of(tmp_path, topic, log)

    late = {r.n: batch.watermark for batch in batches for r in batch.records if is_late(r, batch.watermark)}
    assert late_in(output, "windows") == late
    windows: dict[tuple[str, int], list[int]] = {}
    for record in (r for batch in batches for r in batch.records if r.n not in late):
        windows.setdefault((record.k, end_of(record)), []).append(record.n)
    assert rows_of(output["out_windows"]) == sorted((*of, sorted(ns)) for of, ns in windows.items() if of[1] <= last)

    model, sessions, late_for_sessions = SessionModel(gap=lambda _: GAP * S), [], {}
    for batch in batches:
        fed = [{"k": r.k, "t": r.t, "n": r.n, "at": at} for at, r in enumerate(batch.records)]
        made = model.batch(fed, late=batch.watermark, close=batch.watermark)
        sessions += [(row.key, row.end, [of["n"] for of in row.rows]) for row in made.closed]
        late_for_sessions |= dict.fromkeys(made.late, batch.watermark)
    sessions += [
        (row.key, row.end, [of["n"] for of in row.rows]) for row in model.batch([], late=last, close=last).closed
    ]
    assert rows_of(output["out_sessions"]) == sorted((k, end, sorted(ns)) for k, end, ns in sessions)
    assert late_in(output, "sessions") == late_for_sessions

    on_time = [r for b in batches for r in b.records if b.watermark is None or r.t >= b.watermark]
    pairs = [(a.k, a.n, b.n) for a in on_time for b in on_time if a.k == b.k and a.n % 2 == 0 and b.n % 2 == 1
             and abs(a.t - b.t) <= REACH * S]  # fmt: skip
    assert sorted((row["k"], row["l"], row["r"]) for row in output["out_pairs"]) == sorted(pairs)
    assert totals["join:pairs"]["late_left"] + totals["join:pairs"]["late_right"] == len(everything) - len(on_time)
    assert len(late) >= 5, "the test has rows that are late for windows"
    assert len(late_for_sessions) >= 5, "and for sessions"
    assert len(pairs) >= 20, "and pairs"
