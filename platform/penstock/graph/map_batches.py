"""The step of a function over Arrow tables that keeps no state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.graph.declarations import checked_text
from penstock.graph.names import checked_name
from penstock.graph.nodes import OneParent
from penstock.graph.source_location import job_error
from penstock.graph.stateful import Stream, StreamMethods

__all__ = ["MapBatchesMethods", "MapBatchesNode"]


@dataclass(frozen=True, eq=False, kw_only=True)
class MapBatchesNode(OneParent):
    """Call a function with the rows of a task, as Arrow tables; `output` is Spark DDL of what it returns."""

    name: str
    fn: Callable[..., Any]
    output: str
    same_rows: bool = False

    method: ClassVar[str] = "map_batches"

    @property
    def counted_as(self) -> str:
        """Return the name that its rows have in accounting."""
        return f"{self.method}:{self.name}"


class MapBatchesMethods(StreamMethods[Stream]):
    """Let functions of the user's make tables of tables."""

    def map_batches(self, name: str, fn: Callable[..., Any], *, output: str, same_rows: bool = False) -> Stream:
        """Call `fn(table, info)` with the rows of a task, as Arrow tables, and continue with the table it returns.

        The function must make of each row what it makes of it in any other table. How the rows of a batch are cut into
        tables depends on their size and on the number of tasks, and no result may depend on that (SEMANTICS 1.6).
        It is called where there are rows. An object with `open(info)` and `close()` is opened once in each task.

        Args:
            name: The step's stable name.
            fn: Gets a `pyarrow.Table` of the visible columns, and `info` with `batch`, `time`, `watermark` and
                `epoch`. It returns a `pyarrow.Table` or a `RecordBatch`.
            output: The columns that it returns, as Spark DDL such as "id long, score double".
            same_rows: Whether row N of the result is made of row N of the table. Such rows keep their event time.
                Others have none, so no step of event time can follow. After a step with state it is required.

        Raises:
            JobError: `fn` is no function.
            BadExpression: `output` is no text. Text that is no DDL is refused when the job starts.
        """
        if not callable(fn):
            raise job_error(f"map_batches {name!r} needs a function of a pyarrow Table, not {fn!r}")
        output = checked_text(output, "output", f"map_batches {name!r}")
        if not isinstance(same_rows, bool):
            raise job_error(f"same_rows= of map_batches {name!r} is {same_rows!r}, neither True nor False")
        node = MapBatchesNode(
            parent=self._stream._node,
            name=checked_name(name, "a map_batches"),
            fn=fn,
            output=output,
            same_rows=same_rows,
        )
        return self._stream._then(node, node.name)
