"""State that a step begins with (SEMANTICS 7.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock import Job, seconds
from penstock.errors import BadExpression, JobError, StateError
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import idle
from penstock.testing import Crashed, Harness

SEED = [("a", 10), ("b", 20), (None, 30)]


def at(second: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def count(time, key, row, state):
    """Add the row's value; tell what a key had when it times out."""
    if state.is_timing_out():
        return {"k": key, "n": -state.get()["n"]}
    state.update(n=state.get_or({"n": 0})["n"] + row["v"])
    return {"k": key, "n": state.get()["n"]}


def job_of(initial: Any, *, form: str = "map_with_state", **more: Any) -> Job:
    job = Job("seeded", partitions=3)
    rows = job.source("rows", MemorySource("k string, v long"))
    options = {"state": "n long", "initial": initial, **more}
    if form == "map_with_state":
        options = {"output": "k string, n long", "unbounded": "timeout" not in more, **options}
    fn = count if form == "map_with_state" else lambda values, old: (old or 0) + sum(values)
    getattr(rows.key_by("k"), form)("step", fn, **options).write("out", MemorySink())
    return job


def fed(h: Harness, *rows: tuple[str | None, int], **more: Any) -> list[tuple]:
    out = h.batch({"rows": [{"k": k, "v": v} for k, v in rows]}, **more)["out"]
    return sorted(((r["k"], r["n"]) for r in out), key=str)


def kept(h: Harness) -> dict[str | None, int]:
    return {r["k"]: r["n"] for r in h.state("step")}


@pytest.fixture
def seed(spark):
    """A function that gives the state, and counts how often it was asked."""
    asked = []

    def frame():
        asked.append(1)
        return spark.createDataFrame([(n, k) for k, n in SEED], "n int, k string")

    frame.asked = asked
    return frame


def test_rows_find_the_state_that_was_loaded(tmp_path, seed):
    """Keys that no row has come for as well; loaded before the first batch, and not at another start."""
    with Harness(job_of(seed), tmp_path) as h:
        assert kept(h) == {}
        assert fed(h, ("a", 1), (None, 2), ("c", 3)) == [("a", 11), ("c", 3), (None, 32)]
        assert kept(h) == {"a": 11, "b": 20, None: 32, "c": 3}
        assert h.commit().accounting["function:step"] == {"rows": 3, "merged": 3}
        asked = len(seed.asked)
        h.restart()
        assert fed(h, ("b", 1)) == [("b", 21)]
        assert len(seed.asked) == asked
        h.restore(empty=True)
        fed(h, ("b", 2))
        assert kept(h) == {"a": 11, "b": 23, None: 32, "c": 3}, "all rows again, upon what the job began with"


@pytest.mark.sample(1)
@pytest.mark.parametrize("hook", [("Compute", "after"), ("CommitBatch", "after")], ids=" ".join)
def test_a_crash_in_the_first_batch_loads_it_once(tmp_path, seed, hook):
    """Before the Commit again, behind it never."""
    with Harness(job_of(seed), tmp_path) as h:
        h.crash_at(*hook)
        with pytest.raises(Crashed):
            fed(h, ("a", 1))
        h.restart()
        assert kept(h) == {"a": 11, "b": 20, None: 30}
        assert fed(h, ("a", 1)) == [("a", 12)]


def test_a_table_by_its_name_and_every_key_of_an_update(tmp_path, spark, seed):
    """In the batch that loads it, too."""
    seed().createOrReplaceTempView("seed_of_state")
    with Harness(job_of("seed_of_state", form="update_state_by_key"), tmp_path) as h:
        assert fed(h, ("a", 1)) == [("a", 11), ("b", 20), (None, 30)]
        assert fed(h) == [("a", 11), ("b", 20), (None, 30)]
    spark.catalog.dropTempView("seed_of_state")


def test_a_table_by_its_path(tmp_path, monkeypatch):
    """As `conf.table` gives it, or as a text with a slash; a relative one begins at the folder of the job."""
    write_deltalake(tmp_path / "totals", pa.table({"k": [k for k, _ in SEED], "n": [n for _, n in SEED]}))
    monkeypatch.chdir(tmp_path)
    for place, path in enumerate([tmp_path / "totals", Path("totals"), "./totals"]):
        with Harness(job_of(path), tmp_path / str(place)) as h:
            assert fed(h, ("a", 1)) == [("a", 11)]
            assert kept(h) == {"a": 11, "b": 20, None: 30}


def test_what_was_loaded_times_out_as_if_its_last_row_had_come_at_the_zero_time(tmp_path, seed):
    """7.2 holds for it."""
    with Harness(job_of(seed, timeout=idle(seconds(5))), tmp_path) as h:
        assert fed(h, ("a", 1), at=1) == [("a", 11)]
        assert {r["k"]: r["_expires"] for r in h.state("step")} == {"a": at(6), "b": at(5), None: at(5)}
        assert fed(h, at=6) == [("b", -20), (None, -30)]
        assert fed(h, at=7) == [("a", -11)]


def test_a_key_with_two_states_is_refused(tmp_path, spark):
    """Which of them counts nobody can tell; NaN and -0.0 are as in the rows."""
    twice = job_of(lambda: spark.createDataFrame([("a", 1), ("a", 2)], "k string, n long"))
    with pytest.raises(StateError, match="1 more rows than keys"), Harness(twice, tmp_path) as h:
        fed(h, ("a", 1))


UNFIT = {
    "a column is missing": (lambda spark: spark.range(1), BadExpression, "has no column 'k'; it has id"),
    "no table there": (lambda spark: "./nothing", BadExpression, "Path does not exist: /"),
    "no frame": (lambda spark: 7, BadExpression, "gave a int, not a DataFrame"),
    "a type that cannot be": (
        lambda spark: spark.createDataFrame([("a", [1])], "k string, n array<int>"), BadExpression, "ARRAY<INT>",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNFIT)
def test_state_that_cannot_be_loaded_is_refused_before_the_first_batch(tmp_path, spark, what):
    """With the user's line."""
    made, kind, message = UNFIT[what]
    seed = made(spark)
    with pytest.raises(kind) as raised, Harness(job_of(seed if isinstance(seed, str) else lambda: seed), tmp_path):
        pass
    assert message in str(raised.value)
    assert "test_state_loader.py:" in str(raised.value.where)


def test_what_is_neither_a_name_nor_a_function_is_refused():
    """When the job is built."""
    with pytest.raises(JobError, match="initial= of step 'step' is 5"):
        job_of(5)
