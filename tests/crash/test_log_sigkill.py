"""A driver loop without Spark on a real disk, killed by SIGKILL at any moment, again and again."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore

ROUNDS = 4

CHILD = """
import sys
from checkpoint_samples import Driver
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.log.log import Log
driver = Driver(Log(LocalStore(sys.argv[1]), stride=16), sys.argv[2])
while not driver.start():
    pass
for _ in driver.run(1_000_000):
    pass
"""


@pytest.mark.slow
@pytest.mark.fault("F01", "F13", "F15", "F30")
def test_a_log_on_disk_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    """Every entry is whole, no batch is committed twice or left out, purging included; temporary files are swept."""
    store = LocalStore(tmp_path / "checkpoint")
    log, rng, recovered = Log(store, stride=16), random.Random(5), None
    for number in range(ROUNDS):
        start = log.find_tail()
        child = subprocess.Popen([sys.executable, "-c", CHILD, store.root, f"w{number}"])
        try:
            for _ in range(6_000):
                if log.find_tail() > start + 40 or child.poll() is not None:
                    break
                time.sleep(0.005)
            time.sleep(rng.random() / 100)
        finally:
            child.kill()
        assert child.wait() == -9
        before, recovered = recovered, recover(log)
        assert recovered.damaged == ()
        assert recovered.commit
        assert recovered.next_batch == recovered.commit.batch + 1
        assert recovered.last_takeover
        assert (recovered.last_takeover.writer, recovered.last_takeover.epoch) == (f"w{number}", number + 1)
        assert before is None or recovered.next_batch > before.next_batch
    store.janitor(0, now=time.time() + 1)
    assert list(Path(store.root).rglob(".tmp-*")) == []
    assert len(store.list("log")) < 16 * 4 + ROUNDS + log.find_tail() // 16
