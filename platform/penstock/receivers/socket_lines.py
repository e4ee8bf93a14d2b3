"""Receive lines from a server of TCP, which knows no acknowledgement: what is held up is its sending."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.receivers.receiver import Receiver

__all__ = ["RECORDS", "Lines", "SocketLines", "records"]

RECORDS = pa.schema([("value", pa.binary()), ("error", pa.string())])
"""The columns of a block of records. `error` says why the bytes are no record, and is null for a good one."""
_AT_ONCE = 1 << 18
"""Bytes that are read at a time."""
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between two tries of a server that is away; the last one for all that follow."""
_ANSWER = 10.0
"""Seconds that a server may take to accept a connection."""
_LOOK = 0.5
"""Seconds after which a silent connection looks whether it has to end."""

Split = list[tuple[bytes, str | None]]


@dataclass(slots=True)
class Lines:
    """Cut a stream of bytes into lines, without their ends; a carriage return before the end belongs to it.

    Attributes:
        most: The bytes that a line may have. Of a longer one so many are kept, with an error.
    """

    most: int
    _rest: bytes = b""
    _is_too_long: bool = False

    def feed(self, data: bytes) -> Split:
        """Return the lines that end in this piece of the stream, each with what is wrong with it, or None."""
        *ended, rest = data.split(b"\n")
        lines: Split = []
        for part in ended:
            lines += self._ended(self._rest + part)
            self._rest, self._is_too_long = b"", False
        if len(self._rest) + len(rest) > self.most + 1:  # it may end in "\r"
            lines += self._cut(self._rest + rest)
            self._rest = b""
        else:
            self._rest += rest
        return lines

    def end(self) -> Split:
        """Return what is left when the connection has ended: half a line is a bad record."""
        rest, was_cut = self._rest, self._is_too_long
        self._rest, self._is_too_long = b"", False
        return [(rest, "the connection ended inside the line")] if rest and not was_cut else []

    def _ended(self, line: bytes) -> Split:
        if self._is_too_long:
            return []  # it was cut before
        line = line.removesuffix(b"\r")
        return self._cut(line) if len(line) > self.most else [(line, None)]

    def _cut(self, line: bytes) -> Split:
        was_cut, self._is_too_long = self._is_too_long, True
        return [] if was_cut else [(line[: self.most], f"the line has more than {self.most:,} bytes")]


def records(lines: Sequence[tuple[bytes, str | None]]) -> pa.Table:
    """Return lines as the rows of a block."""
    values, errors = zip(*lines, strict=True) if lines else ((), ())
    return pa.table([pa.array(values, pa.binary()), pa.array(errors, pa.string())], schema=RECORDS)


@dataclass
class SocketLines(Receiver):
    """Connect to a server again and again, and store its lines.

    Attributes:
        host: The server.
        port: Its port.
        most: The bytes that a line may have.
        skips_empty: Whether an empty line is no record.
    """

    host: str
    port: int
    most: int
    skips_empty: bool
    _failures: int = field(default=0, repr=False)

    def on_start(self) -> None:
        """Read until the receiver has to end."""
        self.report_address(f"{self.host}:{self.port}")
        while not self.stopping.is_set():
            try:
                with socket.create_connection((self.host, self.port), timeout=_ANSWER) as connection:
                    self._failures = 0
                    self._read(connection)
                why = "the server has closed the connection"
            except OSError as error:
                why = f"{type(error).__name__}: {error}"
            if self.stopping.is_set():
                return
            if self._failures in {0, len(_PAUSES)}:
                self.report_error(f"no line comes from {self.host}:{self.port}: {why}")
            self.stopping.wait(_PAUSES[min(self._failures, len(_PAUSES) - 1)])
            self._failures += 1

    def _read(self, connection: socket.socket) -> None:
        lines = Lines(self.most)
        connection.settimeout(_LOOK)
        try:
            while not self.stopping.is_set():
                try:
                    data = connection.recv(_AT_ONCE)
                except TimeoutError:
                    continue
                if not data:
                    return
                self._keep(lines.feed(data))
        finally:
            if not self.stopping.is_set():
                self._keep(lines.end())

    def _keep(self, lines: Split) -> None:
        kept = [line for line in lines if line[0] or line[1] or not self.skips_empty]
        if kept:
            self.submit(records(kept))
