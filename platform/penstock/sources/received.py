"""Read what receivers have kept: blocks in the job's checkpoint, which a batch takes whole (SEMANTICS 9.1, F47).

A receiver is a partition of the source, and a place is the number of a block. The position has the epoch of each beside
it, from which the chain of blocks is followed (`receivers.block_log`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import BlocksGone, ConfigError, RootMissing
from penstock.graph.argument_types import refuse_other_types
from penstock.graph.durations import Duration, millis
from penstock.graph.policies import BadRecord
from penstock.receivers import Receiver
from penstock.receivers.block_log import BEGINNING, BlockChain, BlockLog
from penstock.receivers.blocks import MOST_BYTES, Block, Place
from penstock.receivers.inventory import receivers_in
from penstock.receivers.process import ReceiverOrder
from penstock.receivers.receiver import Rows
from penstock.sources.base import ERROR, RAW, CheckpointedReader, Ends, Position, Source, Span, Waiting
from penstock.sources.received_tasks import BlocksInTask, RowsOfBlock, StoredRows, blocks_of, first_position, log_name
from penstock.sources.records import arrow_schema, cast_columns, rows_to_table

__all__ = ["ACKNOWLEDGED", "Encode", "Receive", "Receiving", "ReceivingReader", "refuse_settings"]

ACKNOWLEDGED = "counted from what a receiver has acknowledged to its sender"
_LEAST_INTERVAL = millis(1)
_MOST_COPIES = 512
"""What HDFS allows by itself (`dfs.replication.max`)."""


@dataclass(frozen=True)
class Receive(Source):
    """Describe rows that receivers of your own take in.

    Args:
        receiver: An object of a subclass of `penstock.receivers.Receiver`, or the class, which is then called without
            arguments in each process.
        schema: The columns, as Spark DDL.
        receivers: How many run at once; each is a process, and a partition of the source.
        block_interval: How long rows wait at most until they become a block, and are acknowledged.
        block_bytes: The size in bytes at which a block is cut before that; at most 64 MiB.
        on_bad_record: Whether a row that does not fit the schema goes to quarantine or fails the batch.
        splits: How many tasks read a batch. A block is read by one.
        replication: The copies of a block where the checkpoint is on HDFS; None for as many as of its other files.

    Raises:
        ConfigError: A setting is wrong by itself.
    """

    receiver: Receiver | type[Receiver]
    _: KW_ONLY
    schema: str
    receivers: int = 1
    block_interval: Duration = millis(200)  # noqa: RUF009 - a frozen value
    block_bytes: int = 4 * 2**20
    on_bad_record: BadRecord = BadRecord.QUARANTINE
    splits: int = 1
    replication: int | None = None

    in_files = False
    acknowledged = ACKNOWLEDGED

    def __post_init__(self) -> None:
        kind = self.receiver if isinstance(self.receiver, type) else type(self.receiver)
        if not issubclass(kind, Receiver):
            raise ConfigError(f"receiver is {self.receiver!r}, and no penstock.receivers.Receiver")
        if kind.on_start is Receiver.on_start:
            raise ConfigError(f"receiver is a {kind.__name__}, which lacks on_start, where a receiver begins")
        refuse_other_types(self)
        refuse_settings(
            receivers=self.receivers,
            splits=self.splits,
            interval=self.block_interval,
            block_bytes=self.block_bytes,
            replication=self.replication,
        )

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        kind = self.receiver if isinstance(self.receiver, type) else type(self.receiver)
        return f"Receive by {kind.__name__}"

    def open(self, spark: Any) -> ReceivingReader:
        """Return the reader."""
        schema = arrow_schema(self.schema)
        return ReceivingReader(
            schema,
            Receiving(
                self.receiver,
                receivers=self.receivers,
                encode=Encode(schema),
                interval=self.block_interval.seconds,
                most=self.block_bytes,
                replication=self.replication,
            ),
            StoredRows(schema),
            on_bad_record=self.on_bad_record,
            splits=self.splits,
        )


def refuse_settings(
    *, receivers: int, splits: int, interval: Duration, block_bytes: int, replication: int | None
) -> None:
    """Raise ConfigError for settings that no receiver can have."""
    if replication is not None and not 1 <= replication <= _MOST_COPIES:
        raise ConfigError(f"replication is {replication}, and is from 1 to {_MOST_COPIES} copies")
    for name, value in (("receivers", receivers), ("splits", splits), ("block_bytes", block_bytes)):
        if value < 1:
            raise ConfigError(f"{name} is {value}, and is at least 1")
    if block_bytes > MOST_BYTES:
        raise ConfigError(f"block_bytes is {block_bytes:,}, and a block has {MOST_BYTES:,} bytes at most")
    if interval < _LEAST_INTERVAL:
        raise ConfigError(f"block_interval is {interval}, and is a Duration of a millisecond at least")


@dataclass(frozen=True)
class Encode:
    """Make a block's rows of what `store` is given: the schema's columns, ERROR and RAW."""

    schema: pa.Schema

    def __call__(self, rows: Rows) -> pa.Table:
        """Return the rows; one that does not fit is null, with an error and its text. Raises TypeError for no rows."""
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if isinstance(rows, pa.Table):
            return self._of_arrow(rows)
        listed: list[Any] = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, Mapping) else [rows]
        for row in listed:
            if not isinstance(row, Mapping):
                raise TypeError(f"store takes rows as dicts or Arrow, not {type(row).__name__}")
        return _flagged(*rows_to_table(listed, self.schema))

    def _of_arrow(self, rows: pa.Table) -> pa.Table:
        unknown = sorted(set(rows.column_names) - set(self.schema.names))
        if unknown:
            raise TypeError(f"the table has a column {unknown[0]!r}, which the schema has not")
        missing = [field for field in self.schema if field.name not in rows.column_names]
        for field in missing:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return _flagged(*cast_columns(rows.select(self.schema.names), self.schema, where="a stored table"))


def _flagged(rows: pa.Table, errors: pa.Array | None, raw: pa.Array | None) -> pa.Table:
    nothing = pa.nulls(rows.num_rows, pa.string())
    rows = rows.append_column(ERROR, nothing if errors is None else errors)
    return rows.append_column(RAW, nothing if raw is None else raw)


@dataclass(frozen=True, slots=True)
class Receiving:
    """How receivers run: what takes rows, in how many processes, how blocks are cut, and their copies on HDFS."""

    receiver: Receiver | type[Receiver]
    _: KW_ONLY
    receivers: int
    encode: Any
    interval: float
    most: int
    replication: int | None = None


class ReceivingReader(CheckpointedReader):
    """Follow the blocks of a source's receivers."""

    def __init__(
        self,
        schema: pa.Schema,
        receiving: Receiving,
        form: RowsOfBlock,
        *,
        on_bad_record: BadRecord,
        splits: int,
    ) -> None:
        self.schema = schema
        self.receiving = receiving
        self.splits = splits
        self._form = form
        self._on_bad_record = on_bad_record
        self._folder: CheckpointFolder | None = None
        self._source = ""
        self._store: CheckpointStore | None = None
        self._chains: dict[str, BlockChain] = {}
        self._dropped: set[str] | None = None

    def keep_in(self, folder: CheckpointFolder, name: str) -> None:
        """Note where the blocks are."""
        self._folder, self._source = folder, name

    # --- following -----------------------------------------------------------------------------

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        """Return the blocks that wait; raises BlocksGone where some are gone."""
        waiting = {}
        for name in self._names(after):
            chain = self._chain(name, after)
            if chain is None:
                waiting[name] = Waiting.of_rows(0, 0)
                continue
            chain.grow()
            if int(name) >= self.receiving.receivers and not chain.blocks:
                continue  # it runs no more, and all it had is read
            rows = sum(block.rows for _, block in chain.blocks)
            size = sum(block.size for _, block in chain.blocks)
            latest = chain.cursor.place.number
            waiting[name] = Waiting(
                next=chain.start.number, latest=latest, rows=rows, batch_end=latest, bytes=size if rows else None
            )
        return waiting

    def _names(self, after: Position | None) -> list[str]:
        known = {} if after is None else after["receivers"]
        return sorted({*map(str, range(self.receiving.receivers)), *known, *self._left_behind()}, key=int)

    def _left_behind(self) -> set[str]:
        """Return the receivers that have blocks here and run no more; a position from before them does not say so."""
        store = self._opened_store()
        if self._dropped is None and store is not None:
            numbers = receivers_in(store, self._source)
            self._dropped = {number for number in numbers if int(number) >= self.receiving.receivers}
        return self._dropped or set()

    def _chain(self, name: str, after: Position | None) -> BlockChain | None:
        """Return what is known of a receiver's blocks from a position on; None where there is no checkpoint yet."""
        log = self.log(name)
        if log is None:
            return None
        place = None if after is None else _place(after, name)
        chain = self._chains.get(name)
        if place is None:
            if chain is None or not chain.is_first:
                chain = self._chains[name] = BlockChain.opened(log, log.first())
            return chain
        if chain is None or not chain.start.number <= place.number <= chain.cursor.place.number:
            chain = self._chains[name] = BlockChain.opened(log, place)
        chain.pass_to(place)
        return chain

    def log(self, name: str) -> BlockLog | None:
        """Return the blocks of a receiver; None where there is no checkpoint yet."""
        store = self._opened_store()
        return None if store is None else BlockLog(store, log_name(self._source, name))

    def _opened_store(self) -> CheckpointStore | None:
        if self._store is None and self._folder is not None:
            with suppress(RootMissing):
                self._store = self._folder.store(make=False)
        return self._store

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the places up to which blocks are read."""
        reached: dict[str, Sequence[int]] = {} if after is None else dict(after["receivers"])
        for name, end in ends.items():
            chain = self._chains.get(name)
            if chain is None or (name in reached and end <= reached[name][1]):
                reached.setdefault(name, [0, 0])
                continue
            before = chain.between(0, end)
            last = before[-1][0].next if before else chain.start
            reached[name] = [last.epoch, last.number]
        return {"receivers": reached}

    def span(self, start: Position | None, end: Position) -> Span:
        """Return the blocks between two positions, by receiver as runs of numbers in an epoch."""
        blocks: dict[str, list[list[int]]] = {}
        rows = 0
        for name in end["receivers"]:
            for place, block in self._between(name, start, end):
                rows += block.rows
                runs = blocks.setdefault(name, [])
                if runs and runs[-1][0] == place.epoch:
                    runs[-1][2] = place.number + 1
                else:
                    runs.append([place.epoch, place.number, place.number + 1])
        return {"receivers": sorted(end["receivers"], key=int), "blocks": blocks, "rows": rows}

    def _between(self, name: str, start: Position | None, end: Position) -> list[tuple[Place, Block]]:
        log, chain, last = self.log(name), self._chains.get(name), end["receivers"][name][1]
        if log is None:
            return []
        first = _place(start, name) if start is not None else None
        if chain is None or (first is not None and first.number < chain.start.number) or first is None:
            chain = BlockChain(log, first or log.first())
            chain.grow()
        begin = chain.start.number if first is None else first.number
        blocks = chain.between(begin, last)
        if len(blocks) < last - begin:
            raise BlocksGone(f"receiver {log.receiver} has {len(blocks):,} of {last - begin:,} blocks", where=name)
        return blocks

    def verify(self, span: Span) -> None:
        """Raise BlocksGone where a block of the span is gone."""
        for _, name, place in blocks_of(span):
            log = self.log(name)
            if log is None or not log.store.exists(log.path(place)):
                raise BlocksGone(
                    "a block of a batch that is fixed is gone", where=name if log is None else log.path(place)
                )

    def ended(self, position: Position | None) -> bool:
        """Return False: senders may always come."""
        return False

    def rows(self, span: Span) -> int | None:
        """Return the rows that the heads of the blocks say."""
        return int(span["rows"])

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the numbers of the receivers as text."""
        return tuple(span["receivers"])

    def passed_over(self, start: Position | None, end: Position, span: Span) -> dict[str, list[list[int]]]:
        """Return the rows of blocks that went before a receiver's first one was read, and of those that are lost."""
        new = end["receivers"].keys() - ({} if start is None else start["receivers"]).keys()
        firsts = {
            name: span["blocks"][name][0][1] if name in span["blocks"] else end["receivers"][name][1] for name in new
        }
        skipped = {name: [[0, first_position(number)]] for name, number in sorted(firsts.items()) if number}
        for name in end["receivers"]:
            for place, block in self._between(name, start, end):
                if not block.rows:  # in the place of one that is lost
                    positions = [first_position(place.number), first_position(place.number + 1)]
                    skipped.setdefault(name, []).append(positions)
        return skipped

    def task_reader(self) -> BlocksInTask:
        """Return what reads blocks in tasks."""
        return BlocksInTask(self._folder, self._source, self._form, self._on_bad_record)

    # --- what receivers and upkeep need ----------------------------------------------------------

    def order(self, index: int, place: Place, rate: float | None) -> ReceiverOrder:
        """Return what a process is to receive; its blocks begin at a place."""
        assert self._folder is not None
        return ReceiverOrder(
            receiver=self.receiving.receiver,
            index=index,
            receivers=self.receiving.receivers,
            encode=self.receiving.encode,
            checkpoint=self._folder.address,
            log=log_name(self._source, str(index)),
            place=place,
            interval=self.receiving.interval,
            most=self.receiving.most,
            rate=rate,
            replication=self.receiving.replication,
        )

    def known(self, index: int, after: Position | None) -> Place:
        """Return a place of a receiver's chain from which on no block is deleted; safe from any thread.

        `after` is the position of the Commit in force. What is before it is read, and needs not be there.
        """
        chain, log = self._chains.get(str(index)), self.log(str(index))
        if chain is not None:
            return chain.start
        if after is not None and (place := _place(after, str(index))) is not None:
            return place
        return BEGINNING if log is None else log.first()

    def waiting_bytes(self, index: int) -> int:
        """Return the bytes of the blocks that no batch has read, as of the newest backlog."""
        chain = self._chains.get(str(index))
        return 0 if chain is None else sum(block.size for _, block in chain.blocks)

    def sweep(self, positions: Sequence[Position]) -> int:
        """Delete the blocks before all of these positions, and return how many went."""
        deleted = 0
        # A job that was restored to nothing may have had a source of another kind by this name before.
        for name in {name for position in positions for name in position.get("receivers", ())}:
            log = self.log(name)
            places = [_place(position, name) for position in positions]
            if log is not None and None not in places:  # a position without the receiver is from before its first block
                deleted += log.sweep(min(place for place in places if place is not None))
        return deleted


def _place(position: Position, name: str) -> Place | None:
    at = position.get("receivers", {}).get(name)
    return None if at is None else Place(int(at[0]), int(at[1]))
