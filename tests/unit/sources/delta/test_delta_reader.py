"""A Delta table is read once, whatever is committed, cut, restarted, vacuumed or replaced (SEMANTICS 9.1, 9.2)."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from delta_reading import ID, Written, append, k_of, numbers, read_all, reader_of
from deltalake import DeltaTable as Table
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from source_reading import end_of_batch
from structlog.testing import capture_logs

from penstock.errors import (
    ColumnsForgotten,
    FixedRangeGone,
    ReadOtherwise,
    RowsRewritten,
    SourceChanged,
    SourceGap,
    TableReplaced,
    TableUnreadable,
)
from penstock.graph.policies import OnGap, OnRewrite
from penstock.sources import Start, files, version
from penstock.sources.backlog import ReadLimit
from penstock.sources.base import SourceReader
from penstock.sources.delta.log import DeltaLog, Versions
from penstock.sources.delta.reader import DeltaReader
from penstock.testing.source_contract import Feed, Grow, SourceContract, read


class TestDeltaReader(SourceContract):
    """A snapshot of files of three rows."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        def make(rows: int) -> SourceReader:
            self.written = Written(Path(tempfile.mkdtemp(dir=tmp_path)))
            self.fill(rows)
            return self.opened()

        return make

    def fill(self, rows: int) -> None:
        """Write the rows in one version."""
        values = list(range(rows))
        self.written.commit(*(self.written.file(*values[i : i + 3], name=f"{i:05}") for i in range(0, rows, 3)))

    def opened(self) -> DeltaReader:
        """Return a reader."""
        return reader_of(self.written.path)

    @pytest.fixture
    def grow(self) -> Grow:
        def more(reader: SourceReader, rows: int) -> None:
            if rows:
                have = sum(waiting.rows for waiting in reader.backlog(None).values())
                self.written.commit(self.written.file(*range(have, have + rows)))

        return more


class TestDeltaReaderOfVersions(TestDeltaReader):
    """A version for each two rows, in one file whose number of rows the log does not have; others have none."""

    def fill(self, rows: int) -> None:
        """Write the rows in versions of their own."""
        for i in range(0, rows, 2):
            self.written.commit(self.written.file(*range(i, min(rows, i + 2)), stats=False))
            self.written.commit()

    def opened(self) -> DeltaReader:
        """Return a reader of all versions."""
        return reader_of(self.written.path, start=version(0))


@settings(max_examples=examples(25), deadline=None)
@given(
    before=st.lists(st.lists(st.integers(0, 7), max_size=3), max_size=3),
    after=st.lists(st.tuples(st.lists(st.integers(0, 7), max_size=3), st.booleans()), max_size=6),
    limits=st.lists(st.none() | st.integers(1, 9), min_size=1, max_size=4),
    at_most=st.integers(1, 4),
    splits=st.integers(1, 3),
    restarts=st.booleans(),
    data=st.data(),
)
def test_any_cut_gives_the_rows_of_a_list_of_versions(
    before: list[list[int]],
    after: list[tuple[list[int], bool]],
    limits: list[int | None],
    at_most: int,
    splits: int,
    restarts: bool,  # noqa: FBT001 - hypothesis gives it by name
    data: st.DataObject,
) -> None:
    """Batches, partitions and restarts decide when a row is read, and neither which rows there are nor their order."""
    folder = Path(tempfile.mkdtemp())
    try:
        written, made = Written(folder), 0

        def commit(sizes: list[int], *more: dict[str, Any]) -> list[int]:
            nonlocal made
            actions, values = list(more), []
            for i, size in enumerate(sizes):
                own = list(range(made, made + size))
                actions.append(written.file(*own, name=f"{written.version + 1:03}-{i}", stats=bool(size % 2)))
                made, values = made + size, values + own
            written.commit(*actions)
            return values

        expected = [value for sizes in before for value in commit(sizes)]
        reader = reader_of(folder, at_most=files(at_most))
        start, rows, turn, left = None, list[int](), 0, list(after)
        while True:
            end = end_of_batch(reader, start, ReadLimit(rows=limits[turn % len(limits)]))
            turn += 1
            if end != start:
                span = reader.span(start, end)
                batch = read(reader, span, splits)
                assert batch.num_rows == reader.rows(span) <= (limits[(turn - 1) % len(limits)] or 10**9)
                assert len(span["pieces"]) <= at_most
                rows += batch["k"].to_pylist()
                start = json.loads(json.dumps(end))
            elif not left:
                break
            if left and data.draw(st.booleans()):
                sizes, is_compaction = left.pop(0)
                if is_compaction:  # what was there lies in one file now, and is nothing new
                    whole = written.file(*range(made), name=f"whole-{written.version}", dataChange=False)
                    written.commit(whole, {"remove": {"path": "x", "dataChange": False}})
                expected += commit(sizes)
            if restarts:
                reader = reader_of(folder, at_most=files(at_most))
        assert rows == expected
    finally:
        shutil.rmtree(folder)


