"""A position knows which files were read, and stays small for ever."""

from __future__ import annotations

import json

from examples import examples
from folder_files import BEGIN, S
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.file.positions import Entry, FilePosition, Standing

FILES = st.lists(
    st.builds(Entry, st.text("abé/=", min_size=1, max_size=4), st.integers(0, 5), st.integers(1, 3)),
    unique_by=lambda entry: entry.path,
    max_size=12,
)


def test_the_log_has_it_as_plain_json() -> None:
    """And gives it back as it was."""
    entries = [Entry("a/é", BEGIN, 1, BEGIN + 5), Entry("b", BEGIN + S, 2, BEGIN + 3)]
    waiting = [Entry("c", BEGIN - S, 9)]
    position = FilePosition(facts={"pattern": "*"}, todo=entries[:1]).after(entries, waiting, grace=0, late=3)
    stored = json.loads(json.dumps(position.as_json()))
    back = FilePosition.of(stored)
    assert back.as_json() == stored
    assert (back.files, back.floor, back.late, back.arrived) == (2, (BEGIN + S, ""), 3, BEGIN + 5)
    assert (back.unread, back.read) == ({"c": (BEGIN - S, 9)}, {"b": (BEGIN + S, 2)})
    assert [entry.path for entry in back.todo] == ["a/é"]
    assert FilePosition.of(None) == FilePosition()


@settings(max_examples=examples(100))
@given(FILES, st.integers(0, 12), st.integers(0, 6))
def test_what_was_read_is_never_new_and_what_waits_always_is(entries: list[Entry], count: int, grace: int) -> None:
    """Whichever of the files are read first, and however short the grace."""
    position = FilePosition().after(entries[:count], entries[count:], grace=grace)
    assert {position.standing(entry) for entry in entries[:count]} <= {Standing.READ, Standing.OLD}
    assert {position.standing(entry) for entry in entries[count:]} <= {Standing.NEW}
    rest = position.after(entries[count:], [], grace=grace)
    assert {rest.standing(entry) for entry in entries} <= {Standing.READ, Standing.OLD}
    assert rest.has_passed(FilePosition(), entries) == sorted(entries, key=lambda entry: entry.key)
    assert rest.has_passed(position, entries) == sorted(entries[count:], key=lambda entry: entry.key)


def test_a_path_is_known_by_time_and_length() -> None:
    """A file that was written again is another one."""
    position = FilePosition().after([Entry("a", 7, 1)], [], grace=5)
    assert position.standing(Entry("a", 7, 1)) is Standing.READ
    assert position.standing(Entry("a", 8, 1)) is Standing.REWRITTEN
    assert position.standing(Entry("a", 7, 2)) is Standing.REWRITTEN
    assert position.standing(Entry("b", 2, 1)) is Standing.NEW
    assert position.standing(Entry("b", 1, 1)) is Standing.OLD
    again = position.after([], [], grace=0, rewritten=[Entry("a", 8, 1)])
    assert again.standing(Entry("a", 8, 1)) is Standing.READ
    assert (again.files, again.rewritten) == (1, 1)


def test_a_thousand_files_take_thirty_kilobytes() -> None:
    """Names of partitions and random ids, as Spark gives them."""
    entries = [
        Entry(f"day=2026-11-25/hour=07/part-{n:05}-{hash(n) % 2**61:016x}.json", BEGIN + n, n) for n in range(1000)
    ]
    assert len(json.dumps(FilePosition().after(entries, [], grace=S).as_json())) < 30_000
