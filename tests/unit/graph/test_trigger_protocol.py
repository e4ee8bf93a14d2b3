"""What counts as a trigger of the user's, and what the graph knows of it (SEMANTICS 6)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import JobError
from penstock.graph.trigger_protocol import checked_trigger, finishes, fires, purges, trigger_words, walk
from penstock.triggers import AfterCount, AfterFirst, Moment, Purging, RowTrigger, TriggerResult


class Always:
    """A trigger that always fires."""

    def on_row(self, state: dict[str, Any], row: dict[str, Any], at: Moment) -> None:
        """Do nothing."""

    def judge(self, state: dict[str, Any], at: Moment) -> TriggerResult:
        """Fire."""
        return TriggerResult.FIRE


def test_an_object_with_both_methods_is_a_trigger() -> None:
    """Nobody knows whether it purges, so it does not; it never finishes by itself."""
    own = Always()
    assert isinstance(own, RowTrigger)
    assert checked_trigger(own, "trigger") is own
    assert (fires(own), finishes(own), purges(own), trigger_words(own)) == (True, False, False, "Always")
    assert purges(Purging(own))


@pytest.mark.parametrize("wrong", [Always, object(), None], ids=["its class", "an object", "None"])
def test_anything_else_is_none(wrong: object) -> None:
    """The error says what a trigger is."""
    with pytest.raises(JobError, match="on_row and judge"):
        checked_trigger(wrong, "trigger")


def test_a_walk_has_each_part_after_its_whole() -> None:
    """Triggers of the user's have no parts."""
    own, three = Always(), AfterCount(3)
    first = AfterFirst(own, three)
    assert [*walk(Purging(first))] == [Purging(first), first, own, three]
