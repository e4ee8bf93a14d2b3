"""Say that rows of two streams with equal keys are joined where their event times are close enough (SEMANTICS 7.6)."""

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

__all__ = ["IntervalJoin", "JoinMethods"]

_SHORTEST = -(2**63) + 1
"""Times are 64 bits wide, and a bound has an opposite."""


@dataclass(frozen=True, eq=False, kw_only=True)
class IntervalJoin(StepSpec):
    """Join rows with equal keys whose event times, right minus left, are from `earliest` to `latest` microseconds."""

    earliest: int
    latest: int

    operator: ClassVar[str] = "penstock.operators.join"
    kind: ClassVar[str] = "join"
    counts: ClassVar[tuple[str, ...]] = ("rows", "late", "late_left", "late_right", "null_keys", "pairs")
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rows": ("late", "null_keys", "merged"),
        "late": ("late_left", "late_right"),
        "merged": ("left", "right"),
    }

    def of_revisions(self, node: StepNode, panes: Accumulation) -> str | None:
        """Return that panes join one by one; one that contains those before would make their pairs again."""
        return "revisions join as rows of their own" if panes is Accumulation.DISCARDING else None

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise JobError without event time and over a side stream, and MissingSink for pairs that nobody writes."""
        what = f"join {node.name!r}"
        need_event_time(graph, node, what)
        need_sink(graph, node, what)
        refuse_late_streams(graph, node, what)

    def settings(self) -> Mapping[str, str]:
        """Return the bounds."""
        return {"within": f"{Duration(self.earliest)} to {Duration(self.latest)}"}

    def words(self, node: StepNode, keys: str) -> str:
        """Return keys, bounds, and what becomes of rows that join nothing."""
        return (
            f"join {node.name}: pairs of both inputs, {keys}, right - left from {Duration(self.earliest)} to "
            f"{Duration(self.latest)}; late rows and null keys dropped and counted"
        )


class JoinMethods(StepMethods[Stream]):
    """Join streams."""

    def join(
        self,
        name: str,
        other: StepMethods[Stream],
        *,
        on: Sequence[str],
        within: tuple[Duration, Duration],
        how: str = "inner",
        partitions: int | None = None,
    ) -> Stream:
        """Join each row of this stream, the left one, with the rows of `other` that match (SEMANTICS 7.6).

        Two rows match if their keys are equal, and the event time of the right row minus that of the left row is
        within the bounds. Each pair of matching rows is emitted once, whichever row arrives first.

        The output has the key columns, then the other columns of the left and of the right stream. Its event time is
        the later one of the pair. A pair takes the place of the row that arrived later. Several pairs of that row are
        ordered by the event time of the other row, then by its arrival.

        Args:
            name: The step's name, under which its state lives.
            other: The right stream, of the same job. No other column may have the same name in both streams.
            on: The key columns, at least one, with the same names and types in both streams. Null equals nothing, NaN
                equals NaN, and 0.0 equals -0.0.
            within: The least and the greatest difference, both inclusive. Both may be negative.
            how: "inner", the only kind so far.
            partitions: The state partitions; those of the job, if not given.

        A row that is older than the watermark is late. The step drops late rows and rows with a null key. The
        accounting of the step counts them as `late` and `null_keys`, and what it emits as `pairs`.
        The step forgets a row when no row that is not late can match it any more.

        Raises:
            JobError: `on`, `within` or `how` is unfit, or one of the streams has a `key_by` already.
        """
        what = f"join {name!r}"
        if how != "inner":
            raise job_error(f"how= of {what} is {how!r}, and the only kind of join is 'inner'")
        if not isinstance(other, StepMethods):
            raise job_error(f"{what} needs another stream, not {other!r}")
        if self._keys or other._keys:
            raise job_error(
                f"{what} follows key_by, and names its keys itself; call it on streams before key_by, with "
                f"on={[*(self._keys or other._keys)]}"
            )
        keys = checked_columns(on, "on=", what)
        earliest, latest = _bounds(within, what)
        return self._step(name, IntervalJoin(earliest=earliest, latest=latest), partitions, other, keys=keys)


def _bounds(within: object, what: str) -> tuple[int, int]:
    if not isinstance(within, tuple | list) or len(within) != 2:  # noqa: PLR2004 - the least and the greatest
        raise job_error(f"within= of {what} is {within!r}, not two durations; write within=(minutes(-5), minutes(5))")
    earliest, latest = (duration_micros(bound, f"within= of {what}", least=_SHORTEST) for bound in within)
    if earliest > latest:
        raise job_error(
            f"within= of {what} is from {within[0]} to {within[1]}, which no difference is; write the lesser first"
        )
    return earliest, latest
