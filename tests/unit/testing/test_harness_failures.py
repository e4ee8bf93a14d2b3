"""After an error, a crash or a refusal the test kit says what goes on, and is as it was."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from harness_jobs import copying, order, plain, values, windowed_job

from penstock import seconds
from penstock.errors import CannotRestore, JobError, StepsChanged, UserFunctionError
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(5, of="the Harness")

TEN = seconds(10)
STAGES = ["TakeOver", "FixOffsets", "Compute", "CommitBatch", "PublishSinks", "AckSources", "Purge"]


@pytest.mark.remedy("PEN-OPR-001")
def test_after_an_error_the_driver_has_ended_and_says_so(tmp_path: Path) -> None:
    """An ended driver gives no empty results; the restart does the batch again, with other code if given."""
    source = MemorySource("v int")
    with Harness(copying(source, w="10 div v"), tmp_path) as h:
        with pytest.raises(UserFunctionError):
            h.batch({"fed": [{"v": 0}]})
        for call in (h.batch, h.run, lambda: h.batch({"fed": [{"v": 1}]})):
            with pytest.raises(JobError, match=r"the driver ended with UserFunctionError.*call restart\(\)"):
                call()
        with pytest.raises(UserFunctionError):
            h.restart()
        with pytest.raises(JobError, match="the driver ended with UserFunctionError"):
            h.batch()
        assert h.restart(copying(source, w="try_divide(10, v)::long"))["out"] == [{"v": 0, "w": None}]
        assert values(h.batch({"fed": [{"v": 5}]})) == [5]


def test_after_a_start_that_failed_the_harness_says_so(tmp_path: Path) -> None:
    """Also where the job could not even be opened."""
    with Harness(copying(), tmp_path) as h:
        h.batch({"fed": [{"v": 1}]})
        with pytest.raises(JobError, match="nowhere"):
            h.restart(copying(w="nowhere + 1"))
        with pytest.raises(JobError, match=r"the driver ended with .*nowhere.*call restart\(\)"):
            h.run()
        h.restart(copying())
        assert values(h.batch({"fed": [{"v": 2}]})) == [2]


def test_after_a_crash_only_a_restart_goes_on(tmp_path: Path) -> None:
    """What died is dead."""
    with Harness(copying(), tmp_path) as h:
        h.crash_before("Compute")
        with pytest.raises(Crashed):
            h.batch({"fed": [{"v": 1}]})
        for call in (h.batch, h.run, lambda: h.batch({"fed": [{"v": 9}]})):
            with pytest.raises(JobError, match=r"after a crash, call restart\(\) first"):
                call()
        assert values(h.restart()) == [1]
        assert values(h.batch({"fed": [{"v": 2}]})) == [2]


def test_a_refused_restore_leaves_the_harness_as_it_was(tmp_path: Path) -> None:
    """SEMANTICS 10.1: a batch that is not kept cannot be restored, and nothing has happened."""
    with Harness(copying(), tmp_path) as h:
        h.batch({"fed": [{"v": 1}]})
        with pytest.raises(CannotRestore, match="99"):
            h.restore(batch=99)
        assert values(h.batch({"fed": [{"v": 2}]})) == [2]
        wrong: tuple[dict[str, Any], ...] = ({}, {"batch": 0, "empty": True})
        for arguments in wrong:
            with pytest.raises(JobError, match="say what to restore"):
                h.restore(**arguments)
        assert values(h.batch({"fed": [{"v": 3}]})) == [3]


def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(tmp_path: Path) -> None:
    """Stages, hooks, steps, sources and late streams."""
    with Harness(windowed_job(Tumbling(TEN).drop_late()), tmp_path) as h:
        for stage in ("Comit", "compute", ""):
            with pytest.raises(JobError, match=", ".join([*STAGES, "Release", "Restore", "Truncate", "Wait"])):
                h.crash_after(stage)
        with pytest.raises(JobError, match="Commit"):
            h.crash_before("Commit")
        with pytest.raises(JobError, match="before, surveyed, claimed, after, done"):
            h.crash_at("TakeOver", "during")
        with pytest.raises(JobError, match="'Wait' has no hook 'after'; there is before"):
            h.crash_after("Wait")
        with pytest.raises(JobError, match=r"'v'.*\['w'\]"):
            h.state("v")
        with pytest.raises(JobError, match=r"'order'.*\['orders'\]"):
            h.batch({"order": [order("a", 1)], "orders": [order("a", 2)]})
        with pytest.raises(JobError, match="'late'"):
            h.late("late")
        assert h.state("w") == []
        h.batch({"orders": [order("a", 3)]})
        assert [row["_rows"] for row in h.state("w")] == [1], "the rows of a call that was refused were not fed"


@pytest.mark.parametrize("stage", ["Restore", "Release"])
def test_a_driver_can_be_stopped_dead_while_it_restores_or_leaves(tmp_path: Path, stage: str) -> None:
    """A crash before the entry leaves the job where it was; the next start takes over all the same."""
    with Harness(copying(), tmp_path) as h:
        h.batch({"fed": [{"v": 1}]})
        h.batch({"fed": [{"v": 2}]})
        h.crash_before(stage)
        with pytest.raises(Crashed):
            h.restore(batch=0)
        assert h.restart() == {"out": []}
        assert values(h.batch({"fed": [{"v": 3}]})) == [3]


def test_a_crash_behind_the_restore_has_restored(tmp_path: Path) -> None:
    """The entry stands in the log: the next start goes on from the batch it names."""
    with Harness(copying(), tmp_path) as h:
        h.batch({"fed": [{"v": 1}]})
        h.batch({"fed": [{"v": 2}]})
        h.crash_after("Restore")
        with pytest.raises(Crashed):
            h.restore(batch=0)
        with pytest.raises(JobError, match=r"call restart\(\) first"):
            h.batch()
        assert h.restart() == {"out": []}
        assert values(h.batch({"fed": [{"v": 3}]})) == [2, 3]


def test_times_and_rows_that_are_none_are_refused_before_the_batch(tmp_path: Path) -> None:
    """API, test kit: a time is a number or a datetime, a row a dict; the harness then is as it was."""
    with Harness(copying(), tmp_path) as h:
        for at in ("1", True, float("nan"), b"1"):
            for call in (lambda at=at: h.batch(at=at), lambda at=at: h.batch(watermark=at)):
                with pytest.raises(JobError, match="a time of the harness is"):
                    call()
        for rows in ({"v": 1}, None, 5, "v", [5], [[{"v": 1}], [5]], [{"v": 1}, [{"v": 2}]]):
            with pytest.raises(JobError, match="of source 'fed' (is|are)"):
                h.batch({"fed": rows})
        for given in ([{"v": 1}], "fed", 5):
            with pytest.raises(JobError, match="maps sources to rows"):
                h.batch(given)  # type: ignore[arg-type]
        assert values(
            h.batch({"fed": [[{"v": 1}], ({"v": 2},), []]}, at=datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))
        ) == [1, 2]
        assert h.commit().time == 5_000_000


def test_a_refused_restart_leaves_for_later_what_the_last_call_left(tmp_path: Path) -> None:
    """Neither a start that fails nor a refused restore runs what follow=False has put off."""
    with Harness(windowed_job(Tumbling(TEN).drop_late()), tmp_path) as h:
        h.batch({"orders": [order("a", 1, 5), order("a", 11)]}, follow=False)
        with pytest.raises(CannotRestore):
            h.restore(batch=99)
        with pytest.raises(StepsChanged):
            h.restart(windowed_job(Tumbling(seconds(20)).drop_late()))
        assert h.restart(windowed_job(Tumbling(TEN).drop_late())) == {"out": []}
        assert plain(h.batch()["out"]) == [("a", 0.0, 10.0, 1, 5)]
