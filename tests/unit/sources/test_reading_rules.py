"""A position in a file names the rules it was counted by, and is refused where they may have moved rows (F39)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from source_reading import csv, end_of_batch

from penstock.errors import ReadByOtherRules
from penstock.sources import FileReplay
from penstock.sources import replay as replay_module


@pytest.fixture(autouse=True)
def private_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the sorted copies of a test apart from those of others."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


# Rows of k float, s string, and whether an older release may have numbered them otherwise.
COUNTED_BEFORE = [
    ("a number that was bent to inf", "1,a\n1e300,b\n2,c\n", True),
    ("a value with a line break", '1,"a\nz"\n3,b\n2,c\n', True),
    ("a value with a carriage return", '1,"a\rz"\n3,b\n2,c\n', True),
    ("inf that is meant, and quotes", '1,"a"\ninf,b\n2,c\n', False),
    ("a record with too few fields, which was bad before", "1,a\n3\n2,c\n", True),
    ("nothing odd", "1,a\n3,b\n2,c\n", False),
]


@pytest.mark.fault("F22", "F39")
@pytest.mark.parametrize(("text", "refused"), [c[1:] for c in COUNTED_BEFORE], ids=[c[0] for c in COUNTED_BEFORE])
def test_rows_that_were_counted_by_older_rules_are_never_shifted(
    text: str, *, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEMANTICS 9.1: where what is bad has changed, rows stand elsewhere; where nothing can have, the file is read on."""
    path = csv(tmp_path, "k,s\n" + text)
    monkeypatch.setattr(replay_module, "arrow_schema", lambda _: pa.schema([("k", pa.float32()), ("s", pa.string())]))
    reader = FileReplay(path, order_by="k", schema="k float, s string", rows_per_batch=2).open(None)
    now = end_of_batch(reader, None)
    assert end_of_batch(reader, now)["row"] == 3
    span = reader.span(None, now)
    for known, fixed in ((now, span), ({**now, "rules": 1}, {**span, "rules": 1})):
        before, then = ({n: v for n, v in fields.items() if n != "rules" or v == 1} for fields in (known, fixed))
        if not refused:
            assert end_of_batch(reader, before)["row"] == 3
            reader.verify(then)
            continue
        with pytest.raises(ReadByOtherRules, match="the first 2 rows were read by the reading rules of version 1"):
            end_of_batch(reader, before)
        with pytest.raises(ReadByOtherRules, match="rows 0 to 2 were fixed by the reading rules of version 1"):
            reader.verify(then)
    with pytest.raises(ReadByOtherRules, match="version 3"):
        end_of_batch(reader, {**now, "rules": 3})


def test_a_copy_that_was_sorted_by_other_rules_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release finds the copies of the one before it in the same folder."""
    replay = FileReplay(csv(tmp_path, "k,s\n2,a\n1,b\n"), order_by="k")
    now = replay.open(None).prepared
    monkeypatch.setattr(replay_module, "_RULES", 1)
    assert replay.open(None).prepared != now
