"""Know a receiver's process that runs in a task of Spark, through the connection that the task makes to the driver."""

from __future__ import annotations

import hmac
import io
import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from penstock.receivers.in_task import ReceiverTask, keep_alive
from penstock.receivers.process import ReceiverOrder, write_order

__all__ = ["TaskProcess"]

_LOOK = 0.2
"""Seconds after which a wait for the task looks whether there is still one to wait for."""
_HELLO = 5.0
"""Seconds in which a connection sends its secret."""
_END = 2.0
"""Seconds that a task may take to end after its process, before it is cancelled."""
_CANCELLED = 20.0
"""Seconds that Spark may take to cancel it."""


class TaskProcess:
    """A process in a task: one connection, of the task that knows the secret.

    A second attempt of the task finds nobody who listens, and fails. One that connected before the first was accepted
    may run the same order until then; a block is created once, so of both one writes it.

    Args:
        order: What it is to receive.
        bind: The address of this machine to listen on.
        host: The address by which executors reach it.
        run: Runs a task to its end, on a thread that this object makes; raises what Spark does.
        cancel: Ends the task.
        ended: Hears that the process is no more.
    """

    pid: int | None = None

    def __init__(
        self,
        order: ReceiverOrder,
        *,
        bind: str,
        host: str,
        run: Callable[[ReceiverTask], None],
        cancel: Callable[[], None],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._cancel = cancel
        self._ended = ended
        self._secret = secrets.token_hex(32)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._waiting: dict[frozenset[str], bytes] = {}
        self._rest = b""
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        data = io.BytesIO()
        write_order(order, data)  # before there is anything to close: it fails where the receiver cannot be pickled
        self._server = socket.create_server((bind, 0), family=socket.AF_INET6 if ":" in bind else socket.AF_INET)
        task = ReceiverTask(data.getvalue(), host, self._server.getsockname()[1], self._secret)
        self._thread = threading.Thread(target=self._ran, args=[run, task], name="penstock-task", daemon=True)
        self._thread.start()

    def _ran(self, run: Callable[[ReceiverTask], None], task: ReceiverTask) -> None:
        try:
            run(task)
        except BaseException as why:  # noqa: BLE001 - of Spark; `close` says it
            self._error = why
        finally:
            self._is_over.set()

    def command(self, command: Mapping[str, Any]) -> None:
        """Send a command, or keep it until the task is there; a task that has no core yet is not waited for to stop.

        A task that is stopped reads none. When nothing more can be sent the driver must not wait for it, so the command
        is passed over, as by a process of this machine.
        """
        line = json.dumps(command).encode() + b"\n"
        with self._lock:
            if self._connection is None:
                self._waiting[frozenset(command)] = line  # the newest of a kind is in force
            else:
                self._send(self._connection, line)
                return
        if command.get("stop"):
            self.kill()

    def _send(self, connection: socket.socket, line: bytes) -> None:
        """Send the end of the line of which only a part was taken before, then this one, unless the end does not go."""
        with suppress(OSError):  # no room, or a connection that has ended, as its events tell
            self._rest = self._rest[connection.send(self._rest, socket.MSG_DONTWAIT) :]
            if not self._rest:
                self._rest = line[connection.send(line, socket.MSG_DONTWAIT) :]

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Wait for the task, and yield the events of its process."""
        connection = self._accepted()
        if connection is None:
            return
        with suppress(OSError, ValueError), connection.makefile("rb") as lines:  # a machine that is gone, half a line
            for line in lines:
                yield json.loads(line)

    def _accepted(self) -> socket.socket | None:
        with self._server as server:
            server.settimeout(_LOOK)
            while not self._is_over.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                except OSError:  # it was closed
                    return None
                if self._is_ours(connection):
                    return self._connected(connection)
                connection.close()
        return None

    def _is_ours(self, connection: socket.socket) -> bool:
        """Read the secret, and nothing of what follows it."""
        wanted, sent = f"{self._secret}\n".encode(), b""
        connection.settimeout(_HELLO)
        with suppress(OSError):
            while len(sent) < len(wanted) and (data := connection.recv(len(wanted) - len(sent))):
                sent += data
        return hmac.compare_digest(sent, wanted)

    def _connected(self, connection: socket.socket) -> socket.socket:
        connection.settimeout(None)
        keep_alive(connection)
        with self._lock:
            self._connection = connection
            with suppress(OSError):
                self._send(connection, b"".join(self._waiting.values()))  # a new connection has room for some lines
                if self._is_over.is_set():  # it was killed meanwhile, or Spark has given the task up
                    connection.shutdown(socket.SHUT_RDWR)
        return connection

    def kill(self) -> None:
        """Close the connection, which ends the process; where there is none yet, nothing waits for one any more."""
        self._is_over.set()
        with self._lock:
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> str:
        """End the process and its task, and return that it was lost, or why Spark has not started it."""
        self.kill()
        self._server.close()
        self._thread.join(0.0 if self._connection is None else _END)  # a task without a core ends by itself never
        if self._thread.is_alive():
            with suppress(Exception):  # of a JVM that died there is nothing to cancel
                self._cancel()
            self._thread.join(_CANCELLED)
        if self._connection is not None:
            self._connection.close()
        self._ended()
        if self._connection is not None or self._error is None:
            return "the connection to its task has ended"
        return f"its task has failed: {_shown(self._error)}"


def _shown(why: BaseException) -> str:
    """Return the line of an error of Spark that names the cause: the last one of Python, or the first."""
    lines = [line.strip() for line in str(why).splitlines() if line.strip()] or [type(why).__name__]
    of_python = [line for line in lines if line.partition(":")[0].endswith("Error") and "java" not in line]
    return of_python[-1] if of_python else lines[0]