def test_a_start_after_the_newest_version_and_one_at_a_version(tmp_path: Path) -> None:
    """Of the commit of a version on, or of what is committed after the first batch was planned."""
    for first in (0, 10, 20):
        append(tmp_path, numbers(first, 2))
    latest, second = reader_of(tmp_path, start=Start.LATEST), reader_of(tmp_path, start=version(1))
    assert read_all(latest)[0] == []
    assert k_of(read_all(second)[0]) == [10, 11, 20, 21]
    _, at = read_all(latest)
    append(tmp_path, numbers(30, 1))
    assert k_of(read_all(reader_of(tmp_path, start=Start.LATEST), at)[0]) == [30]


def test_compaction_and_vacuum_change_nothing(tmp_path: Path) -> None:
    """`dataChange` is false in the commits of OPTIMIZE; VACUUM takes only what is replaced."""
    append(tmp_path, numbers(0, 2))
    reader = reader_of(tmp_path)
    _, at = read_all(reader)
    append(tmp_path, numbers(2, 2))
    Table(str(tmp_path)).optimize.compact()
    append(tmp_path, numbers(4, 2))
    rows, at = read_all(reader, at)
    assert k_of(rows) == [2, 3, 4, 5]
    Table(str(tmp_path)).vacuum(0, enforce_retention_duration=False, dry_run=False)
    assert sorted(k_of(read_all(reader_of(tmp_path))[0])) == [0, 1, 2, 3, 4, 5]
    assert read_all(reader_of(tmp_path), at)[0] == []


@pytest.mark.remedy("PEN-SRC-028")
def test_a_version_that_deletes_or_updates_is_named_after_the_rows_before_it(tmp_path: Path) -> None:
    """Passed over by policy; what is added later is read."""
    written = Written(tmp_path)
    first = written.file(0, 1)
    written.commit(first)
    reader = reader_of(tmp_path)
    _, at = read_all(reader)
    written.commit(written.file(2))
    written.commit(written.removed(first), written.file(1))
    written.commit(written.file(3))
    rows, after = read_all_until(reader, at, RowsRewritten, "version 3 updates or deletes rows of 1 files")
    assert k_of(rows) == [2]
    with pytest.raises(RowsRewritten):
        reader_of(tmp_path).backlog(after)
    with capture_logs() as logs:
        assert k_of(read_all(reader_of(tmp_path, on_rewrite=OnRewrite.SKIP), after)[0]) == [3]
    assert [(log["event"], log["version"]) for log in logs] == [("source.version_skipped", 3)]


def read_all_until(reader: DeltaReader, start: Any, error: type[Exception], match: str) -> tuple[list[dict], Any]:
    """Return the rows of the batch before an error, and the position after them."""
    end = end_of_batch(reader, start)
    rows = read(reader, reader.span(start, end)).to_pylist()
    with pytest.raises(error, match=match):
        reader.backlog(end)
    return rows, end


@pytest.mark.fault("F42")
@pytest.mark.remedy("PEN-SRC-025")
def test_a_changed_schema_is_named_and_columns_can_be_chosen(tmp_path: Path) -> None:
    """A column that comes stops a job that has not named its columns, while it runs and at its next start."""
    written = Written(tmp_path)
    written.commit(written.file(0))
    reader = reader_of(tmp_path)
    _, at = read_all(reader)
    written.commit(written.file(1))
    written.commit(written.metadata("k long, s string"), written.file(2))
    rows, at = read_all_until(reader, at, ColumnsForgotten, "'k bigint', and there are 'k bigint, s string'")
    assert k_of(rows) == [1]
    with pytest.raises(ColumnsForgotten):
        reader_of(tmp_path).backlog(at)
    assert read_all(reader_of(tmp_path, columns=["k"]), at)[0] == [{"k": 2}]
    assert read_all(reader_of(tmp_path, columns=["s", "k"]), at)[0] == [{"s": None, "k": 2}]
    written.commit(written.metadata("k string, s string"))
    with pytest.raises(ColumnsForgotten, match="'k bigint', and there are 'k string'"):
        reader_of(tmp_path, columns=["k"]).backlog(at)


