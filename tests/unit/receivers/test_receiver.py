"""What a receiver's code calls arrives at its process, and where there is none it is said (API: receivers)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from penstock.errors import JobError
from penstock.receivers import Receiver


class Noting:
    """Note what a receiver asks for."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.said: list[tuple[str, str]] = []

    def put(self, rows: Any) -> Future[None]:
        """Keep rows at once."""
        self.rows.append(rows)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def report(self, error: str) -> None:
        """Note an error."""
        self.said.append(("error", error))

    def show(self, address: str) -> None:
        """Note an address."""
        self.said.append(("address", address))

    def restart(self, reason: str) -> None:
        """Note a restart."""
        self.said.append(("restart", reason))


def test_a_receiver_stores_and_reports_to_its_process() -> None:
    """A receiver may have a constructor that calls no other."""

    class Mine(Receiver):
        def __init__(self) -> None:
            self.setting = 1

    receiver, port = Mine(), Noting()
    receiver.connect(port, index=2, receivers=3)
    receiver.store({"k": 1})
    assert receiver.submit([{"k": 2}]).done()
    receiver.report_error("slow")
    receiver.report_error("slow", ValueError("x"))
    receiver.report_address("127.0.0.1:80")
    receiver.restart("again")
    assert port.rows == [{"k": 1}, [{"k": 2}]]
    assert port.said == [
        ("error", "slow"),
        ("error", "slow: ValueError: x"),
        ("address", "127.0.0.1:80"),
        ("restart", "again"),
    ]
    assert (receiver.index, receiver.receivers, receiver.stopping.is_set()) == (2, 3, False)


def test_a_receiver_that_does_not_run_stores_nothing() -> None:
    """Rows that a constructor stored would be in the driver."""
    with pytest.raises(JobError, match="on_start"):
        Receiver().store({"k": 1})


def test_a_receiver_says_how_it_starts() -> None:
    """One without on_start receives nothing."""
    with pytest.raises(NotImplementedError):
        Receiver().on_start()
    Receiver().on_stop()
