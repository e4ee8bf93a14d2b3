"""Build the steps of functions without state, and of caches, into the frame of a branch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import JobError, JobInTransform, PenstockError, TransformColumnsChanged, UserFunctionError
from penstock.graph.cache import CacheLevel, CacheNode
from penstock.graph.map_batches import MapBatchesNode
from penstock.graph.nodes import TransformNode
from penstock.operators.columns import arrow_schema, ddl_schema
from penstock.operators.functions.user_function import TaskInfo
from penstock.operators.protocol import TIME
from penstock.runtime.plan.branch_frame import BranchFrame, at_site, quoted
from penstock.runtime.plan.projection import map_in_arrow
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.columns import refuse_taken
from penstock.runtime.tasks.row_functions import RowFunction, function_task, info_of
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.sources.base import PARTITION, POSITION
from penstock.state.key_state import as_datetime
from penstock.time.arrival import ARRIVAL

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame

__all__ = ["Caches", "TransformCalls", "map_batches"]

_START = TaskInfo(batch=-1, time=as_datetime(0), watermark=None, epoch=0)
"""What a transform of each batch is called with when the job starts."""
_OUTSIDE = "a Penstock task runs outside a batch"


@dataclass
class TransformCalls:
    """Apply the functions of frames, and hold those of each batch to the columns that they gave at the start."""

    facts: BatchContext | None = None
    """The batch that is planned; None while the job starts."""
    _columns: dict[str, dict[str, str]] = field(default_factory=dict)

    def apply(self, current: BranchFrame, node: TransformNode) -> BranchFrame:
        """Return what a transform makes of the rows.

        Raises BadExpression, JobError, UserFunctionError, JobInTransform and TransformColumnsChanged at its line.
        """
        from pyspark.sql import functions as F

        with at_site(node.site):
            made = self._called(current.frame.where(F.col(ROW_STATUS) == 0).drop(ROW_STATUS), node)
            if not hasattr(made, "columns") or not hasattr(made, "withColumn"):
                raise JobError(f"transform {node.name!r} returned {type(made).__name__}, not a DataFrame")
            hidden = tuple(h for h in current.hidden if h != ROW_STATUS)
            lost = [h for h in hidden if h not in made.columns]
            if not {TIME, POSITION, PARTITION, ARRIVAL}.isdisjoint(lost):
                raise JobError(
                    f"transform {node.name!r} dropped {', '.join(lost)}, which order the rows (SEMANTICS 1.6); keep "
                    "the columns whose names begin with _penstock_"
                )
            made = made.withColumns({**{h: F.lit(None).cast("string") for h in lost}, ROW_STATUS: F.lit(0)})
            visible = tuple(c for c in made.columns if c not in current.hidden)
            refuse_taken(visible)
            result = current.next(made.select(*(quoted(name) for name in visible), *current.hidden), visible)
            if node.per_batch:
                self._refuse_changed(node, {name: kind.simpleString() for name, kind in result.types().items()})
            return result

    def _called(self, rows: DataFrame, node: TransformNode) -> Any:
        from pyspark.errors import PySparkException

        info = _START if self.facts is None else info_of(node.name, self.facts)
        try:
            return node.fn(rows, info) if node.per_batch else node.fn(rows)
        except PenstockError:
            raise
        except Exception as why:
            if _OUTSIDE in str(why):
                raise JobInTransform(f"transform {node.name!r} ran a Spark job over the rows of the stream") from why
            if isinstance(why, PySparkException):
                raise  # `at_site` says what was wrong with a column or type
            problem = f"transform {node.name!r} raised {type(why).__name__}: {why}"
            raise UserFunctionError(problem) from why

    def _refuse_changed(self, node: TransformNode, columns: dict[str, str]) -> None:
        known = self._columns.setdefault(node.name, columns)
        if list(known.items()) == list(columns.items()):
            return
        had, has = (", ".join(f"{name} {kind}" for name, kind in side.items()) for side in (known, columns))
        when = "at another path" if self.facts is None else f"in batch {self.facts.batch}"
        raise TransformColumnsChanged(
            f"transform {node.name!r} gave the columns {has} {when}, and {had} when the job started"
        )


def map_batches(current: BranchFrame, node: MapBatchesNode) -> BranchFrame:
    """Return what a map_batches makes of the rows; raises BadExpression and JobError at the user's line."""
    from pyspark.sql.types import StructType

    with at_site(node.site):
        output = ddl_schema(node.output, f"output= of map_batches {node.name!r}")
        refuse_taken(output.names)
        frame = current.frame.select(*(quoted(name) for name in current.visible), *current.hidden)
        arrow_schema(StructType([frame.schema[name] for name in current.visible]))  # refuses what Arrow lacks
        hidden = arrow_schema(StructType([frame.schema[name] for name in current.hidden]))
        filters = current.filters if node.same_rows else (*current.filters, node.counted_as)
        step = RowFunction(
            name=node.name,
            fn=node.fn,
            visible=current.visible,
            output=output,
            hidden=hidden,
            taken=None if node.same_rows else len(filters),
        )
        made = map_in_arrow(frame, function_task(step), pa.schema([*output, *hidden]))
        result = current.next(made, tuple(output.names), filters)
        result.made = current.made if node.same_rows else (*current.made, len(filters))
        return result


@dataclass
class Caches:
    """The frames that are kept while a batch runs, each with its place."""

    frames: list[tuple[DataFrame, StorageLevel]] = field(default_factory=list)
    _known: dict[int, BranchFrame] = field(default_factory=dict)

    def shared(self, current: BranchFrame, node: CacheNode) -> BranchFrame:
        """Return the rows of a cache as every branch reads them: from one frame."""
        from pyspark import StorageLevel

        if id(node) not in self._known:
            levels = {
                CacheLevel.MEMORY_AND_DISK: StorageLevel.MEMORY_AND_DISK,
                CacheLevel.MEMORY: StorageLevel.MEMORY_ONLY,
                CacheLevel.DISK: StorageLevel.DISK_ONLY,
            }
            self._known[id(node)] = current
            self.frames.append((current.frame, levels[node.level]))
        return self._known[id(node)]

    def keep(self) -> None:
        """Have Spark keep the rows that the next job computes."""
        for frame, level in self.frames:
            frame.persist(level)

    def release(self) -> None:
        """Forget the rows of the batch."""
        for frame, _ in self.frames:
            frame.unpersist()