@pytest.mark.remedy("PEN-SRC-027")
def test_another_table_at_the_path_is_refused(tmp_path: Path) -> None:
    """Its versions are others, whatever their numbers; also where a commit makes another table of it."""
    written = Written(tmp_path / "t")
    written.commit(written.file(0))
    reader = reader_of(tmp_path / "t")
    _, at = read_all(reader)
    written.commit(written.metadata("k long", ident="another"))
    with pytest.raises(TableReplaced, match="version 2 makes another table of it, another"):
        read_all(reader, at)
    with pytest.raises(TableReplaced, match=f"has read the table {ID}, and this is another"):
        reader_of(tmp_path / "t").backlog(at)
    assert k_of(read_all(reader_of(tmp_path / "t"))[0]) == [0]


@pytest.mark.remedy("PEN-SRC-027")
@pytest.mark.parametrize("versions", [1, 3, 5])
@pytest.mark.parametrize("on_gap", OnGap)
def test_a_table_that_is_made_anew_while_it_is_read_is_refused(tmp_path: Path, versions: int, on_gap: OnGap) -> None:
    """9.2: whether the new log is shorter, as long, or has the version that is read next; none of its rows is taken."""
    written = Written(tmp_path / "t")
    written.commit(written.file(0))
    written.commit(written.file(1))
    reader = reader_of(tmp_path / "t", on_gap=on_gap)
    rows, at = read_all(reader)
    assert k_of(rows) == [0, 1]
    shutil.rmtree(tmp_path / "t")
    other = Written(tmp_path / "t", ident="another")
    for value in range(1, versions):
        other.commit(other.file(100 + value))
    with pytest.raises(TableReplaced, match="another"):
        read_all(reader, at)


def test_an_old_copy_of_a_table_is_refused_while_it_is_read(tmp_path: Path) -> None:
    """9.2: the versions that follow in it are others than those that were read."""
    written = Written(tmp_path / "t")
    written.commit(written.file(0))
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    written.commit(written.file(1))
    reader = reader_of(tmp_path / "t")
    _, at = read_all(reader)
    shutil.rmtree(tmp_path / "t")
    (tmp_path / "copy").rename(tmp_path / "t")
    with pytest.raises(TableReplaced, match="version 2 was read, and the log ends with 1"):
        read_all(reader, at)


def test_a_log_whose_read_entries_are_cleaned_up_is_the_same_table(tmp_path: Path) -> None:
    """Its checkpoint says so."""
    written = Written(tmp_path)
    written.commit(written.file(0))
    reader = reader_of(tmp_path)
    _, at = read_all(reader)
    Table(str(tmp_path)).create_checkpoint()
    for gone in (0, 1):
        (tmp_path / "_delta_log" / f"{gone:020}.json").unlink()
    assert read_all(reader, at) == ([], at)
    for value in (1, 2):
        written.commit(written.file(value))
        rows, at = read_all(reader, at)
        assert k_of(rows) == [value]


def test_a_log_that_does_not_tell_which_table_it_is_stops_the_job(tmp_path: Path) -> None:
    """Entries that were read are deleted, and no checkpoint stands for them: a job would wait for ever."""
    written = Written(tmp_path)
    written.commit(written.file(0))
    reader = reader_of(tmp_path)
    _, at = read_all(reader)
    for gone in (0, 1):
        (tmp_path / "_delta_log" / f"{gone:020}.json").unlink()
    written.commit(written.file(1))
    with pytest.raises(TableUnreadable, match="no description of the table"):
        read_all(reader, at)


