"""Say that rows of two streams with equal keys are joined where their event times are close enough (SEMANTICS 7.6).

An outer join also emits the rows of a side that match nothing, once the watermark says that no match can come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from penstock.errors import JoinUnbounded
from penstock.graph.durations import Duration, duration_micros
from penstock.graph.names import checked_columns
from penstock.graph.policies import Accumulation
from penstock.graph.source_location import job_error
from penstock.graph.stateful import StepMethods, Stream
from penstock.graph.steps import GraphView, StepNode, StepSpec, need_event_time, need_sink, refuse_late_streams

__all__ = ["SIDES", "IntervalJoin", "JoinKind", "JoinMethods", "OuterJoin"]

SIDES = ("left", "right")
"""The inputs: in the state, in the accounting, and in words."""
_SHORTEST = -(2**63) + 1
"""Times are 64 bits wide, and a bound has an opposite."""
_LONGEST_WAIT = 2**61
"""In microseconds. The event time of an outer row is this much later than its own at most, and has 64 bits."""


class JoinKind(StrEnum):
    """The sides of a join whose rows come also without a match."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def outer(self) -> tuple[bool, bool]:
        """Return whether the left and the right side are such."""
        return self in {JoinKind.LEFT, JoinKind.FULL}, self in {JoinKind.RIGHT, JoinKind.FULL}


