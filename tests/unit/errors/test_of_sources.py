"""What a source raises says whether it is away, which mends itself, or needs a person (F36, F42)."""

import pytest

from penstock.errors import EXIT_PERSON, EXIT_RETRY, of_sources

RETRY = {"SortedCopyDamaged", "SourceUnavailable"}
LEAVES = [cls for cls in vars(of_sources).values() if isinstance(cls, type) and cls.__module__ == of_sources.__name__]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_only_a_source_that_is_away_or_a_copy_that_is_made_anew_is_tried_again(leaf):
    """A gap, a changed file or a wrong function would be the same next time."""
    assert leaf.exit_code == (EXIT_RETRY if leaf.__name__ in RETRY else EXIT_PERSON)
