"""Windows that a table was given are found, counted and read as a plain count over its commits has them."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ReportImpossible
from penstock.quality.reports import published as module
from penstock.quality.reports.published import Published, Selection, Window, select

MINUTE = 60_000_000
UTC = pa.timestamp("us", tz="UTC")
NEW = Selection()


def rows_of(places, *, length=MINUTE, first=0, **more) -> pa.Table:
    """Return a row for each place of a window, numbered from `first`."""
    starts = [place * MINUTE for place in places]
    return pa.table({
        "v": pa.array(range(first, first + len(starts)), pa.int64()),
        "window_start": pa.array(starts, UTC),
        "window_end": pa.array([start + length for start in starts], UTC),
        **more,
    })  # fmt: skip


def write(path: Path, *commits, **options) -> Path:
    """Append rows, a commit for each list of places; versions count from 0."""
    first = 0
    for places in commits:
        write_deltalake(path, rows_of(places, first=first), mode="append", **options)
        first += len(places)
    return path


def counts(published: Published) -> dict[int, int]:
    """Return how many rows each window has, by its place."""
    return {window.start // MINUTE: window.rows for window in published.windows}


def everything(path: Path, selection=NEW, *, after=None, at_most=1_000, **wanted) -> Published:
    return select(path, selection, after=after, at_most=at_most, **wanted)


# --- the model -------------------------------------------------------------------------------

COMMITS = st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=6)


@settings(max_examples=examples(16))
@given(commits=COMMITS, data=st.data())
def test_new_windows_are_those_of_the_later_commits_up_to_the_limit(commits, data):
    """From any cursor: whole commits in turn until the limit is met, counted by what these commits added."""
    after = data.draw(st.integers(-1, len(commits) - 1))
    at_most = data.draw(st.integers(1, 6))
    with tempfile.TemporaryDirectory() as folder:
        selected = select(write(Path(folder) / "t", *commits), NEW, after=after, at_most=at_most)

    version, model = after, Counter()
    while version < len(commits) - 1 and not len(model) >= at_most:
        version += 1
        model.update(commits[version])
    later = [place for commit in commits[version + 1 :] for place in commit]

    assert counts(selected) == model
    assert [w.start for w in selected.windows] == sorted(w.start for w in selected.windows)
    assert not selected.gap
    assert selected.more == bool(later)
    assert selected.version >= version
    assert not any(commits[version + 1 : selected.version + 1])


@pytest.mark.slow
@settings(max_examples=examples(12))
@given(commits=COMMITS, at_most=st.integers(1, 6), optimized=st.booleans())
def test_going_on_until_there_is_no_more_visits_each_commit_once(commits, at_most, optimized):
    """All rows are met once over the reports, also where the table is rewritten meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        table, seen, after = write(Path(folder) / "t", *commits), Counter(), -1
        for number in range(2 * len(commits) + 3):
            selected = select(table, NEW, after=after, at_most=at_most)
            assert selected.version >= after
            for _, rows in selected.rows(1_000):
                seen.update(rows["v"].to_pylist())
            after = selected.version
            if optimized and number == 0:
                DeltaTable(table).optimize.compact()
            elif not selected.more:
                break
        assert not selected.more
        assert after == DeltaTable(table).version()
    assert seen == Counter(range(sum(map(len, commits))))


