"""What goes wrong while senders push rows mends itself by another try, or needs a person (F47)."""

import pytest

from penstock.errors import EXIT_PERSON, EXIT_RETRY, of_receivers

RETRY = {"CannotListen", "EpochSealed", "ReceiversTakeAllCores"}
LEAVES = [cls for cls in vars(of_receivers).values() if getattr(cls, "__module__", "") == of_receivers.__name__]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_only_what_others_may_mend_is_tried_again(leaf):
    """Another receiver takes the rows, executors come, and ports get free; rows that are gone would be gone the next time."""
    assert leaf.exit_code == (EXIT_RETRY if leaf.__name__ in RETRY else EXIT_PERSON)
