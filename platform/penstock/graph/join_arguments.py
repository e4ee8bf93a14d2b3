"""Check the arguments that joins of two streams have in common."""

from __future__ import annotations

from enum import StrEnum

from penstock.graph.names import checked_columns
from penstock.graph.source_location import job_error
from penstock.graph.stateful import StepMethods, Stream

__all__ = ["JoinKind", "TwoStreamMethods", "checked_kind"]


class JoinKind(StrEnum):
    """The rows without a match that a join emits: none, or those of the left input."""

    INNER = "inner"
    LEFT = "left"


def checked_kind(how: object, *kinds: JoinKind, what: str) -> JoinKind:
    """Return the kind that `how=` says, one of `kinds`; raises JobError for another. `what` names the join."""
    kind = next((each for each in kinds if each == how), None)
    if kind is None:
        listed = " or ".join(repr(each.value) for each in kinds)
        raise job_error(f"how= of {what} is {how!r}, which is none of its kinds; write {listed}")
    return kind


class TwoStreamMethods(StepMethods[Stream]):
    """Offer steps that join a stream with another."""

    def _join_keys(self, other: StepMethods[Stream], on: object, what: str) -> tuple[str, ...]:
        """Return the key columns that `on=` lists; `what` names the join.

        Raises:
            JobError: `other` is no stream, one of the two has a `key_by` already, or `on` is no list of columns.
            DuplicateName: `on` names a column twice.
        """
        if not isinstance(other, StepMethods):
            raise job_error(f"{what} needs another stream, not {other!r}")
        if keyed := self._keys or other._keys:
            raise job_error(
                f"{what} follows key_by, and names its keys itself; call it on streams before key_by, with "
                f"on={[*keyed]}"
            )
        return checked_columns(on, "on=", what)
