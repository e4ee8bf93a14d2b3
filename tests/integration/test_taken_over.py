"""A supervised stream whose driver is silenced, or loses its log to one that a person starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from project_samples import make_project
from shells import PATIENCE
from yards import QUICK, Yard

from penstock.checkpoint.entries import Commit, Takeover
from penstock.supervise.stream import Phase

KEEP_ALL = "\n[checkpoint]\nkeep = 10000\n"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def yard(tmp_path) -> Iterator[Yard]:
    """Orders for many small batches, and a supervisor."""
    found = Yard(make_project(tmp_path / "project", rows=20_000, rows_per_batch=20_000, more=QUICK + KEEP_ALL))
    found.supervise()
    yield found
    found.end()


def test_a_silent_driver_is_shown_and_a_take_over_by_hand_is_not_fought(yard):
    """The driver that a person starts with --take-over runs on and is watched; when it ends, the stream goes on."""
    assert yard.json("start", "orders", "--wait")["outcome"] == "done"
    yard.until_commits(3)
    driver = yard.pid()
    os.kill(driver, signal.SIGSTOP)
    shown = yard.until(lambda s: s.phase is Phase.UNHEALTHY)
    assert "no sign of life" in shown.reason
    os.kill(driver, signal.SIGCONT)
    yard.until(lambda s: s.phase is Phase.RUNNING)
    assert (yard.pid(), yard.stream().generation) == (driver, 1)

    mine = yard.start("run", "orders", "--take-over", "--json")
    watched = yard.until(lambda s: s.driver is not None and s.driver.foreign)
    assert (yard.pid(), watched.phase, watched.generation, watched.failures) == (mine.pid, Phase.RUNNING, 1, ())
    epoch = yard.entries(Takeover)[-1].epoch
    committed = len([c for c in yard.entries(Commit) if c.epoch == epoch])
    yard.until(lambda _: len([c for c in yard.entries(Commit) if c.epoch == epoch]) >= committed + 10)
    assert (mine.poll(), yard.entries(Takeover)[-1].epoch, yard.stream().driver.foreign) == (None, epoch, True)

    mine.send_signal(signal.SIGINT)
    mine.communicate(timeout=PATIENCE)
    after = yard.until(lambda s: s.phase is Phase.RUNNING and s.driver is not None and not s.driver.foreign)
    assert (after.first, after.generation, after.failures) == (1, 2, ())
