"""Prove that the executors of a cluster and the driver see the same folders, before a job writes anything there."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import (
    CheckpointError,
    ClusterUnavailable,
    EnvironmentUnfit,
    NotShared,
    StateMissing,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Answer", "answer", "judge", "prove_shared"]

_MOST_TASKS = 64
_WITHIN = 90.0
"""Seconds for the executors to come and to answer."""
_DRIVER = "driver"
_TOKEN = b"penstock: may be deleted\n"


class Answer(NamedTuple):
    """The answer of one task on one folder: the name of the file that it left there, or what went wrong."""

    host: str
    folder: CheckpointFolder
    name: str
    trouble: str | None


def prove_shared(spark: SparkSession, folders: Sequence[CheckpointFolder]) -> None:
    """Let the executors that are there read a file of the driver's in each folder, and the driver one of theirs.

    Folders are made where they are missing. What an executor that joins later cannot see fails its tasks by name.
    Raises NotShared, naming host and folder; EnvironmentUnfit where executors cannot run our code at all, and
    ClusterUnavailable where none ran anything within a minute and a half.
    """
    # Tables, and who lists them, pass over what begins so.
    marks = [folder / f"_shared-{secrets.token_hex(8)}" for folder in folders]

    def ask(_: Iterable[int]) -> Iterator[Answer]:
        for folder in marks:
            yield answer(folder)

    try:
        for mark in marks:
            mark.make_shared()
            (mark / _DRIVER).create(_TOKEN)
        judge(_answers(spark, ask))
    finally:
        for mark in marks:
            with suppress(OSError, CheckpointError):
                mark.remove_all()


def _answers(spark: SparkSession, ask: Callable[[Iterable[int]], Iterator[Answer]]) -> list[Answer]:
    late = threading.Event()

    def give_up() -> None:
        late.set()
        spark.sparkContext.cancelAllJobs()

    timer = threading.Timer(_WITHIN, give_up)
    timer.daemon = True
    timer.start()
    try:
        context = spark.sparkContext
        # The first job waits for the requested executors; only then is their number known.
        first = context.parallelize([0], 1).mapPartitions(ask).collect()
        tasks = min(_MOST_TASKS, max(2, context.defaultParallelism))
        return first + context.parallelize(range(tasks), tasks).mapPartitions(ask).collect()
    except Exception as why:
        if late.is_set():
            raise ClusterUnavailable(f"no executor has run a task within {_WITHIN:g} s") from why
        lines = [line.strip() for line in str(why).splitlines() if line.strip()] or [type(why).__name__]
        of_python = [line for line in lines if line.partition(":")[0].endswith("Error") and "java" not in line]
        if of_python:
            raise EnvironmentUnfit(f"the executors cannot run our code: {of_python[-1]}") from why
        raise ClusterUnavailable(f"the executors could not be asked: {lines[0]}") from why
    finally:
        timer.cancel()


def answer(folder: CheckpointFolder) -> Answer:
    """Read the driver's file and leave one, as tasks leave the files of a batch; runs in a task."""
    name = secrets.token_hex(8)
    trouble = None
    try:
        if (folder / _DRIVER).read() != _TOKEN:
            trouble = "a file of the driver has other bytes there"
        (folder / name).create(_TOKEN)
    except StateMissing:
        trouble = "a file that the driver has just written is not there"
    except CheckpointError as why:
        trouble = why.what
    return Answer(socket.gethostname(), folder, name, trouble)


def judge(answers: Iterable[Answer]) -> None:
    """Raise NotShared for the first answer that tells of trouble, or whose file the driver does not see."""
    for answer in answers:
        trouble = answer.trouble
        if trouble is None:
            try:
                seen = (answer.folder / answer.name).read()
                trouble = None if seen == _TOKEN else "a file that it has written has other bytes here"
            except CheckpointError as why:
                trouble = f"the driver does not see a file that it has written: {why.what}"
        if trouble is not None:
            where = str(answer.folder.parent)
            raise NotShared(f"not all machines see the same folder: on host {answer.host}, {trouble}", where=where)
