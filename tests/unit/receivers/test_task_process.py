"""A receiver in a task of Spark is known by the connection that the task makes, and ends with it (F47)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pushing import until

from penstock.receivers.in_task import ReceiverTask
from penstock.receivers.task_process import TaskProcess


class Cluster:
    """Takes tasks, and runs what a test says."""

    def __init__(self) -> None:
        self.tasks: list[ReceiverTask] = []
        self.cancelled = threading.Event()
        self.is_over = threading.Event()
        self.ended = 0
        self.processes: list[TaskProcess] = []

    def run(self, task: ReceiverTask) -> None:
        """Run a task until it is cancelled or said to be over."""
        self.tasks.append(task)
        self.is_over.wait()
        if self.cancelled.is_set():
            raise RuntimeError("cancelled")

    def cancel(self) -> None:
        """End the task."""
        self.cancelled.set()
        self.is_over.set()

    def note_end(self) -> None:
        """Count an end."""
        self.ended += 1

    def started(self) -> TaskProcess:
        """Start a process."""
        order: Any = None
        place = {"bind": "127.0.0.1", "host": "127.0.0.1"}
        process = TaskProcess(order, **place, run=self.run, cancel=self.cancel, ended=self.note_end)
        self.processes.append(process)
        return process

    def connected(self, secret: str | None = None) -> socket.socket:
        """Connect as the task does."""
        task = until(lambda: self.tasks)[0]
        connection = socket.create_connection((task.host, task.port), timeout=60)
        connection.sendall(f"{task.secret if secret is None else secret}\n".encode())
        return connection


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster whose task ends with the test."""
    made = Cluster()
    yield made
    made.is_over.set()
    for process in made.processes:
        process.close()


class Heard:
    """The events of a process, heard on a thread."""

    def __init__(self, process: TaskProcess) -> None:
        self.events: list[Any] = []
        self._process = process
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.events.extend(self._process.events())


def test_commands_from_before_the_connection_follow_it(cluster: Cluster) -> None:
    """A rate that changes while the task waits for a core is in force when it runs."""
    process = cluster.started()
    heard = Heard(process)
    process.command({"rate": 1.0})
    with cluster.connected() as connection, connection.makefile("rb") as lines:
        assert json.loads(lines.readline()) == {"rate": 1.0}
        process.command({"rate": 2.0})
        assert json.loads(lines.readline()) == {"rate": 2.0}
        connection.sendall(b'{"event":"started"}\n{"event":"ended","reason":"stopped"}\n{"half')
    heard.thread.join(60)
    assert [event["event"] for event in heard.events] == ["started", "ended"]
    cluster.is_over.set()
    assert process.close() == "the connection to its task has ended"
    assert cluster.ended == 1
    assert not cluster.cancelled.is_set()


def test_a_stalled_task_holds_nobody_up(cluster: Cluster) -> None:
    """F47: commands that it does not read are passed over, each whole; then it reads again, or is killed."""
    process = cluster.started()
    heard = Heard(process)
    told = threading.Thread(target=lambda: [process.command({"rate": n, "pad": "x" * 99_999}) for n in range(400)])
    with cluster.connected() as connection, connection.makefile("rb") as lines:
        connection.sendall(b'{"event":"started"}\n')
        until(lambda: heard.events)
        told.start()
        told.join(60)
        assert not told.is_alive()
        rates = [json.loads(lines.readline())["rate"]]
        more = threading.Event()

        def tell() -> None:
            while not more.wait(0.01):
                process.command({"rate": -1})

        teller = threading.Thread(target=tell)
        teller.start()
        while rates[-1] != -1:
            rates.append(json.loads(lines.readline())["rate"])
        more.set()
        teller.join()
        read = rates[:-1]
        assert (read[0], read) == (0, sorted(set(read))), "whole, and in order"
        assert len(read) < 400
        process.kill()
        while lines.readline():
            pass
    heard.thread.join(60)


def test_the_newest_command_of_a_kind_waits_for_the_task(cluster: Cluster) -> None:
    """A task may wait for a core for hours, while rates come each batch."""
    process = cluster.started()
    heard = Heard(process)
    for rate in range(3):
        process.command({"rate": rate})
    with cluster.connected() as connection, connection.makefile("rb") as lines:
        assert json.loads(lines.readline()) == {"rate": 2}
        until(lambda: process._connection)
        process.command({"rate": 3})
        assert json.loads(lines.readline()) == {"rate": 3}
        process.kill()
    heard.thread.join(60)


def test_who_does_not_know_the_secret_is_not_heard(cluster: Cluster) -> None:
    """Neither who says another one, nor who goes without a word; the task is heard after them."""
    process = cluster.started()
    heard = Heard(process)
    with cluster.connected("0" * 64) as stranger:
        assert stranger.recv(1) == b""
    cluster.connected("").close()
    with cluster.connected() as connection:
        connection.sendall(b'{"event":"started"}\n')
        until(lambda: heard.events)
        with pytest.raises(OSError, match="refused"):  # a second attempt of the task
            cluster.connected()
    heard.thread.join(60)
    assert heard.events == [{"event": "started"}]


def test_a_task_without_a_core_is_not_waited_for_to_stop(cluster: Cluster) -> None:
    """Batches may hold all cores for long."""
    process = cluster.started()
    heard = Heard(process)
    process.command({"stop": True})
    heard.thread.join(60)
    process.close()
    assert cluster.cancelled.is_set()
    assert heard.events == []


def test_a_killed_process_loses_its_connection(cluster: Cluster) -> None:
    """Which is how the task hears of it."""
    process = cluster.started()
    heard = Heard(process)
    with cluster.connected() as connection:
        connection.sendall(b'{"event":"started"}\n')
        until(lambda: heard.events)
        process.kill()
        assert connection.recv(1) == b""
    heard.thread.join(60)


def test_why_a_task_cannot_run_is_said() -> None:
    """The line of Python, of all that Spark says."""

    def fails(_: ReceiverTask) -> None:
        raise RuntimeError(
            "Job aborted\nTraceback\nModuleNotFoundError: No module named 'penstock'\njava.lang.Error: x"
        )

    order: Any = None
    process = TaskProcess(order, bind="127.0.0.1", host="127.0.0.1", run=fails, cancel=lambda: None)
    assert list(process.events()) == []
    assert process.close() == "its task has failed: ModuleNotFoundError: No module named 'penstock'"
