"""State what every sink promises (DESIGN 4, SEMANTICS 9.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

__all__ = ["Publication", "Publisher", "Sink", "Staged", "place_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Name one file of rows that a task wrote for a sink; `path` is relative to the sink's staging folder."""

    path: str
    size: int
    rows: int
    checksum: str
    fails: tuple[str, ...] = ()
    """The names of the row rules that every row in the file fails."""
    unit: int | None = None
    """The end of the window whose rows these are, microseconds, where a check judges windows one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Hold what a publisher is asked to make visible: the files that Commit `batch` names, under one app id."""

    app: str
    batch: int
    files: Sequence[Staged]
    schema: pa.Schema = field(repr=False)


class Publisher(Protocol):
    """Make the files of a Commit visible on the driver."""

    idempotent: bool
    """Whether a batch that is published twice is visible once."""

    def publish(self, publication: Publication) -> None:
        """Make the files visible; with `idempotent`, a batch that is visible already is left as it is.

        Raises SinkAhead when a later batch of this app is visible and this one is not.
        """

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app that is visible, None where there is none or it cannot be told."""


class Sink(Protocol):
    """Describe where rows go.

    A sink may have more, and is asked for it by name: `check(schema)` raises SinkSchemaMismatch and writes nothing, so
    that a diff can tell; `ready(spark)` raises where the session lacks what publishing will need; `place()` says where
    its rows go, the same for as long as it is the same table; `find_version` and `put_back`, as in
    `sinks.delta_history`, take back what was published; with `in_order = True` its files tell where each row stands,
    and `read_staged` returns rows in order of arrival. A publisher may have `refuse_values(files)`, which raises
    SinkValueRefused for rows that are not committed yet and that it would not take.
    """

    def staging(self, folder: Path) -> Path:
        """Return where the tasks put this sink's files; `folder` is its own below the checkpoint."""

    def prepare(self, schema: pa.Schema, spark: Any) -> None:
        """Check that the rows fit before anything is written. Raises SinkSchemaMismatch."""

    def open(self, staging: Path, spark: Any) -> Publisher:
        """Return the publisher of a run."""

    def describe(self) -> str:
        """Return one line for `penstock explain`."""


def place_of(sink: Any) -> str | None:
    """Return where the rows of a sink go, None where it does not say."""
    place: str | None = getattr(sink, "place", lambda: None)()
    return place
