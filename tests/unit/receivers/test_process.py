"""A receiver's process takes its order from the driver, and writes until it may not (F25, F47)."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import received_blocks
from faulty_store import Fault, FaultyStore, Lasting, Plan
from pushing import Counting, until

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import store_at
from penstock.errors import BlocksGone, CheckpointError, StorageDenied, StorageUnavailable
from penstock.receivers.block_log import BEGINNING, BlockChain, BlockLog
from penstock.receivers.blocks import Place
from penstock.receivers.process import ReceiverOrder, Running, read_order, write_order


def order_at(folder: Path, count: int = 3) -> ReceiverOrder:
    """Return an order to count, in a new epoch of a folder."""
    return received_blocks.order_at(folder, Counting(count))


class InThisProcess(Running):
    """A receiver in this process, and its events."""

    def __init__(self, order: ReceiverOrder) -> None:
        self.events: list[Mapping[str, Any]] = []
        super().__init__(order, self.events.append)

    def on_thread(self) -> threading.Thread:
        """Serve on a thread."""
        thread = threading.Thread(target=self.serve, daemon=True)
        thread.start()
        return thread


def test_an_order_goes_through_a_pipe(tmp_path: Path) -> None:
    """Whole, or the driver is gone."""
    order, pipe = order_at(tmp_path / "job"), io.BytesIO()
    write_order(order, pipe)
    data = pipe.getvalue()
    read = read_order(io.BytesIO(data))
    assert (read.place, read.log, read.checkpoint) == (order.place, order.log, order.checkpoint)
    for cut in (0, 5, len(data) - 1):
        with pytest.raises(EOFError):
            read_order(io.BytesIO(data[:cut]))


def test_blocks_have_the_copies_that_the_order_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On HDFS; elsewhere a store has no copies."""
    asked: list[int | None] = []

    def noting(address: str, *, replication: int | None) -> Any:
        asked.append(replication)
        return store_at(address, replication=None)

    monkeypatch.setattr("penstock.receivers.process.store_at", noting)
    InThisProcess(replace(order_at(tmp_path / "job"), replication=2))
    assert asked == [2]


def test_a_receiver_stores_until_it_is_stopped(tmp_path: Path) -> None:
    """Its events say how much, and why it has ended."""
    running = InThisProcess(order_at(tmp_path / "job"))
    thread = running.on_thread()
    until(lambda: {"event": "stored", "rows": 3} in running.events)
    running.command({"rate": 5.0})
    running.command({"stop": True})
    thread.join(30)
    assert running.events[0] == {"event": "started"}
    assert running.events[-1] == {"event": "ended", "reason": "stopped", "error": None}


@pytest.mark.fault("F47")
def test_the_newest_block_of_a_receiver_that_has_stopped_is_missed(tmp_path: Path) -> None:
    """Decision 225: it ends its epoch, so that a block that is deleted before the next start leaves a hole."""
    running = InThisProcess(order_at(tmp_path / "job"))
    thread = running.on_thread()
    until(lambda: {"event": "stored", "rows": 3} in running.events)
    running.command({"stop": True})
    thread.join(30)
    log = BlockLog(LocalFolder(tmp_path / "job").store(), "s-0")
    (newest, _) = list(log.follow(BEGINNING))[-1]
    log.store.delete(log.path(newest))
    with pytest.raises(BlocksGone, match=f"block {newest.number:,} of epoch {newest.epoch} is gone"):
        BlockChain.opened(log, BEGINNING)
    with pytest.raises(BlocksGone):
        log.end_epochs(BEGINNING)


@pytest.mark.fault("F25")
@pytest.mark.parametrize("error", [StorageUnavailable, StorageDenied])
def test_a_receiver_stops_though_its_store_is_away(error: type[CheckpointError], tmp_path: Path) -> None:
    """Decision 225: the next start ends the epoch then, as after a crash."""
    running = InThisProcess(order_at(tmp_path / "job"))
    thread = running.on_thread()
    until(lambda: {"event": "stored", "rows": 3} in running.events)
    inner = running._writer.log.store
    lasting = Plan(Fault.BEFORE, at=1, lasting=Lasting.FROM_THEN_ON, error=lambda path: error("away", where=path))
    running._writer.log = BlockLog(FaultyStore(inner, lasting), "s-0")
    running.command({"stop": True})
    thread.join(30)
    assert running.events[-1] == {"event": "ended", "reason": "stopped", "error": None}
    log = BlockLog(inner, "s-0")
    assert log.end_epochs(BEGINNING) == Place(2, 1)
    assert [block.rows for _, block in log.follow(BEGINNING)] == [3]


def test_a_class_makes_the_receiver(tmp_path: Path) -> None:
    """In the process, so that each has its own; no rows are no block."""

    class Nothing(Counting):
        def __init__(self) -> None:
            super().__init__(0)

    order = order_at(tmp_path / "job")
    running = InThisProcess(
        ReceiverOrder(**{name: getattr(order, name) for name in order.__slots__} | {"receiver": Nothing})
    )
    assert running.put([]).done()


@pytest.mark.fault("F25", "F27", "F47")
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.FULL], ids=lambda fault: fault.value)
def test_a_store_that_is_away_holds_the_block_up(tmp_path: Path, fault: Fault) -> None:
    """It is written once, when the store answers; until then nothing is acknowledged, and the error is shown."""
    running = InThisProcess(order_at(tmp_path / "job"))
    inner = running._writer.log.store
    running._writer.log = BlockLog(FaultyStore(inner, Plan(fault, at=1, lasting=Lasting.FROM_THEN_ON)), "s-0")
    thread = running.on_thread()
    until(lambda: any("no block can be written" in str(event.get("error")) for event in running.events))
    running._writer.log = BlockLog(inner, "s-0")
    until(lambda: {"event": "stored", "rows": 3} in running.events)
    running.command({"stop": True})
    thread.join(30)
    assert [block.rows for _, block in BlockLog(inner, "s-0").follow(BEGINNING)] == [3]


@pytest.mark.fault("F47")
def test_a_receiver_whose_epoch_is_sealed_ends(tmp_path: Path) -> None:
    """Its rows are refused, and the supervisor starts another one."""
    order = order_at(tmp_path / "job")
    running = InThisProcess(order)
    BlockLog(LocalFolder(tmp_path / "job").store(), "s-0").end_epochs(BEGINNING)
    running.on_thread().join(30)
    assert running.events[-1]["reason"] == "failed"
    assert "PEN-SRC-030" in running.events[-1]["error"]