@settings(max_examples=examples(12))
@given(commits=COMMITS, newest=st.none() | st.integers(1, 6), at_most=st.integers(1, 6), data=st.data())
def test_picked_windows_are_those_of_the_whole_table(commits, newest, at_most, data):
    """Newest, or those that end from `since` on and before `until`; the limit leaves older ones out, and says so."""
    bounds = st.none() | st.integers(0, 6 * 2).map(lambda half: half * MINUTE // 2)
    since, until = (None, None) if newest is not None else (data.draw(bounds), data.draw(bounds))
    with tempfile.TemporaryDirectory() as folder:
        table = write(Path(folder) / "t", *commits)
        selected = select(table, Selection(newest=newest, since=since, until=until), after=None, at_most=at_most)

    everywhere = Counter(place for commit in commits for place in commit)
    ends = {place: (place + 1) * MINUTE for place in everywhere}
    chosen = sorted(
        p for p in everywhere if (since is None or ends[p] >= since) and (until is None or ends[p] < until)
    )  # fmt: skip
    chosen = chosen[-newest:] if newest is not None else chosen
    assert counts(selected) == {place: everywhere[place] for place in chosen[-at_most:]}
    assert selected.passed == len(chosen) - len(selected.windows)
    assert (selected.version, selected.more, selected.gap) == (len(commits) - 1, False, False)


@pytest.mark.slow
@settings(max_examples=examples(12))
@given(commits=COMMITS, at_once=st.integers(1, 12), at_most=st.integers(0, 6), after=st.sampled_from([None, -1]))
def test_rows_are_those_of_each_window_and_big_windows_are_left_to_spark(commits, at_once, at_most, after):
    """However few rows are loaded at a time, each window comes once, in order, with exactly its rows."""
    placed = [place for commit in commits for place in commit]
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(module, "_AT_ONCE", at_once):
        selected = select(write(Path(folder) / "t", *commits), NEW, after=after, at_most=1_000)
        read = [
            (window, None if rows is None else sorted(rows["v"].to_pylist())) for window, rows in selected.rows(at_most)
        ]

    assert tuple(window for window, _ in read) == selected.windows
    for window, numbers in read:
        expected = [v for v, place in enumerate(placed) if place == window.start // MINUTE]
        assert window.rows == len(expected)
        assert numbers == (expected if len(expected) <= at_most else None)


# --- bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [(2, None, [1, 2, 3]), (None, 2, [0]), (2, 3, [1]), (3, 2, []), (2, 2, []), (0, 9, [0, 1, 2, 3]), (9, None, [])],
    ids=["from an end on", "before an end", "both", "the wrong way round", "empty", "all", "later than all"],
)
def test_since_is_inclusive_and_until_is_exclusive_of_a_windows_end(tmp_path, since, until, expected):
    """The windows here end at minutes 1, 2, 3 and 4."""
    bounds = {"since": since and since * MINUTE, "until": until and until * MINUTE}
    selected = everything(write(tmp_path / "t", [0, 1], [2, 3]), Selection(**bounds))
    assert list(counts(selected)) == expected


def test_since_of_the_year_1970_is_a_bound(tmp_path):
    """Zero microseconds is a moment, not the lack of one."""
    selection = Selection(since=0)
    assert not selection.is_new
    assert not Selection(until=0).is_new
    assert counts(everything(write(tmp_path / "t", [-3, -1, 1]), selection)) == {-1: 1, 1: 1}


def test_more_windows_than_there_are_is_all_of_them(tmp_path):
    """Nothing was left out then."""
    selected = everything(write(tmp_path / "t", [0, 1], [1]), Selection(newest=9))
    assert (counts(selected), selected.passed) == ({0: 1, 1: 2}, 0)


def test_windows_with_one_start_and_several_ends_are_several(tmp_path):
    """Sessions and windows of several lengths overlap; each has its own rows, also in loads of its own."""
    table = tmp_path / "t"
    write_deltalake(table, rows_of([0, 0, 1], first=0))
    write_deltalake(table, rows_of([0, 1], first=3, length=2 * MINUTE), mode="append")
    selected = everything(table)
    expected = {(0, 1): [0, 1], (0, 2): [3], (1, 2): [2], (1, 3): [4]}
    for at_once in (1, 2, 1_000):
        with mock.patch.object(module, "_AT_ONCE", at_once):
            read = {(w.start // MINUTE, w.end // MINUTE): sorted(r["v"].to_pylist()) for w, r in selected.rows(9)}
        assert read == expected
        assert list(read) == sorted(expected)


# --- tables that are rewritten ---------------------------------------------------------------


def test_optimize_brings_nothing_new(tmp_path):
    """Its commit is passed over; the cursor goes beyond it, and the rows before it are read where they were."""
    table = write(tmp_path / "t", [0, 1], [1, 2])
    DeltaTable(table).optimize.compact()
    after = everything(table, after=1)
    assert (after.windows, after.version, after.gap, after.more) == ((), 2, False, False)
    assert counts(everything(table, after=0)) == {1: 1, 2: 1}
    assert counts(everything(table)) == {0: 1, 1: 2, 2: 1}


def test_swept_files_are_a_gap_and_all_windows_count_as_new(tmp_path):
    """After OPTIMIZE and VACUUM nobody can say what came when: told, and each window is looked at again."""
    table = write(tmp_path / "t", [0, 1], [1, 2])
    DeltaTable(table).optimize.compact()
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    selected = everything(table, after=0)
    assert (counts(selected), selected.gap, selected.more) == ({0: 1, 1: 2, 2: 1}, True, False)
    assert selected.version == DeltaTable(table).version()
    assert sorted(v for _, rows in selected.rows(9) for v in rows["v"].to_pylist()) == [0, 1, 2, 3]
    limited = everything(table, after=0, at_most=2)
    assert (counts(limited), limited.passed, limited.gap) == ({1: 2, 2: 1}, 1, True)


def test_a_commit_that_was_cleaned_up_is_a_gap(tmp_path):
    """Delta removes old files of its log; a checkpoint has what the table holds."""
    table = write(tmp_path / "t", [0], [1], [2])
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{1:020d}.json").unlink()
    selected = everything(table, after=0)
    assert (counts(selected), selected.gap) == ({0: 1, 1: 1, 2: 1}, True)
    assert counts(everything(table, after=1)) == {2: 1}


def test_a_first_look_is_not_a_gap(tmp_path):
    """Where nothing was reported yet, all is new; so it is for one who picks."""
    table = write(tmp_path / "t", [0])
    assert not everything(table).gap
    assert not everything(table, Selection(newest=1), after=5).gap


def test_a_table_that_was_made_anew_is_a_gap(tmp_path):
    """Its versions begin at 0 again: a cursor beyond them says nothing, and its windows must not be passed over."""
    table = write(tmp_path / "t", [0, 1])
    selected = everything(table, after=7)
    assert (counts(selected), selected.version, selected.gap) == ({0: 1, 1: 1}, 0, True)


def test_only_rewriting_commits_left_are_not_more(tmp_path):
    """`more` says that newer windows wait; OPTIMIZE's commit holds none."""
    table = write(tmp_path / "t", [0, 1])
    write_deltalake(table, rows_of([2], first=2), mode="append")
    DeltaTable(table).optimize.compact()
    selected = everything(table, after=0, at_most=1)
    assert (counts(selected), selected.more) == ({2: 1}, False)


# --- types and columns -----------------------------------------------------------------------

PARTITIONS = {
    "text": pa.array(["a b", "a:b", "a%20b", "é", "a/b", "[x]", "#?&+=", None], pa.string()),
    "whole": pa.array([1, -2, 3, None, 2**31 - 1, 0, 1, 2], pa.int32()),
    "real": pa.array([0.1, -2.5, None, 1e-5, 0.0, 1.0, 2.0, 3.0], pa.float64()),
    "money": pa.array([Decimal("1.10"), Decimal("-2.00"), None, *[Decimal("0.00")] * 5], pa.decimal128(10, 2)),
    "flag": pa.array([True, False, None, True, True, False, False, True], pa.bool_()),
    "day": pa.array([dt.date(2020, 1, 1), dt.date(1969, 7, 20), None, *[dt.date(2024, 2, 29)] * 5], pa.date32()),
    "at": pa.array([0, 1_500_000, None, -1, 1, 2, 3, 4], UTC),
    "local": pa.array([0, 1_500_000, None, -1, 1, 2, 3, 4], pa.timestamp("us")),
}


@pytest.mark.parametrize("after", [None, -1], ids=["as it stands", "by its commits"])
@pytest.mark.parametrize("column", PARTITIONS)
def test_columns_that_a_table_is_partitioned_by_come_back_as_they_were(tmp_path, column, after):
    """Their values are in the log only, as text; odd characters are quoted twice there."""
    rows = rows_of([0, 0, 1, 1, 2, 2, 3, 3], p=PARTITIONS[column])
    write_deltalake(tmp_path / "t", rows, partition_by=["p"])
    selected = everything(tmp_path / "t", after=after)
    read = [rows for _, rows in selected.rows(9)]
    assert counts(selected) == {0: 2, 1: 2, 2: 2, 3: 2}
    assert {part.schema.field("p").type for part in read} == {PARTITIONS[column].type}
    assert pa.concat_tables(read).sort_by("v").select(["v", "p"]).to_pylist() == rows.select(["v", "p"]).to_pylist()


@pytest.mark.parametrize("after", [None, -1], ids=["as it stands", "by its commits"])
@pytest.mark.parametrize("by", [["window_start"], ["window_end"], ["window_start", "window_end"]], ids="+".join)
def test_a_table_may_be_partitioned_by_its_windows(tmp_path, by, after):
    """No file has the column then; the windows are told from the log."""
    write_deltalake(tmp_path / "t", rows_of([0, 1, 1]), partition_by=by)
    selected = everything(tmp_path / "t", after=after)
    assert counts(selected) == {0: 1, 1: 2}
    assert [sorted(rows["v"].to_pylist()) for _, rows in selected.rows(9)] == [[0], [1, 2]]


@pytest.mark.parametrize("after", [None, -1], ids=["as it stands", "by its commits"])
def test_an_empty_text_to_partition_by_is_null(tmp_path, after):
    """Delta has it so: the same row must not change with who asks."""
    write_deltalake(tmp_path / "t", rows_of([0], p=pa.array([""])), partition_by=["p"])
    [(_, rows)] = everything(tmp_path / "t", after=after).rows(9)
    assert rows["p"].to_pylist() == [None]


def test_a_column_that_came_later_is_null_before(tmp_path):
    """Delta tables gain columns; files from before lack them."""
    table = write(tmp_path / "t", [0])
    more = rows_of([1], first=1, extra=pa.array(["x"]))
    write_deltalake(table, more, mode="append", schema_mode="merge")
    selected = everything(table)
    assert [rows["extra"].to_pylist() for _, rows in selected.rows(9)] == [[None], ["x"]]


def test_files_with_timestamps_of_96_bits_are_read(tmp_path):
    """Spark writes such, for one when it rewrites a table by OPTIMIZE: nanoseconds without a zone."""
    table = write(tmp_path / "t", [0, 1, 1])
    [path] = table.glob("*.parquet")
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    selected = everything(table)
    assert counts(selected) == {0: 1, 1: 2}
    assert [rows["v"].to_pylist() for _, rows in selected.rows(9)] == [[0], [1, 2]]
    assert selected.schema.field("window_start").type == UTC


def test_rows_keep_all_columns_in_their_types(tmp_path):
    """What is judged is what was published, wherever it was partitioned."""
    more = {
        "n": pa.array([1, None], pa.int16()),
        "r": pa.array([0.5, float("nan")], pa.float32()),
        "d": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
        "l": pa.array([[1], None], pa.list_(pa.int64())),
        "s": pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])),
        "p": pa.array(["x", "y"]),
    }
    written = rows_of([0, 0], **more)
    write_deltalake(tmp_path / "t", written, partition_by=["p"])
    [(window, rows)] = everything(tmp_path / "t").rows(9)
    assert window == Window(0, MINUTE, 2)
    assert rows.schema.types == written.select(rows.column_names).schema.types
    assert str(rows.sort_by("v").to_pylist()) == str(written.select(rows.column_names).to_pylist())


