"""A value that Arrow holds and Python does not, or that does not fit, is a row's fault and not the job's (F74)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Job
from penstock.errors import UnfitValue, UserFunctionError, WrongOutput
from penstock.sinks import MemorySink
from penstock.sources import FileReplay, MemorySource
from penstock.state import OnError
from penstock.testing import Harness

pytestmark = pytest.mark.fault("F74")
BEYOND = 400_000_000_000_000_000
"""Microseconds: in the year 14645, as where milliseconds were read as seconds."""
FORMS = ["map_with_state", "update_state_by_key"]


def counted(time, key, row, state):
    n = state.get_or({"n": 0})["n"] + 1
    state.update(n=n)
    return {"k": key, "n": n}


def summed(values, old):
    return (old or 0) + len(values)


def far_job(path: Path, form: str, *, key: str = "k", aside: bool = False) -> Job:
    job = Job("far", partitions=2)
    rows = job.source("rows", FileReplay(path, order_by="id", rows_per_batch=3)).key_by(key)
    more: dict[str, Any] = {"on_error": OnError.QUARANTINE} if aside else {}
    if form == "map_with_state":
        options = {"output": "k timestamp, n long" if key == "t" else "k string, n long", "unbounded": True}
        made = rows.map_with_state("step", counted, state="n long", **options, **more)
    else:
        made = rows.update_state_by_key("step", summed, value="t", state="n long", touched_only=True, **more)
    made.select("n").write("out", MemorySink())
    if aside:
        job.quarantine("step").select("id", "_error").write("aside", MemorySink())
    return job


@pytest.fixture
def far(tmp_path: Path) -> Path:
    path = tmp_path / "far.parquet"
    times = pa.array([1_000_000, BEYOND, 2_000_000, 3_000_000], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"id": [1, 2, 3, 4], "k": ["a", "a", "a", "b"], "t": times}), path)
    return path


@pytest.mark.sample(1)
@pytest.mark.remedy("PEN-OPR-020")
@pytest.mark.parametrize("form", FORMS)
def test_a_moment_beyond_the_calendar_is_named_and_can_be_put_aside(tmp_path: Path, far: Path, form: str) -> None:
    """The error names step, column and row; the remedy lets the same batch through, and only that row aside."""
    with Harness(far_job(far, form), tmp_path / "job") as h:
        with pytest.raises(UnfitValue, match="step 'step': column 't' of") as met:
            h.run()
        if form == "map_with_state":
            assert "the row at position 1 of source partition 0" in str(met.value)
        assert "on_error=OnError.QUARANTINE" in met.value.remedy
        out = h.restart(far_job(far, form, aside=True))
        rest = h.run()
        aside = [row["id"] for row in out["aside"] + rest["aside"]]
        assert aside == ([2] if form == "map_with_state" else [1, 2, 3])  # all values of a key come in one call
        kept = sorted(row["n"] for row in h.output()["out"])
        assert kept == ([1, 1, 2] if form == "map_with_state" else [1])
        assert "no Python object" in (out["aside"] + rest["aside"])[0]["_error"]


def test_a_key_beyond_the_calendar_is_put_aside_too(tmp_path: Path, far: Path) -> None:
    """A key column is no exception: its rows go to quarantine, the others are counted."""
    with Harness(far_job(far, "map_with_state", key="t", aside=True), tmp_path / "job") as h:
        out = h.run()
        assert [row["id"] for row in out["aside"]] == [2]
        assert [row["n"] for row in out["out"]] == [1, 1, 1]


def wrong_rows(time, key, row, state):
    state.update(n=row["v"])
    return {"k": key, "n": "text" if row["v"] == 13 else row["v"]}


def wrong_state(time, key, row, state):
    state.update(n="text" if row["v"] == 13 else row["v"])
    return {"k": key, "n": row["v"]}


def wrong_update(values, old):
    return "text" if 13 in values else sum(values)


def wrong_table(rows, state, info):
    if 13 in rows["v"].to_pylist():
        return pa.table({"k": rows["k"], "n": ["text"] * rows.num_rows}), state
    return pa.table({"k": rows["k"], "n": rows["v"]}), pa.table({"n": rows["v"]})


WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "output": ("map_with_state", wrong_rows),
    "state": ("map_with_state", wrong_state),
    "update": ("update_state_by_key", wrong_update),
    "arrow": ("map_with_state_arrow", wrong_table),
}


def wrong_job(what: str, *, aside: bool) -> Job:
    form, fn = WRONG[what]
    job = Job("wrong", partitions=1)
    keyed = job.source("rows", MemorySource("k string, v long")).key_by("k")
    more: dict[str, Any] = {"on_error": OnError.QUARANTINE} if aside else {}
    if form == "update_state_by_key":
        made = keyed.update_state_by_key("step", fn, value="v", state="n long", touched_only=True, **more)
    else:
        options = {"state": "n long", "output": "k string, n long", "unbounded": True}
        made = getattr(keyed, form)("step", fn, **options, **more)
    made.write("out", MemorySink())
    if aside:
        job.quarantine("step").write("aside", MemorySink())
    return job


@pytest.mark.sample(2)
@pytest.mark.remedy("PEN-OPR-004")
@pytest.mark.parametrize("what", WRONG)
def test_a_result_that_does_not_fit_is_a_rows_fault(tmp_path: Path, what: str) -> None:
    """Refused with step and column; with quarantine the same batch goes on, and the key's state is as it was."""
    rows = [{"k": "a", "v": 1}, {"k": "b", "v": 13}]
    with Harness(wrong_job(what, aside=False), tmp_path) as h:
        h.batch({"rows": [{"k": "b", "v": 2}]})
        with pytest.raises(WrongOutput, match="column 'n' of .*step 'step'") as met:
            h.batch({"rows": rows})
        assert what == "arrow" or "for key 'b'" in str(met.value)
        out = h.restart(wrong_job(what, aside=True))
        assert [row["k"] for row in out["aside"]] == (["a", "b"] if what == "arrow" else ["b"])
        assert [(row["k"], row["n"]) for row in out["out"]] == ([] if what == "arrow" else [("a", 1)])
        kept = {row["k"]: row["n"] for row in h.state("step")}
        assert kept == ({"b": 2} if what == "arrow" else {"a": 1, "b": 2})
        assert h.commit().accounting["function:step"]["quarantined"] == len(out["aside"])


def test_what_a_function_raises_is_still_its_own_error(tmp_path: Path) -> None:
    """Only values that do not fit are named so: an exception keeps its name and line (PEN-OPR-001)."""

    def broken(time, key, row, state):
        raise KeyError("nothing")

    job = Job("broken")
    job.source("rows", MemorySource("k string")).key_by("k").map_with_state(
        "step", broken, state="n long", output="k string", unbounded=True
    ).write("out", MemorySink())
    with Harness(job, tmp_path) as h, pytest.raises(UserFunctionError, match="KeyError.*key 'a'") as met:
        h.batch({"rows": [{"k": "a"}]})
    assert met.value.code == "PEN-OPR-001"
