"""Read rows that senders post by HTTP, through a receiver (SEMANTICS 9.3, F47, F67)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import ConfigError
from penstock.graph.argument_types import refuse_other_types
from penstock.graph.durations import Duration, millis
from penstock.graph.policies import BadRecord
from penstock.receivers.blocks import MOST_BYTES
from penstock.receivers.http_push import BadBody, HttpPush
from penstock.sources.base import ERROR, RAW, Source
from penstock.sources.formats import Json
from penstock.sources.formats.base import shown
from penstock.sources.received import Encode, Receiving, ReceivingReader, refuse_settings
from penstock.sources.received_tasks import StoredRows
from penstock.sources.socket_source import as_they_are

__all__ = ["Bodies", "Http", "PostedRows"]

METADATA = {"_request": pa.string(), "_row": pa.int32()}
"""What a row has beside its columns, by the names of `with_columns`."""
_LEAST_TOKEN = 16
"""Characters; fewer can be tried one after the other."""


@dataclass(frozen=True, kw_only=True)
class Http(Source):
    """Describe rows that senders post: a POST request is answered with 200 when its rows are durable.

    A body is JSON lines (`application/x-ndjson`), a JSON array or object (`application/json`), or an Arrow stream
    (`application/vnd.apache.arrow.stream`). The rows of a request are all kept, or none.

    Args:
        port: The port to listen on.
        token: What senders must send, as `Authorization: Bearer TOKEN`; at least 16 characters.
        schema: The columns, as Spark DDL. JSON is read as by `Json(schema)`.
        host: The address to listen on, by itself that of loopback. There is no TLS: put a proxy before any other.
        with_columns: Columns of the request, which follow those of the schema: `_request` (the header `X-Request-Id`)
            and `_row` (the number of the row in its request, from 0). Deduplication by both drops what is sent again.
            A request without the header has an id of its own.
        max_body: The most bytes of a body.
        at_once: How many requests may wait for their rows to be durable. Others get 503, with Retry-After.
        block_interval: How long rows wait at most until they become a block.
        block_bytes: The size in bytes at which a block is cut before that; at most 64 MiB.
        on_bad_record: Whether a row that does not fit goes to quarantine or fails the batch.
        splits: How many tasks read a batch.
        replication: The copies of a block where the checkpoint is on HDFS; None for as many as of its other files.

    Raises:
        ConfigError: A setting is wrong by itself.
    """

    port: int
    token: str = field(repr=False)
    schema: str
    _: KW_ONLY
    host: str = "127.0.0.1"
    with_columns: Sequence[str] = ()
    max_body: int = 4 * 2**20
    at_once: int = 32
    block_interval: Duration = millis(20)  # noqa: RUF009 - a frozen value
    block_bytes: int = 4 * 2**20
    on_bad_record: BadRecord = BadRecord.QUARANTINE
    splits: int = 1
    replication: int | None = None

    acknowledged = "counted from what a request was answered with 200 for"

    def __post_init__(self) -> None:
        refuse_other_types(self)
        refuse_settings(
            receivers=1,
            splits=self.splits,
            interval=self.block_interval,
            block_bytes=self.block_bytes,
            replication=self.replication,
        )
        if not 1 <= self.port < 1 << 16:
            raise ConfigError(f"port is {self.port}, and no port of TCP")
        if len(self.token) < _LEAST_TOKEN or not self.token.isascii() or not self.token.isprintable():
            raise ConfigError(f"token has fewer than {_LEAST_TOKEN} characters, or some that no header can hold")
        if not self.host:
            raise ConfigError("host is empty, which is all addresses of the machine; write the one to listen on")
        if not 1 <= self.max_body <= MOST_BYTES // 4:
            raise ConfigError(f"max_body is {self.max_body:,}, and is from 1 to {MOST_BYTES // 4:,} bytes")
        if self.at_once < 1:
            raise ConfigError(f"at_once is {self.at_once}, and is at least 1")
        for column in self.with_columns:
            if column not in METADATA:
                raise ConfigError(f"with_columns has {column!r}; a request has {', '.join(METADATA)}")

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"Http on {self.host}:{self.port}"

    def open(self, spark: Any) -> ReceivingReader:
        """Return the reader."""
        form = Json(self.schema)
        columns = form.columns()
        taken = sorted(set(columns.names) & set(self.with_columns))
        if taken:
            raise ConfigError(f"the schema has a column {taken[0]!r} as well as with_columns")
        receiver = HttpPush(
            host=self.host,
            port=self.port,
            token=self.token,
            most=self.max_body,
            at_once=self.at_once,
            decode=Bodies(form, columns, tuple(self.with_columns)),
        )
        schema = pa.schema([*columns, *((name, METADATA[name]) for name in self.with_columns)])
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
            PostedRows(schema, form, columns),
            on_bad_record=self.on_bad_record,
            splits=self.splits,
        )


@dataclass(frozen=True)
class PostedRows(StoredRows):
    """Rows that were made to fit when they came; `columns` are those of a body, without those of the request."""

    form: Json
    columns: pa.Schema

    def decoded(self, texts: Sequence[str]) -> tuple[pa.Table, list[str | None]]:
        """Return the rows of JSON objects; what a row has of its request is null."""
        made = self.form.decode([text.encode() for text in texts], self.columns)
        rows = made.rows
        for field_ in self.schema:
            if field_.name not in rows.column_names:
                rows = rows.append_column(field_, pa.nulls(len(texts), field_.type))
        return rows.select(self.schema.names), [None] * len(texts) if made.errors is None else made.errors.to_pylist()


@dataclass(frozen=True)
class Bodies:
    """Make rows of bodies: the schema's columns, those of the request, ERROR and RAW."""

    form: Json
    schema: pa.Schema
    metadata: Sequence[str]

    def __call__(self, kind: str, body: bytes, request: str | None) -> pa.Table:
        """Return the rows of a body; raises BadBody, and KeyError for a Content-Type that is none of these."""
        rows = _READS[kind](self, body)
        flags = rows.select([ERROR, RAW])
        rows = rows.drop_columns([ERROR, RAW])
        n = rows.num_rows
        # One of its own: else deduplication would take all requests without an id for one.
        request = request or secrets.token_hex(16)
        values = {"_request": pa.repeat(pa.scalar(request, pa.string()), n), "_row": pa.array(range(n), pa.int32())}
        for name in self.metadata:
            rows = rows.append_column(name, values[name])
        return rows.append_column(ERROR, flags[ERROR]).append_column(RAW, flags[RAW])

    def records(self, values: Sequence[bytes]) -> pa.Table:
        """Return the rows of JSON objects."""
        decoded = self.form.decode(values, self.schema)
        errors = [None] * len(values) if decoded.errors is None else decoded.errors.to_pylist()
        texts = [
            (None, None) if error is None else shown(value, error) for value, error in zip(values, errors, strict=True)
        ]
        rows = decoded.rows.append_column(ERROR, pa.array([error for _, error in texts], pa.string()))
        return rows.append_column(RAW, pa.array([text for text, _ in texts], pa.string()))

    def lines(self, body: bytes) -> pa.Table:
        """Return the rows of JSON lines; an empty line is none."""
        return self.records([line for line in body.split(b"\n") if line.strip()])

    def document(self, body: bytes) -> pa.Table:
        """Return the rows of an array of objects, or of one object."""
        try:
            # As they were written: read and written anew, a decimal would lose its last digits.
            if body.lstrip().startswith(b"["):
                objects = msgspec.json.decode(body, type=list[msgspec.Raw])
            else:
                objects = [msgspec.json.decode(body, type=msgspec.Raw)]
        except (ValueError, RecursionError) as why:
            raise BadBody(f"no JSON: {why}") from why
        return self.records([bytes(value) for value in objects])

    def arrow(self, body: bytes) -> pa.Table:
        """Return the rows of an Arrow stream."""
        try:
            table = pa.ipc.open_stream(body).read_all()
            table.validate(full=True)
            return Encode(self.schema)(table)
        except (pa.ArrowException, ConfigError, TypeError, KeyError, OSError) as why:
            raise BadBody(f"no Arrow stream of these columns: {why}") from why


_READS: Mapping[str, Callable[[Bodies, bytes], pa.Table]] = {
    "application/x-ndjson": Bodies.lines,
    "application/json": Bodies.document,
    "application/vnd.apache.arrow.stream": Bodies.arrow,
}
