"""The sample on the page of the checkpoint format is a real file."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.checkpoint.control_records import STRIDES
from penstock.checkpoint.log.entries import END_OF_TIME, Commit, from_bytes
from penstock.checkpoint.log.log import STRIDE
from penstock.checkpoint.storage.format import FORMAT_VERSION, MAX_BODY, MAX_DEPTH

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "checkpoint-format.md").read_text()


def test_the_sample_entry_can_be_read() -> None:
    """Checksums, fields and place are those of a Commit of batch 42 in slot 91, with none left to a default."""
    (sample,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    entry = from_bytes(sample.encode(), "log/000000000091")
    assert isinstance(entry, Commit)
    assert entry.place
    assert (entry.batch, entry.place.slot, entry.epoch) == (42, 91, 7)
    assert entry.model_fields_set == set(Commit.model_fields)


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    """A change of the format changes the page."""
    assert f"`version` | of the format, {FORMAT_VERSION} now" in PAGE
    assert f"at most {MAX_BODY // 2**20} MiB and {MAX_DEPTH} levels" in PAGE
    assert f"multiples of {STRIDE:,}" in PAGE
    assert str(END_OF_TIME) in PAGE
    assert STRIDES == (64, 4_096, 262_144)
