"""No timer is lost when a step calls its function in another form (SEMANTICS 7.8, F51)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import EveryBatches, Job
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import StepsChanged
from penstock.runtime.spark.engine import SparkEngine
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import BATCH
from penstock.testing import Harness
from penstock.testing.environment import session_of_tests

pytestmark = pytest.mark.fault("F51")
START = datetime(1970, 1, 1, tzinfo=UTC)
OTHERS = ["map_with_state_arrow", "update_state_by_key"]


def ring(time, key, row, state):
    """Remember a key; ring at the time that a row says."""
    if row is None:
        return {"k": key, "n": -1}
    state.update(n=1)
    if row["v"]:
        state.set_timer(START + timedelta(seconds=row["v"]), clock=BATCH)
    return None


def passed(rows, state, info):
    return None, state


def make_job(form: str, *, every: int = 0, name: str = "step", partitions: int = 2) -> Job:
    job = Job("forms", partitions=partitions)
    if every:
        job.checkpoint(every=EveryBatches(every))
    keyed = job.source("rows", MemorySource("k string, v long")).key_by("k")
    if form == "map_with_state":
        made = keyed.map_with_state(name, ring, state="n long", output="k string, n long", unbounded=True)
    elif form == "map_with_state_arrow":
        made = keyed.map_with_state_arrow(name, passed, state="n long", output="k string, n long", unbounded=True)
    else:
        made = keyed.update_state_by_key(name, lambda values, old: old, state="n long", touched_only=True)
    made.write("out", MemorySink())
    return job


def row(k: str, v: int) -> dict[str, Any]:
    return {"k": k, "v": v}


@pytest.mark.parametrize("form", OTHERS)
def test_a_form_without_timers_is_refused_while_one_waits(tmp_path: Path, form: str) -> None:
    """The refusal names the timers; back in its old form the step fires them (SEMANTICS 7.8)."""
    with Harness(make_job("map_with_state"), tmp_path) as h:
        h.batch({"rows": [row("a", 11), row("b", 0)]}, at=1)
        with pytest.raises(StepsChanged, match="timers wait in it, which only map_with_state fires"):
            h.restart(make_job(form))
        h.restart(make_job("map_with_state"))
        assert h.batch({"rows": [row("c", 0)]}, at=20, follow=False)["out"] == [{"k": "a", "n": -1}]
        h.restart(make_job(form))
        h.batch({"rows": [row("a", 0)]}, at=21)


@pytest.mark.parametrize("form", OTHERS)
def test_a_diff_says_so_too(tmp_path: Path, form: str) -> None:
    """`penstock diff` compares what the start compares, timers included."""
    with Harness(make_job("map_with_state"), tmp_path) as h:
        h.batch({"rows": [row("a", 11)]}, at=1)
    folder = tmp_path / "forms"
    engine = SparkEngine(make_job(form).graph(), session_of_tests(), folder=folder, suites={})
    (step,) = [finding for finding in engine.compare(recover(Log(LocalStore(folder)))) if finding.name == "step"]
    assert isinstance(step.refusal, StepsChanged)
    assert any("timers wait" in clause for clause in step.says)


def test_a_restore_that_writes_state_anew_loses_none_either(tmp_path: Path) -> None:
    """Neither other partitions nor a data checkpoint are a way round it (SEMANTICS 10.1)."""
    with Harness(make_job("map_with_state", every=1), tmp_path) as h:
        h.batch({"rows": [row("a", 11), row("b", 12)]}, at=1)
        h.batch({"rows": [row("c", 0)]}, at=2)
        other = make_job("map_with_state_arrow", every=1, partitions=3)
        with pytest.raises(StepsChanged, match="timers wait"):
            h.restore(batch=1, partitions=3, job=other)
        h.restart(make_job("map_with_state", every=1))
        with pytest.raises(StepsChanged, match="timers wait"):
            h.restore(snapshot="0", job=make_job("map_with_state_arrow", every=1))
        h.restart(make_job("map_with_state", every=1))
        assert h.batch({"rows": [row("d", 0)]}, at=20, follow=False)["out"] == [
            {"k": "a", "n": -1},
            {"k": "b", "n": -1},
        ]
