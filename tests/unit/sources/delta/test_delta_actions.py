"""What a commit of a table means for a stream is a function of its actions (Delta protocol, "Actions")."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.sources.delta.actions import Table, active_files, commit_of, data_file, time_of, unreadable_part


def add(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "size": 7, "partitionValues": {}, "dataChange": True, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, **more}}


def cdc(path: str) -> dict[str, Any]:
    return {"cdc": {"path": path, "size": 7, "partitionValues": {}, "dataChange": False}}


COMMITS = {
    "an append": ([add("a"), add("b")], ["insert a", "insert b"], None, ["insert a", "insert b"]),
    "a compaction": ([remove("a", dataChange=False), add("b", dataChange=False)], [], None, []),
    "a deletion of files": ([remove("a")], [], "deletes rows of 1 files", ["delete a"]),
    "a rewriting": ([remove("a"), add("b")], [], "updates or deletes rows of 1 files", ["delete a", "insert b"]),
    "one with a feed": ([remove("a"), add("b"), cdc("c")], [], "updates or deletes rows of 1 files", ["cdc c"]),
    "settings": ([{"metaData": {"id": "1"}}, {"txn": {"appId": "x", "version": 1}}], [], None, []),
    "one of an older writer": ([{"add": {"path": "a", "size": 1}}], ["insert a"], None, ["insert a"]),
}


@pytest.mark.parametrize("name", COMMITS)
def test_a_commit_is_read_as_new_rows_or_as_changes(name: str) -> None:
    """New rows are those of commits that only add; changes are all that are of data."""
    actions, new, rewrites, changed = COMMITS[name]
    commit = commit_of(3, actions, changes=False)
    assert ([f"{file.kind} {file.path}" for file in commit.files], commit.rewrites) == (new, rewrites)
    feed = commit_of(3, actions, changes=True)
    assert ([f"{file.kind} {file.path}" for file in feed.files], feed.rewrites) == (changed, None)
    assert [(file.version, file.index) for file in feed.files] == [(3, i) for i in range(len(changed))]


@pytest.mark.parametrize(
    ("actions", "changes", "problem"),
    [
        ([add("a", deletionVector={"storageType": "u"})], False, "rows of a are deleted by a deletion vector"),
        ([add("file:/elsewhere/a")], False, "file:/elsewhere/a is outside the table"),
        ([add("/elsewhere/a")], True, "/elsewhere/a is outside the table"),
        ([remove("a", deletionVector={"storageType": "u"})], True, "rows of a are deleted by a deletion vector"),
        ([add("a", deletionVector={"storageType": "u"}), cdc("c")], True, None),
        ([add("a", dataChange=False, deletionVector={"storageType": "u"})], False, None),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem_where_it_is_read(
    actions: list[dict[str, Any]], changes: Any, problem: str | None
) -> None:
    """A feed that has its rows in files of its own needs no others."""
    assert commit_of(1, actions, changes=changes).problem == problem


def test_files_in_force_are_those_added_and_not_removed() -> None:
    """By path and deletion vector, so a file that gets a vector is removed without one and added with one."""
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1}
    summary = [add(path)["add"] for path in "dba"]
    files, problem = active_files(summary, [[remove("a"), add("c")], [add("b", deletionVector=vector), remove("b")]])
    assert [file["path"] for file in files] == ["b", "c", "d"]
    assert problem == "rows of b are deleted by a deletion vector"
    assert active_files(summary, [[remove("b")]]) == ([summary[2], summary[0]], None)


def test_a_file_is_what_its_action_says() -> None:
    """Paths are written as in URLs; statistics may be there or not, and lack the number of rows."""
    body = {"path": "d=a%2520b/x", "size": 5, "partitionValues": {"d": "a%20b"}, "stats": '{"numRecords": 4}'}
    file = data_file(2, 0, body)
    assert (file.path, file.size, file.rows, dict(file.values)) == ("d=a%20b/x", 5, 4, {"d": "a%20b"})
    for stats in (None, "", "{}", "no JSON"):
        assert data_file(2, 0, {**body, "stats": stats}).rows is None


def test_a_commit_says_when_it_was_made() -> None:
    """By the time that no clock sets back, where the table keeps one."""
    assert time_of([{"commitInfo": {"timestamp": 5}}]) == 5
    assert time_of([{"commitInfo": {"timestamp": 5, "inCommitTimestamp": 6}}]) == 6
    assert time_of([{"commitInfo": {}}]) is None
    assert time_of([add("a")]) is None


@pytest.mark.parametrize(
    ("protocol", "settings", "part"),
    [
        ({"minReaderVersion": 1}, {}, None),
        ({"minReaderVersion": 2}, {"delta.columnMapping.mode": "none"}, None),
        ({"minReaderVersion": 2}, {"delta.columnMapping.mode": "id"}, "the table maps its columns by id"),
        ({"minReaderVersion": 3, "readerFeatures": ["deletionVectors", "timestampNtz"]}, {}, None),
        ({"minReaderVersion": 3, "readerFeatures": ["typeWidening"]}, {}, "the table has the feature 'typeWidening'"),
        ({"minReaderVersion": 4}, {}, "the table is of reader version 4"),
    ],
)
def test_what_a_table_asks_of_readers(protocol: dict[str, Any], settings: dict[str, str], part: str | None) -> None:
    """What may be in use and is not, is no obstacle; what is unknown is."""
    found = unreadable_part(Table({"configuration": settings}, protocol))
    assert (found or "").startswith(part or "")
    assert (found is None) is (part is None)
