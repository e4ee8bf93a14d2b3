"""A version is a whole number, in code and in a job's file."""

import pytest

from penstock.errors import ConfigError
from penstock.sources import Json, Kafka, Start, Version, version


def test_a_version_is_read_from_text() -> None:
    """As "version 7", and no other text."""
    assert Version.parse("version 7") == version(7)
    for text in ("7", "version", "version -1", "version 07", "Version 7"):
        with pytest.raises(ValueError, match="is no version, such as 'version 7'"):
            Version.parse(text)


@pytest.mark.parametrize("number", [-1, 1.5, True, "7"])
def test_a_wrong_version_is_refused(number: object) -> None:
    """Where it is written."""
    with pytest.raises(ConfigError, match="is no whole number"):
        version(number)  # type: ignore[arg-type]


def test_a_topic_has_no_snapshot() -> None:
    """Its records are its history."""
    with pytest.raises(ConfigError, match=r"start=Start\.SNAPSHOT is for tables"):
        Kafka(["orders"], servers="127.0.0.1:9092", format=Json("k long"), start=Start.SNAPSHOT)
