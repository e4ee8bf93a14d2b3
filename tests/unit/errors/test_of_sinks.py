"""What a sink raises says whether the driver waits, tries again, or needs a person (F56, F57)."""

import pytest

from penstock.errors import EXIT_PERSON, EXIT_RETRY, of_sinks

PERSON = {
    "BatchFunctionError", "CheckpointCopied", "DatabaseDenied", "DatabaseNotFound", "KeysNotUnique", "KeysRepeated",
    "ManifestDamaged", "OutputDenied", "RecordTooLarge", "SinkAhead", "SinkBehind", "SinkDenied", "SinkForgets",
    "SinkNotFound", "SinkRefused", "SinkSchemaMismatch", "SinkValueRefused", "UpsertImpossible",
}  # fmt: skip
LEAVES = [cls for cls in vars(of_sinks).values() if isinstance(cls, type) and cls.__module__ == of_sinks.__name__]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_a_sink_that_is_away_or_busy_is_tried_again_and_no_other(leaf):
    """What would fail the same way next time needs a person."""
    assert leaf.exit_code == (EXIT_PERSON if leaf.__name__ in PERSON else EXIT_RETRY)