@dataclass(frozen=True, eq=False, kw_only=True)
class IntervalJoin(StepSpec):
    """Join rows with equal keys whose event times, right minus left, are from `earliest` to `latest` microseconds."""

    earliest: int
    latest: int
    how: JoinKind = JoinKind.INNER

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
        return (
            "early panes join as rows of their own, and revisions after the closing are late"
            if panes is Accumulation.DISCARDING
            else None
        )

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise JobError without event time and over a side stream, and MissingSink for pairs that nobody writes."""
        what = f"join {node.name!r}"
        need_event_time(graph, node, what)
        need_sink(graph, node, what)
        refuse_late_streams(graph, node, what)

    def settings(self) -> Mapping[str, str]:
        """Return the bounds."""
        return {"within": self._within}

    def words(self, node: StepNode, keys: str) -> str:
        """Return keys, bounds, and what becomes of rows that join nothing."""
        return (
            f"join {node.name}: pairs of both inputs, {keys}, right - left from {self._within}; late rows and null "
            "keys dropped and counted"
        )

    @property
    def _within(self) -> str:
        return f"{Duration(self.earliest)} to {Duration(self.latest)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class OuterJoin(IntervalJoin):
    """Join as an IntervalJoin does, and emit the rows of the outer sides that match nothing, with nulls beside them."""

    counts: ClassVar[tuple[str, ...]] = IntervalJoin.counts
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **IntervalJoin.sums,
        "emitted": ("pairs", "unmatched"),
        "unmatched": ("unmatched_left", "unmatched_right"),
    }

    def __post_init__(self) -> None:
        """Raise JobError for bounds that an outer row would wait for until the end of time."""
        if max(-self.earliest, self.latest) > _LONGEST_WAIT:
            raise job_error(
                f"within= of a {self.how} join is from {self._within}, and a row without a match would wait beyond the "
                f"end of time: the longest bound is {Duration(_LONGEST_WAIT)}"
            )

    def settings(self) -> Mapping[str, str]:
        """Return the bounds, and the sides whose rows come without a match."""
        return {"how": self.how.value, **IntervalJoin.settings(self)}

    def words(self, node: StepNode, keys: str) -> str:
        """Return keys, bounds, when a row without a match comes, and what becomes of other rows."""
        waits = [
            f"a {side} row without a match once the watermark is beyond its event time {_offset(by)}"
            for side, outer, by in zip(SIDES, self.how.outer, (self.latest, -self.earliest), strict=True)
            if outer
        ]
        nulls = "" if self.how is JoinKind.FULL else f" and null keys of the {'right' if self.how.outer[0] else 'left'}"
        return (
            f"join {node.name}: pairs of both inputs, {keys}, right - left from {self._within}; {', '.join(waits)}; "
            f"late rows{nulls} dropped and counted"
        )


def _offset(micros: int) -> str:
    return f"{'-' if micros < 0 else '+'} {Duration(abs(micros))}"


class JoinMethods(StepMethods[Stream]):
    """Join streams."""

    def join(
        self,
        name: str,
        other: StepMethods[Stream],
        *,
        on: Sequence[str],
        within: tuple[Duration, Duration] | None = None,
        how: str = "inner",
        partitions: int | None = None,
    ) -> Stream:
        """Join each row of this stream, the left one, with the rows of `other` that match (SEMANTICS 7.6).

        Two rows match if their keys are equal, and the event time of the right row minus that of the left row is
        within the bounds. Each pair of matching rows is emitted once, whichever row arrives first.

        The output has the key columns, then the other columns of the left and of the right stream. Its event time is
        the later one of the pair. A pair takes the place of the row that arrived later. Several pairs of that row are
        ordered by the event time of the other row, then by its arrival.

        An outer join also emits each row of its outer side that has no match, once, with nulls on the other side. The
        row comes with the first batch whose watermark is beyond all that it could match. It comes after the rows of
        that batch, by that time, then by the hash of its key. Its event time is the latest that a pair of it could
        have had, so a downstream step does not take it for late. A row with a null key comes at once, at its place.

        Args:
            name: The step's name, under which its state lives.
            other: The right stream, of the same job; it may be this one. No other column may have the same name in
                both streams.
            on: The key columns, at least one, with the same names and types in both streams. Null equals nothing, NaN
                equals NaN, and 0.0 equals -0.0.
            within: The least and the greatest difference, both inclusive. Both may be negative.
            how: "inner" for pairs alone. "left", "right" or "full" for the rows of that side, or of both, that have no
                match as well.
            partitions: The state partitions; those of the job, if not given.

        A row that is older than the watermark is late, and the step drops it. It also drops rows with a null key, but
        for those of an outer side. The accounting counts them as `late` and `null_keys`. It counts what the step emits
        as `pairs`, `unmatched_left` and `unmatched_right`.
        The step forgets a row when no row that is not late can match it any more.

        Raises:
            JobError: `on`, `within` or `how` is unfit, or one of the streams has a `key_by` already.
            JoinUnbounded: `within` is not given.
        """
        what = f"join {name!r}"
        if how not in [*JoinKind]:
            kinds = ", ".join(repr(kind.value) for kind in JoinKind)
            raise job_error(f"how= of {what} is {how!r}, and the kinds of joins are {kinds}")
        if not isinstance(other, StepMethods):
            raise job_error(f"{what} needs another stream, not {other!r}")
        if self._keys or other._keys:
            raise job_error(
                f"{what} follows key_by, and names its keys itself; call it on streams before key_by, with "
                f"on={[*(self._keys or other._keys)]}"
            )
        keys = checked_columns(on, "on=", what)
        earliest, latest = _bounds(within, what)
        of_kind = IntervalJoin if how == JoinKind.INNER else OuterJoin
        spec = of_kind(earliest=earliest, latest=latest, how=JoinKind(how))
        return self._step(name, spec, partitions, other, keys=keys)


def _bounds(within: object, what: str) -> tuple[int, int]:
    if within is None:
        raise job_error(f"{what} has no within=, so each row might match one that comes years later", JoinUnbounded)
    if not isinstance(within, tuple | list) or len(within) != 2:  # noqa: PLR2004 - the least and the greatest
        raise job_error(f"within= of {what} is {within!r}, not two durations; write within=(minutes(-5), minutes(5))")
    earliest, latest = (duration_micros(bound, f"within= of {what}", least=_SHORTEST) for bound in within)
    if earliest > latest:
        raise job_error(
            f"within= of {what} is from {within[0]} to {within[1]}, which no difference is; write the lesser first"
        )
    return earliest, latest
