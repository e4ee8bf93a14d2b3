"""A task of Spark runs the process of a receiver, and both end with the driver (F47)."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from pushing import Counting, until
from received_blocks import order_at

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.receivers.block_log import BEGINNING, BlockLog
from penstock.receivers.in_task import ReceiverTask
from penstock.receivers.task_process import TaskProcess

pytestmark = pytest.mark.slow


@pytest.mark.fault("F47")
def test_a_receiver_runs_in_a_task_and_ends_with_its_driver(tmp_path: Path) -> None:
    """A process of its own, whose rows are durable; the end of the connection ends process and task."""
    order = order_at(tmp_path / "job", Counting(3))
    place = {"bind": "127.0.0.1", "host": "127.0.0.1"}
    process = TaskProcess(order, **place, run=lambda task: task.run(), cancel=lambda: None)
    events: list[Any] = []
    heard = threading.Thread(target=lambda: events.extend(process.events()), daemon=True)
    heard.start()
    until(lambda: {"event": "stored", "rows": 3} in events)
    assert events[0] == {"event": "placed", "host": socket.gethostname()}
    process.kill()
    heard.join(60)
    assert process.close() == "the connection to its task has ended"
    log = BlockLog(LocalFolder(tmp_path / "job").store(), "s-0")
    assert [block.rows for _, block in log.follow(BEGINNING)] == [3]


def test_a_task_that_its_driver_does_not_take_fails() -> None:
    """A second attempt by Spark finds nobody who listens, and starts no process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        ReceiverTask(b"", "127.0.0.1", port, "secret").run()