# --- refusals --------------------------------------------------------------------------------


def refused(path: Path, match: str, **wanted) -> None:
    with pytest.raises(ReportImpossible, match=match):
        everything(path, **wanted)


@pytest.mark.remedy("PEN-QLT-008")
def test_a_table_that_is_not_there_is_refused(tmp_path):
    """Neither a missing folder nor one with other files holds a table, and none is made."""
    refused(tmp_path / "nowhere", "nothing was published yet")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "files").mkdir()
    pq.write_table(rows_of([0]), tmp_path / "files" / "a.parquet")
    refused(tmp_path / "files", "nothing was published yet")
    write_deltalake(tmp_path / "nowhere", rows_of([0]))
    assert len(list(everything(tmp_path / "nowhere").rows(9))) == 1


@pytest.mark.parametrize("column", ["window_start", "window_end"])
def test_a_table_without_window_columns_is_refused(tmp_path, column):
    """Either of the two is missing."""
    write_deltalake(tmp_path / "t", rows_of([0]).drop_columns([column]))
    refused(tmp_path / "t", "it holds no windows")


@pytest.mark.parametrize(
    "bounds",
    [pa.array(["early"]), pa.array([True]), pa.array([None], UTC)],
    ids=["texts", "booleans", "null"],
)
def test_window_columns_that_hold_no_moments_are_refused(tmp_path, bounds):
    """A table may have such columns for reasons of its own; that is said, not raised from within a library."""
    table = pa.table({"v": [1, 2], "window_start": pa.concat_arrays([bounds, bounds])})
    table = table.append_column("window_end", pa.array([1, 2], UTC))
    write_deltalake(tmp_path / "t", table)
    refused(tmp_path / "t", "window")


