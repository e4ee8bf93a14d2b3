"""Hand the rows of each batch to a function of the job: on the driver, after the Commit, at least once."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import BatchFunctionError, PenstockError
from penstock.graph.source_location import file_of, job_error
from penstock.sinks.base import Publication, Publisher, Sink
from penstock.sinks.staged_files import read_staged

__all__ = ["ForeachBatch", "PublishedBatch"]

_PACKAGE = Path(__file__).resolve().parent.parent
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBatch:
    """A batch, for the function of `foreach_batch`. Times are aware, in UTC.

    Attributes:
        job: The name of the job.
        sink: The name of the sink.
        batch: The id of the batch.
        time: Its batch time.
        watermark: The lowest by which the steps upstream have closed; None before there is one, without such steps, and
            for rows that a check had held. After the end of time it is `datetime.max`.
        epoch: That of the driver that committed the batch; None for rows that a check had held.
        app: The checkpoint and the sink. With `batch` it names these rows, however often the function receives them.
    """

    job: str
    sink: str
    batch: int
    time: datetime
    watermark: datetime | None
    epoch: int | None
    app: str


@dataclass(frozen=True)
class ForeachBatch(Sink):
    """Describe a sink that calls `fn(df, info)` once a batch with rows, after the Commit.

    `df` is a Spark DataFrame of the rows in order of arrival, and `info` a PublishedBatch. The call is repeated after a
    crash: a function that must not count rows twice keeps `info.app` and `info.batch` with what it writes.
    """

    deduplicated_by = "functions that recognise info.app and info.batch"
    in_order = True

    fn: Callable[[Any, PublishedBatch], object]

    def __post_init__(self) -> None:
        """Refuse what cannot be called with two arguments."""
        if not callable(self.fn) or isinstance(self.fn, type):
            raise job_error(f"foreach_batch needs a function fn(df, info), and has {self.fn!r:.80}")
        try:
            signature = inspect.signature(self.fn)
        except (TypeError, ValueError):  # some that are written in C have none
            return
        try:
            signature.bind(None, None)
        except TypeError as why:
            raise job_error(f"foreach_batch calls {_name(self.fn)} as fn(df, info): {why}") from None

    def open(self, staging: CheckpointFolder, spark: Any) -> Publisher:
        """Return what calls the function."""
        return BatchCaller(self, staging, spark)

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"function {_name(self.fn)}"


@dataclass(frozen=True)
class BatchCaller(Publisher):
    """Call the function with staged rows."""

    sink: ForeachBatch
    staging: CheckpointFolder
    spark: Any

    def publish(self, publication: Publication) -> None:
        """Call the function; raises BatchFunctionError for what it raises, and its errors of sinks as they are."""
        if not publication.files:
            return
        # Through the driver, which alone has the files of a checkpoint on HDFS, and which keeps their order.
        frame = self.spark.createDataFrame(read_staged(self.staging, publication.files))
        origin = publication.origin
        info = PublishedBatch(
            job=origin.job,
            sink=publication.app.split("/")[1],
            batch=publication.batch,
            time=_ZERO + timedelta(microseconds=origin.time),
            watermark=None if origin.watermark is None else _time_of(origin.watermark),
            epoch=origin.epoch,
            app=publication.app,
        )
        try:
            self.sink.fn(frame, info)
        except (PenstockError, ConnectionError):  # the second is of a JVM that is gone
            raise
        except Exception as why:
            message = f"{_name(self.sink.fn)} raised {type(why).__name__}: {why} (batch {publication.batch})"
            raise BatchFunctionError(message, where=_place(self.sink.fn, why)) from why

    def version(self, app: str) -> int | None:
        """Return None: what a function has done is not known."""
        return None


def _time_of(micros: int) -> datetime:
    """Return a watermark; the end of time, and what is beyond the last datetime, is that one."""
    try:
        return _ZERO + timedelta(microseconds=micros)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or f"an object of type {type(fn).__name__}"


def _place(fn: Any, why: Exception) -> str | None:
    """Return file and line where the function raised: the innermost line of its own file, or of others than ours."""
    frames = list(reversed(traceback.extract_tb(why.__traceback__)))
    theirs = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
    mine = file_of(fn)
    place = next((frame for frame in theirs if frame.filename == mine), theirs[0] if theirs else None)
    return None if place is None else f"{place.filename}:{place.lineno}"
