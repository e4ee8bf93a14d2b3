"""Say that each row of a stream takes the row of another that is newest at its event time (SEMANTICS 7.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.graph.durations import Duration, duration_micros
from penstock.graph.join_arguments import JoinKind, TwoStreamMethods, checked_kind
from penstock.graph.policies import Accumulation
from penstock.graph.stateful import StepMethods, Stream
from penstock.graph.steps import GraphView, StepNode, StepSpec, need_event_time, need_sink, refuse_late_streams

__all__ = ["AsOfJoin", "AsOfMethods"]


@dataclass(frozen=True, eq=False, kw_only=True)
class AsOfJoin(StepSpec):
    """Let each left row take the newest right row of its key; `within` is in microseconds, at least 0."""

    within: int
    how: JoinKind

    operator: ClassVar[str] = "penstock.operators.join_as_of"
    kind: ClassVar[str] = "join_as_of"
    counts: ClassVar[tuple[str, ...]] = (
        "rows",
        "late",
        "late_left",
        "late_right",
        "null_keys",
        "matched",
        "unmatched",
    )
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rows": ("late", "null_keys", "merged"),
        "late": ("late_left", "late_right"),
        "merged": ("left", "right"),
    }

    def of_revisions(self, node: StepNode, panes: Accumulation) -> str | None:
        """Return that panes join one by one; one that contains those before would be emitted again."""
        return (
            "early panes join as rows of their own, and revisions after the closing are late"
            if panes is Accumulation.DISCARDING
            else None
        )

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise JobError without event time and over a side stream, and MissingSink for rows that nobody writes."""
        what = f"join_as_of {node.name!r}"
        need_event_time(graph, node, what)
        need_sink(graph, node, what)
        refuse_late_streams(graph, node, what)

    def settings(self) -> Mapping[str, str]:
        """Return the bound and the kind."""
        return {"within": str(Duration(self.within)), "how": self.how.value}

    def words(self, node: StepNode, keys: str) -> str:
        """Return keys, bound, and what becomes of rows that take nothing."""
        fate = "dropped" if self.how is JoinKind.INNER else "emitted with nulls"
        return (
            f"join_as_of {node.name}: left rows with the newest right row, {keys}, at most {Duration(self.within)} "
            f"older, emitted when the watermark is past them; left rows without one {fate}; late rows and null keys of "
            f"the {'inputs' if self.how is JoinKind.INNER else 'right input'} dropped and counted"
        )


class AsOfMethods(TwoStreamMethods[Stream]):
    """Join streams with the newest rows of others."""

    def join_as_of(
        self,
        name: str,
        other: StepMethods[Stream],
        *,
        on: Sequence[str],
        within: Duration,
        how: Literal["inner", "left"] = "inner",
        partitions: int | None = None,
    ) -> Stream:
        """Let each row take the row of `other` that is newest at its event time (SEMANTICS 7.6).

        That is the row of the same key with the greatest event time that is not later than the row's own. Of several
        with that time it is the last to arrive. A row waits until the watermark has passed its event time, so that
        the result is the same however rows were cut into batches. It is emitted once, with its own event time, in
        the order of event time. The output has the key columns, then the other columns of this stream and of `other`.

        Args:
            name: The step's name, under which its state lives.
            other: The right stream.
            on: The key columns, which have the same names in both streams, and the same types. Null equals nothing;
                NaN equals NaN, and 0.0 equals -0.0.
            within: How much older the right row may be, inclusive, at least 0. It bounds the state.
            how: "inner", the default, drops rows that take nothing. "left" emits them with nulls, also those with a
                null key.
            partitions: The state partitions; those of the job, if not given.

        A row that is older than the watermark is late, in either stream. The step drops late rows, right rows with a
        null key, and with "inner" also left ones. The accounting of the step counts them as `late` and `null_keys`.
        It counts left rows as `matched` or `unmatched`.

        Raises:
            JobError: `on`, `within` or `how` is unfit, or one of the streams has a `key_by` already.
        """
        what = f"join_as_of {name!r}"
        kind = checked_kind(how, JoinKind.INNER, JoinKind.LEFT, what=what)
        keys = self._join_keys(other, on, what)
        spec = AsOfJoin(within=duration_micros(within, f"within= of {what}", least=0), how=kind)
        return self._step(name, spec, partitions, other, keys=keys)