def test_a_row_without_a_window_among_others_is_refused(tmp_path):
    """Null bounds have no place in the order of windows."""
    table = rows_of([0, 1]).set_column(1, "window_start", pa.array([0, None], UTC))
    write_deltalake(tmp_path / "t", table)
    refused(tmp_path / "t", "window")


@pytest.mark.parametrize("after", [None, 0], ids=["as it stands", "by its commits"])
@pytest.mark.parametrize("path", ["/etc/a.parquet", "s3://bucket/a.parquet", "file:///etc/a.parquet", "../a.parquet"])
def test_files_outside_the_tables_folder_are_refused(tmp_path, path, after):
    """A shallow clone names files of another table; a log could name any file of the machine."""
    table = write(tmp_path / "t", [0])
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    (table / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"add": add}) + "\n")
    pq.write_table(rows_of([1]), tmp_path / "a.parquet")
    refused(table, "outside its folder", after=after)


@pytest.mark.parametrize(
    ("feature", "reason"), [("deletionVectors", "deletion vectors"), ("columnMapping", "column mapping")]
)
def test_a_table_that_hides_rows_from_plain_readers_is_refused(tmp_path, feature, reason):
    """Its files hold rows that were deleted, or columns by other names."""
    table = write(tmp_path / "t", [0])
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    (table / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    refused(table, reason)


def test_column_mapping_of_an_older_protocol_is_refused(tmp_path):
    """A reader version of 2 means it without naming it: columns in the files go by other names."""
    table = write(tmp_path / "t", [0])
    log = table / "_delta_log" / f"{0:020d}.json"
    metadata = next(a["metaData"] for a in map(json.loads, log.read_text().splitlines()) if "metaData" in a)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    changed = {**metadata, "schemaString": json.dumps(schema), "configuration": configuration}
    actions = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": changed}]
    (table / "_delta_log" / f"{1:020d}.json").write_text("".join(json.dumps(a) + "\n" for a in actions))
    refused(table, "column mapping")


@pytest.mark.parametrize("after", [None, -1, 0], ids=["first", "from the start", "up to date"])
@pytest.mark.parametrize("selection", [NEW, Selection(newest=3), Selection(since=0)], ids=["new", "newest", "since"])
def test_an_empty_table_has_no_windows(tmp_path, selection, after):
    """It was made by a job that has published nothing yet."""
    DeltaTable.create(tmp_path / "t", rows_of([]).schema)
    selected = everything(tmp_path / "t", selection, after=after)
    assert (selected.windows, selected.version, selected.more, selected.gap, selected.passed) == (
        (),
        0,
        False,
        False,
        0,
    )
    assert list(selected.rows(9)) == []
