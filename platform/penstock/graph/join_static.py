"""The step that joins a stream with a table, of which each batch uses one version (SEMANTICS 1.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from penstock.graph.join_arguments import JoinKind, checked_kind
from penstock.graph.names import checked_columns, checked_name
from penstock.graph.nodes import OneParent
from penstock.graph.schedules import EveryBatches
from penstock.graph.source_location import job_error
from penstock.graph.stateful import Stream, StreamMethods

__all__ = ["JoinStaticMethods", "OnNewVersion", "Refresh", "StaticJoinNode", "StaticTable"]

StaticTable = str | Callable[[], Any]
"""The path of a Delta table, or a function that returns a DataFrame."""
_UNFIT = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class OnNewVersion:
    """Take up a new version of a table in the first batch after it appears."""


Refresh = EveryBatches | OnNewVersion | None


@dataclass(frozen=True, eq=False, kw_only=True)
class StaticJoinNode(OneParent):
    """Join rows with those of a table that have equal keys; `keys` are columns of both."""

    name: str
    table: StaticTable
    keys: tuple[str, ...]
    how: JoinKind
    refresh: Refresh

    method: ClassVar[str] = "join_static"

    @property
    def counted_as(self) -> str:
        """Return the name that its rows have in accounting."""
        return f"{self.method}:{self.name}"

    @property
    def table_words(self) -> str:
        """Return the table in words."""
        if isinstance(self.table, str):
            return self.table
        return str(getattr(self.table, "__qualname__", type(self.table).__name__))

    @property
    def refresh_words(self) -> str:
        """Return in words when it takes up a new version of the table."""
        match self.refresh:
            case None:
                return "the version of the first batch for ever"
            case EveryBatches(batches=batches):
                return f"the newest version every {batches} batch{'es' if batches > 1 else ''}"
            case OnNewVersion():
                return "each new version in the batch after it appears"

    def settings(self) -> Mapping[str, str]:
        """Return, in words, what may change while the job has a checkpoint."""
        return {"table": self.table_words, "how": self.how.value, "refresh": self.refresh_words}


class JoinStaticMethods(StreamMethods[Stream]):
    """Enrich streams with the rows of tables."""

    def join_static(
        self,
        table: str | Path | Callable[[], Any],
        *,
        on: Sequence[str],
        how: Literal["inner", "left"] = "inner",
        refresh: EveryBatches | OnNewVersion | None = None,
        name: str | None = None,
    ) -> Stream:
        """Join each row with the rows of a table that have the same key.

        The output has the columns of the stream, then those of the table that are no keys. A row with several matches
        makes several rows, in the order of the table's other columns, at its place and with its event time.
        A batch uses one version of the table, which its Offsets name. A re-run of the batch uses the same one.

        Args:
            table: The path of a Delta table, as `conf.table("prices")` gives it, or a function that returns a
                DataFrame. Its rows fit into memory: at most 256 MiB as Arrow tables.
            on: The key columns, which have the same names and types in both. Null equals nothing; NaN equals NaN, and
                0.0 equals -0.0.
            how: "inner", the default, drops rows without a match, and "left" keeps them with nulls.
            refresh: When a new version is taken up. None keeps the version of the job's first batch. `EveryBatches(10)`
                takes the newest one every ten batches, and `OnNewVersion()` each in the batch after it appears.
            name: The step's name; if not given the last part of the path, or the name of the function.

        Raises:
            JobError: `table`, `on`, `how` or `refresh` is unfit.
            DuplicateName: Another step has the name. Give this one another by `name=`.
            BadName: `name` breaks the rules for names, or none can be made of the table's.
        """
        what = "join_static" if name is None else f"join_static {name!r}"
        if isinstance(table, Path):
            table = str(table)
        if not (isinstance(table, str) and table) and not callable(table):
            raise job_error(f"the table of {what} is {table!r}; give a path, or a function that returns a DataFrame")
        if refresh is not None and not isinstance(refresh, EveryBatches | OnNewVersion):
            raise job_error(f"refresh= of {what} is {refresh!r}; write EveryBatches(10), OnNewVersion() or None")
        node = StaticJoinNode(
            parent=self._stream._node,
            name=checked_name(_name_of(table) if name is None else name, "a join_static"),
            table=table,
            keys=checked_columns(on, "on=", what),
            how=checked_kind(how, JoinKind.INNER, JoinKind.LEFT, what=what),
            refresh=refresh,
        )
        return self._stream._then(node, node.name)


def _name_of(table: StaticTable) -> str:
    """Return a name for a step, of what the table is called."""
    named = table.rstrip("/").rpartition("/")[2] if isinstance(table, str) else getattr(table, "__name__", "")
    return _UNFIT.sub("_", str(named).lower()).strip("_")
