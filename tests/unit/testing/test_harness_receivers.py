"""Receivers run in the test kit as they do beside a driver of production (API, SEMANTICS 8.6, 10.6)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pushing import Acknowledging, Sender, until

from penstock import Job, ReceiverInfo, seconds
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import BlockDamaged, BlocksGone
from penstock.receivers import Receiver
from penstock.receivers.block_log import BEGINNING, BlockLog
from penstock.receivers.blocks import rows_in
from penstock.sinks import MemorySink
from penstock.sources import Receive
from penstock.testing import Crashed, Harness

pytestmark = pytest.mark.slow


class Taking(Receiver):
    """Take five rows, for which no block is written before the receiver ends, and say so in a file."""

    def __init__(self, taken: str) -> None:
        self.taken = taken

    def on_start(self) -> None:
        """Take them, and wait."""
        for k in range(5):
            self.submit({"k": k})
        Path(self.taken).touch()
        self.stopping.wait()


class Heard:
    """A listener that notes what happens to receivers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_receiver_started(self, info: ReceiverInfo) -> None:
        """Note a start."""
        self.events.append(f"started {info.epoch}")

    def on_receiver_stopped(self, info: ReceiverInfo) -> None:
        """Note an end."""
        self.events.append(f"stopped {info.epoch}")


def test_receivers_live_as_long_as_the_driver(tmp_path: Path) -> None:
    """F47: a crash of the driver ends them, a restart begins others, and each acknowledged row is read once."""
    heard, job = Heard(), Job("received", partitions=1)
    job.source("rows", Receive(Acknowledging(str(tmp_path)), schema="k long")).write("out", MemorySink())
    job.listen(heard)
    sender = Sender(tmp_path)
    with Harness(job, tmp_path / "checkpoints") as h:
        sender.until_more(3)
        known = len(sender.acknowledged)
        assert len(h.batch()["out"]) >= known
        sender.until_more(1)
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.run()
        assert heard.events == ["started 1", "stopped 1"]
        known = len(sender.acknowledged)
        assert len(h.restart()["out"]) >= 1
        sender.until_more(1)
        sender.stop()
        h.run()
        read = [row["k"] for row in h.output()["out"]]
        assert len(sender.acknowledged) > known
        assert set(sender.acknowledged) <= set(read)
        assert len(read) == len(set(read))
    # A receiver that stops has ended its epoch: another one begins in the next but one.
    assert heard.events == ["started 1", "stopped 1", "started 3", "stopped 3"]


@pytest.mark.remedy("PEN-SRC-031")
@pytest.mark.fault("F18")
def test_a_job_that_begins_with_nothing_reads_all_blocks_but_the_lost_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """F47: a block in the middle refused `--from empty` as well, which its remedy names; now the log counts it."""
    job = Job("holed", partitions=1)
    job.source("rows", Receive(Acknowledging(str(tmp_path)), schema="k long")).write("out", MemorySink())
    sender = Sender(tmp_path)
    log = BlockLog(LocalFolder(tmp_path / "checkpoints" / "holed").store(), "rows-0")
    with Harness(job, tmp_path / "checkpoints") as h:
        sender.until_more(2)
        h.batch()
        sender.until_more(3)
        sender.stop()
        *_, lost, _ = [place for place, _ in log.follow(BEGINNING)]
        (row,) = rows_in(
            log.store.read(log.path(lost)), receiver=log.receiver, place=lost, path=log.path(lost)
        )["k"].to_pylist()  # fmt: skip
        log.store.delete(log.path(lost))
        with pytest.raises(BlocksGone):
            h.restart()
        h.restore(empty=True)
        before = len(h.output()["out"])
        h.run()
        read = [each["k"] for each in h.output()["out"][before:]]
    assert sorted(read) == sorted({*sender.acknowledged} - {row})
    warned = capfd.readouterr()
    assert "receiver.blocks_passed_over" in warned.out + warned.err


@pytest.mark.remedy("PEN-SRC-031")
@pytest.mark.fault("F18", "F47")
def test_a_job_whose_blocks_are_all_gone_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """10.1: it went on as if its receiver had taken nothing.

    Numbers continue after `--from empty`, so no position of the log names other rows.
    """
    job = Job("emptied", partitions=1)
    job.source("rows", Receive(Acknowledging(str(tmp_path)), schema="k long")).write("out", MemorySink())
    sender = Sender(tmp_path)
    blocks = tmp_path / "checkpoints" / "emptied" / "blocks"
    with Harness(job, tmp_path / "checkpoints") as h:
        sender.until_more(2)
        h.batch()
        sender.stop()
        h.run()
        _, reached = h.commit().sources["rows"].position["receivers"]["0"]
        shutil.rmtree(blocks)
        with pytest.raises(BlocksGone, match="folder of epoch 1"):
            h.restart()
        h.restore(empty=True)
        before, again = len(h.output()["out"]), Sender(tmp_path)
        again.until_more(2)
        again.stop()
        h.run()
        read = [each["k"] for each in h.output()["out"][before:]]
        assert {*again.acknowledged} <= {*read} <= {*again.sent}
        assert len(read) == len({*read})
        _, number = h.commit().sources["rows"].position["receivers"]["0"]
        assert number > reached > 0
    warned = capfd.readouterr()
    assert "receiver.blocks_passed_over" in warned.out + warned.err


@pytest.mark.remedy("PEN-SRC-041")
@pytest.mark.fault("F13")
@pytest.mark.parametrize("at", [9, -9], ids=["its head", "its rows"])
def test_a_damaged_block_that_is_not_read_yet_names_what_leads_past_it(tmp_path: Path, at: int) -> None:
    """F47: the error told to restore a batch, each of which reads on to the same block."""
    job = Job("damaged", partitions=1)
    job.source("rows", Receive(Acknowledging(str(tmp_path)), schema="k long")).write("out", MemorySink())
    sender = Sender(tmp_path)
    log = BlockLog(LocalFolder(tmp_path / "checkpoints" / "damaged").store(), "rows-0")
    with Harness(job, tmp_path / "checkpoints") as h:
        sender.until_more(2)
        h.batch()
        sender.until_more(3)
        sender.stop()
        *_, last, _ = [place for place, _ in log.follow(BEGINNING)]
        path = tmp_path / "checkpoints" / "damaged" / log.path(last)
        whole = path.read_bytes()
        (row,) = rows_in(whole, receiver=log.receiver, place=last, path=str(path))["k"].to_pylist()
        path.chmod(0o600)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BlockDamaged, match="--from empty") as caught:
            _ = h.restart(), h.run()  # its head stops the start, its rows the batch
        assert log.path(last) in str(caught.value)
        h.restore(empty=True)
        before = len(h.output()["out"])
        h.run()
        read = [each["k"] for each in h.output()["out"][before:]]
    assert sorted(read) == sorted({*sender.acknowledged} - {row})


def test_a_drain_reads_what_receivers_have_taken(tmp_path: Path) -> None:
    """SEMANTICS 10.6, F47: they end before the end of the run is fixed, else acknowledged rows would never be read."""
    job = Job("drained", partitions=1)
    source = Receive(Taking(str(tmp_path / "taken")), schema="k long", block_interval=seconds(50))
    job.source("rows", source).write("out", MemorySink())
    with Harness(job, tmp_path / "checkpoints") as h:
        until((tmp_path / "taken").exists)
        assert [row["k"] for row in h.drain()["out"]] == [*range(5)]