def test_a_listing_that_has_missed_a_version_makes_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F29: of two entries that are made while a folder is listed, a listing may have the second one alone."""
    written = Written(tmp_path)
    reader = reader_of(tmp_path, on_gap=OnGap.SKIP)
    _, at = read_all(reader)
    listed = DeltaLog.versions

    def late(log: DeltaLog) -> Versions:
        monkeypatch.undo()
        for value in (1, 2):
            written.commit(written.file(value))
        there = listed(log)
        return Versions(tuple(entry for entry in there.entries if entry != 1), there.checkpoints)

    (tmp_path / "_delta_log" / "another").touch()
    monkeypatch.setattr(DeltaLog, "versions", late)
    with capture_logs() as logs:
        assert k_of(read_all(reader, at)[0]) == [1, 2]
    assert logs == []


def test_another_kind_of_reading_is_refused(tmp_path: Path) -> None:
    """The places of a change data feed are others."""
    written = Written(tmp_path, **{"delta.enableChangeDataFeed": "true"})
    _, at = read_all(reader_of(tmp_path))
    with pytest.raises(ReadOtherwise, match="changes was False"):
        reader_of(tmp_path, changes=True).backlog(at)
    assert written.version == 0


@pytest.mark.fault("F33")
def test_versions_that_are_gone_are_a_gap(tmp_path: Path) -> None:
    """Named with what is wanted and what is there; skipped by policy, and the span says which they are."""
    written = Written(tmp_path)
    written.commit(written.file(0))
    reader = reader_of(tmp_path)
    _, at = read_all(reader)
    for value in (1, 2, 3):
        written.commit(written.file(value))
    Table(str(tmp_path)).create_checkpoint()
    for gone in (1, 2, 3):
        (tmp_path / "_delta_log" / f"{gone:020}.json").unlink()
    for late in (reader, reader_of(tmp_path)):
        with pytest.raises(SourceGap, match="version 2 is wanted, and the log has 4 to 4"):
            late.backlog(at)
    skipping = reader_of(tmp_path, on_gap=OnGap.SKIP)
    end = end_of_batch(skipping, at)
    span = skipping.span(at, end)
    assert span["skipped"] == [[2, 4]]
    assert read(skipping, span)["k"].to_pylist() == [3]
    assert k_of(read_all(reader_of(tmp_path))[0]) == [0, 1, 2, 3], "the checkpoint has them all"


@pytest.mark.fault("F33")
def test_files_that_vacuum_has_taken_are_a_gap(tmp_path: Path) -> None:
    """Before a batch is planned, by policy; in a fixed batch the error says that it is fixed."""
    written = Written(tmp_path)
    adds = [written.file(i, i + 1, name=str(i)) for i in (0, 2, 4)]
    written.commit(*adds)
    reader = reader_of(tmp_path)
    end = end_of_batch(reader, None)
    span = reader.span(None, end)
    (tmp_path / "2").unlink()
    with pytest.raises(FixedRangeGone, match="gone since its batch was planned"):
        reader.verify(span)
    with pytest.raises(FixedRangeGone):
        read(reader, span)
    with pytest.raises(SourceGap, match="a file with 2 rows of version 1 is gone"):
        reader_of(tmp_path).backlog(None)
    skipping = reader_of(tmp_path, on_gap=OnGap.SKIP)
    first = end_of_batch(skipping, None, ReadLimit(rows=3))
    span = skipping.span(None, first)
    assert [piece[1:3] for piece in span["lost"]] == [[1, 1]]
    assert skipping.rows(span) == 2
    assert k_of(read_all(skipping)[0]) == [0, 1, 4, 5]


def test_a_file_that_is_another_one_is_named(tmp_path: Path) -> None:
    """Another number of rows than the log says, or no Parquet."""
    written = Written(tmp_path)
    written.commit(written.file(0, 1, name="a"))
    reader = reader_of(tmp_path)
    span = reader.span(None, end_of_batch(reader, None))
    written.file(0, name="a")
    with pytest.raises(SourceChanged, match="has 1 rows, and the log says 2"):
        read(reader, span)
    (tmp_path / "a").write_bytes(b"no Parquet")
    with pytest.raises(SourceChanged, match="cannot be read"):
        read(reader, span)


@pytest.mark.remedy("PEN-SRC-029")
def test_what_cannot_be_read_right_is_refused_by_name(tmp_path: Path) -> None:
    """A deletion vector, a file elsewhere, column mapping and unknown features; before they come, rows are read."""
    written = Written(tmp_path)
    written.commit(written.file(0))
    reader = reader_of(tmp_path)
    _, at = read_all(reader)
    written.commit(written.protocol(3, "deletionVectors", "timestampNtz"))
    written.commit(written.file(1))
    written.commit(written.file(2, deletionVector={"storageType": "u", "pathOrInlineDv": "x", "cardinality": 1}))
    rows, at = read_all_until(reader, at, TableUnreadable, "version 4: rows of .* are deleted by a deletion vector")
    assert k_of(rows) == [1]
    with pytest.raises(TableUnreadable, match="deletion vector"):
        reader_of(tmp_path).backlog(None)
    written.commit(written.protocol(3, "variantType"))
    with pytest.raises(TableUnreadable, match="the table has the feature 'variantType'"):
        reader_of(tmp_path)
    mapped = Written(tmp_path / "mapped", **{"delta.columnMapping.mode": "name"})
    with pytest.raises(TableUnreadable, match="maps its columns by name"):
        reader_of(mapped.path)
    with pytest.raises(TableUnreadable, match="changes=True needs a change data feed"):
        reader_of(Written(tmp_path / "plain").path, changes=True)
    feed = Written(tmp_path / "feed", **{"delta.enableChangeDataFeed": "true"})
    assert read_all(reader_of(feed.path, changes=True))[0] == []
