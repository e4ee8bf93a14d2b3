"""The entries on the page of the checkpoint format are those that a run of the Harness writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from penstock.checkpoint.control_records import STRIDES
from penstock.checkpoint.log.entries import END_OF_TIME, Commit, Compaction, Offsets, Takeover, from_bytes
from penstock.checkpoint.log.log import STRIDE
from penstock.checkpoint.storage.format import FORMAT_VERSION, MAX_BODY, MAX_DEPTH
from tools.checkpoint_format_page import SHOWN, put_in, samples, steady

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "checkpoint-format.md").read_text(encoding="utf-8")
KINDS = {"takeover": Takeover, "offsets": Offsets, "commit": Commit}


def on_page(kind: str) -> tuple[str, dict]:
    """Return header line and body of the sample of one kind."""
    (sample,) = re.findall(rf"<!-- sample: {kind} -->\n```json\n(.*?)\n```", PAGE, re.DOTALL)
    header, body = sample.split("\n", 1)
    return header, json.loads(body)


@pytest.mark.spark
def test_the_sample_entries_are_those_of_a_run(tmp_path):
    """HOUSE 4: the page once showed fields and names that no commit has. Every field and value is compared."""
    for kind, sample in samples(tmp_path):
        header, body = sample.split("\n", 1)
        assert on_page(kind) == (header, json.loads(body)), "run: python -m tools.checkpoint_format_page --write"


@pytest.mark.parametrize("kind", SHOWN)
def test_a_sample_is_a_file_that_can_be_read(kind):
    """Checksums and length are those of the body on one line, and no field is left to a default."""
    header, body = on_page(kind)
    entry = from_bytes(f"{header}\n{json.dumps(body, separators=(',', ':'))}".encode(), kind)
    assert type(entry) is KINDS[kind]
    assert entry.model_fields_set == set(KINDS[kind].model_fields)


@pytest.mark.parametrize(
    ("entry", "begin", "end"),
    [
        (Commit, "### Commit", "### Fields of every entry"),
        (Compaction, "## Compaction of the log", "## Purge of the log"),
    ],
)
def test_the_tables_of_fields_have_all_of_them(entry, begin, end):
    """A field that is added to a Commit or a Compaction is described."""
    table = PAGE.split(f"{begin}\n")[1].split(f"{end}\n")[0]
    described = {
        name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"\w+", cell)
    }
    common = {"epoch", "writer", "command", "place", "kind", "batch", "time"}
    assert described - common == set(entry.model_fields) - common


def test_what_differs_from_run_to_run_is_made_steady():
    """Random ids, attempts, sizes, times and the folder; everything else stays."""
    entry = {
        "writer": "a1",
        "path": "000000000002-1-5-9484a56ad998.json",
        "sinks": {"a": "/t/x"},
        "written": {"b": 3, "a": 2},
        "rows": [1, None, "9484a56ad998"],
    }
    fixed = steady(entry, Path("/t"))
    assert (fixed["path"], fixed["sinks"]) == ("000000000002-1-7-c1d2e3f4a5b6.json", {"a": "/srv/streams/x"})
    assert (fixed["rows"], list(fixed["written"])) == ([1, None, "9484a56ad998"], ["a", "b"])
    assert fixed == steady(entry | {"writer": "b2", "path": "000000000002-1-8-aaaaaaaaaaaa.json"}, Path("/t"))


def test_a_sample_has_one_place_on_the_page():
    """A page whose marks are gone is an error, and not a page without samples."""
    assert put_in("<!-- sample: a -->\n```json\nold\n```", "a", "new") == "<!-- sample: a -->\n```json\nnew\n```"
    with pytest.raises(ValueError, match="0 places"):
        put_in("```json\nold\n```", "a", "new")


def test_the_numbers_on_the_page_are_those_of_the_code():
    """A change of the format changes the page."""
    assert f"`version` | of the format, {FORMAT_VERSION} now" in PAGE
    assert f"at most {MAX_BODY // 2**20} MiB and {MAX_DEPTH} levels" in PAGE
    assert f"multiples of {STRIDE:,}" in PAGE
    assert str(END_OF_TIME) in PAGE
    assert STRIDES == (64, 4_096, 262_144)
