"""The step that keeps only the first of rows with equal keys, within a span of event time (SEMANTICS 7.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.graph.durations import Duration, duration_micros
from penstock.graph.names import checked_columns
from penstock.graph.policies import Accumulation
from penstock.graph.source_location import job_error
from penstock.graph.stateful import StepMethods, Stream
from penstock.graph.steps import GraphView, StepNode, StepSpec, need_event_time, need_sink, refuse_late_streams
from penstock.graph.windows import REVISION

__all__ = ["Deduplicate", "DeduplicateMethods"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Deduplicate(StepSpec):
    """Keep the first row of each key in order of arrival; `within` is in microseconds, at least 1."""

    within: int

    operator: ClassVar[str] = "penstock.operators.deduplicate"
    kind: ClassVar[str] = "deduplicate"
    counts: ClassVar[tuple[str, ...]] = ("rows", "late")
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rows": ("late", "merged"),
        "merged": ("emitted", "duplicates"),
    }

    passes_revisions: ClassVar[bool] = True

    @property
    def drops_after(self) -> int | None:
        """Return that a row is late once its key would be forgotten at once."""
        return self.within

    def of_revisions(self, node: StepNode, panes: Accumulation) -> str | None:
        """Return that it keeps all revisions; without their number among its keys it would drop them."""
        return "revisions are rows of their own" if REVISION in node.keys[0] else None

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise JobError without event time and over a side stream, and MissingSink for rows that nobody writes."""
        what = f"deduplicate {node.name!r}"
        need_event_time(graph, node, what)
        need_sink(graph, node, what)
        refuse_late_streams(graph, node, what)

    def settings(self) -> Mapping[str, str]:
        """Return how long a key is remembered."""
        return {"within": str(Duration(self.within))}

    def words(self, node: StepNode, keys: str) -> str:
        """Return keys, how long they are remembered, and what becomes of the other rows."""
        return (
            f"deduplicate {node.name}: the first row, {keys}, within {Duration(self.within)}; "
            "duplicates and late rows dropped and counted"
        )


class DeduplicateMethods(StepMethods[Stream]):
    """Drop duplicates from streams."""

    def deduplicate(self, name: str, *, by: Sequence[str], within: Duration, partitions: int | None = None) -> Stream:
        """Keep the first row of each key in order of arrival, and drop the others as duplicates (SEMANTICS 7.6).

        The output has the columns, event times and order of the input.

        Args:
            name: The step's name, under which its state lives.
            by: The key columns, at least one. Null is a key of its own; NaN equals NaN, and 0.0 equals -0.0.
            within: How long a key is remembered, more than 0. The step forgets a key when the event time of its first
                row + `within` <= the watermark. Further rows do not prolong that. A row of the key that arrives
                afterwards is a first row again.
            partitions: The state partitions; those of the job, if not given.

        A row whose own event time + `within` <= the watermark is late: its key would be forgotten at once, so nobody
        can say whether it is a duplicate. The step drops it. The accounting of the step counts `emitted`, `duplicates`
        and `late`, which together are its `rows`.

        Raises:
            JobError: `by` or `within` is unfit, or the stream has a `key_by` already.
        """
        if self._keys:
            raise job_error(
                f"deduplicate {name!r} follows key_by, and names its keys itself; call it on the stream before key_by, "
                f"with by={[*self._keys]}"
            )
        keys = checked_columns(by, "by=", f"deduplicate {name!r}")
        spec = Deduplicate(within=duration_micros(within, f"within= of deduplicate {name!r}", least=1))
        return self._step(name, spec, partitions, keys=keys)
