"""Read lines that a server of TCP sends, through a receiver (SEMANTICS 9.3, F47)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.graph.argument_types import refuse_other_types
from penstock.graph.durations import Duration, millis
from penstock.graph.policies import BadRecord
from penstock.receivers.receiver import Rows
from penstock.receivers.socket_lines import SocketLines
from penstock.sources.base import PARTIAL, Source
from penstock.sources.formats import Format, Raw, Text
from penstock.sources.formats.base import placed, shown
from penstock.sources.received import Receiving, ReceivingReader, refuse_settings
from penstock.sources.received_tasks import Fitted, RowsOfBlock

__all__ = ["RecordRows", "Socket"]


@dataclass(frozen=True)
class Socket(Source):
    """Describe lines to read from a server of TCP, to which the receiver connects, again whenever the connection ends.

    TCP has no acknowledgement that reaches the server's program. Lines that are not in a block yet are lost when the
    receiver dies, and lines that the server sends while nobody is connected do not come.

    Args:
        host: The server's name or address.
        port: Its port.
        format: What makes columns of a line. Lines are in UTF-8, and end as those of Unix or of Windows.
        max_record: The most bytes of a line. A longer one is a bad record, with its beginning.
        block_interval: How long lines wait at most until they become a block.
        block_bytes: The size in bytes at which a block is cut before that; at most 64 MiB.
        on_bad_record: Whether a line that cannot be decoded, or half a line where the connection ends, goes to
            quarantine or fails the batch.
        splits: How many tasks read a batch.
        replication: The copies of a block where the checkpoint is on HDFS; None for as many as of its other files.

    Raises:
        ConfigError: A setting is wrong by itself.
    """

    host: str
    port: int
    _: KW_ONLY
    format: Format = Text()  # noqa: RUF009 - a frozen value
    max_record: int = 1 << 20
    block_interval: Duration = millis(200)  # noqa: RUF009 - as above
    block_bytes: int = 4 * 2**20
    on_bad_record: BadRecord = BadRecord.QUARANTINE
    splits: int = 1
    replication: int | None = None

    acknowledged = "counted from the lines in blocks: those of the newest block may be lost, as TCP acknowledges none"

    def __post_init__(self) -> None:
        refuse_other_types(self)
        refuse_settings(
            receivers=1,
            splits=self.splits,
            interval=self.block_interval,
            block_bytes=self.block_bytes,
            replication=self.replication,
        )
        if not self.host:
            raise ConfigError("host is empty")
        if not 1 <= self.port < 1 << 16:
            raise ConfigError(f"port is {self.port}, and no port of TCP")
        if not 1 <= self.max_record <= 1 << 24:
            raise ConfigError(f"max_record is {self.max_record}, and is from 1 to 16,777,216 bytes")

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"Socket to {self.host}:{self.port}"

    def open(self, spark: Any) -> ReceivingReader:
        """Return the reader."""
        form = self.format.opened([])
        schema = form.columns()
        skips_empty = not isinstance(self.format, Text | Raw)
        receiver = SocketLines(self.host, self.port, most=self.max_record, skips_empty=skips_empty)
        return ReceivingReader(
            schema,
            Receiving(
                receiver,
                receivers=1,
                encode=as_they_are,
                interval=self.block_interval.seconds,
                most=self.block_bytes,
                replication=self.replication,
            ),
            RecordRows(form, schema),
            on_bad_record=self.on_bad_record,
            splits=self.splits,
        )


def as_they_are(rows: Rows) -> pa.Table:
    """Return the records that a receiver of Penstock stores: `penstock.receivers.socket_lines.RECORDS`."""
    assert isinstance(rows, pa.Table)
    return rows


@dataclass(frozen=True)
class RecordRows(RowsOfBlock):
    """Decode records when they are read: so code that decodes in another way reads what waits in that way."""

    format: Format
    schema: pa.Schema

    def fitted(self, block: pa.Table) -> Fitted:
        """Return a row for each record; one that was bad when it came stays so."""
        values, bad = block["value"].to_pylist(), block["error"].to_pylist()
        good = [value for value, error in zip(values, bad, strict=True) if error is None]
        decoded = self.format.decode(good, self.schema)
        # Of a line that was cut off, nobody knows the end.
        bad = [None if error is None else f"{error}{PARTIAL}" for error in bad]
        decoded = placed(decoded.rows, decoded.errors, bad)
        if decoded.errors is None:
            return decoded.rows, None, None
        texts = [
            (None, None) if error is None else shown(value, error)
            for value, error in zip(values, decoded.errors.to_pylist(), strict=True)
        ]
        raw, errors = (pa.array(column, pa.string()) for column in zip(*texts, strict=True))
        return decoded.rows, errors, raw

    def decoded(self, texts: Sequence[str]) -> tuple[pa.Table, list[str | None]] | None:
        """Return the rows of lines."""
        made = self.format.decode([text.encode() for text in texts], self.schema)
        return made.rows, [None] * len(texts) if made.errors is None else made.errors.to_pylist()
