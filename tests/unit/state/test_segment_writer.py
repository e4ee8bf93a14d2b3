"""Segments: what is written is read back, in blocks that keep keys together, from the mapped file (DESIGN 6)."""

from __future__ import annotations

import errno
import json
import os
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from state_samples import SCHEMA, add_counts, counts, empty_manifest, fresh_name, keyed_table, write_segment

from penstock.errors import SegmentExists, StorageDenied, StorageFull, StorageUnavailable
from penstock.state import segment_writer as segment_module
from penstock.state.reader import StateReader
from penstock.state.references import segment_name
from penstock.state.row_layout import GROUP, HASH, sort_rows
from penstock.state.segment_writer import FACTS, SegmentWriter

INT64 = st.integers(-(2**63), 2**63 - 1)


def written(folder, parts, batch=7):
    """Write parts as one segment and return its reference and a reader of it."""
    ref = write_segment(folder, fresh_name(batch), parts, step="step", partition=3, batch=batch)
    return ref, StateReader(folder, replace(empty_manifest(("user",)).append(ref), batch=batch))


def whole(reader, part):
    """Return all rows of a part."""
    return pa.concat_tables(reader.scan(part)).combine_chunks()


@settings(max_examples=examples(24))
@given(st.lists(st.tuples(st.integers(-3, 3) | INT64, st.integers(-3, 3) | INT64), max_size=60), st.integers(1, 800))
def test_what_is_written_is_read_back_sorted(tmp_path_factory, places, block_bytes):
    """For any groups and hashes and any size of blocks; the sort is stable."""
    folder = tmp_path_factory.mktemp("state")
    table = counts([(place, n) for n, place in enumerate(places)])
    with mock.patch.object(segment_module, "BLOCK_BYTES", block_bytes):
        ref, reader = written(folder, {"slices": table})
    expected = sorted(enumerate(places), key=lambda item: item[1])
    assert [(row[GROUP], row[HASH], row["n"]) for t in reader.scan("slices") for row in t.to_pylist()] == [
        (*place, n) for n, place in expected
    ]
    assert reader.groups("slices").tolist() == sorted({group for group, _ in places})
    if places:
        pieces = ref.parts["slices"]
        assert sum(piece.rows for piece in pieces) == len(places)
        assert (pieces[0].first, pieces[-1].last) == (expected[0][1], expected[-1][1])
    else:
        assert ref.files == {}
        assert not any(folder.iterdir())


def test_blocks_and_pieces_never_divide_a_group_and_hash(tmp_path):
    """So the ranges of blocks do not overlap, and a merge up to a bound takes all rows of a key or none."""
    table = counts([((0, value // 7), 1) for value in range(8_000)])
    with mock.patch.multiple(segment_module, BLOCK_BYTES=8_000, FILE_BYTES=32_000):
        ref, reader = written(tmp_path, {"slices": table})
    pieces = ref.parts["slices"]
    assert len(ref.files) > 3
    assert sum(piece.rows for piece in pieces) == 8_000
    assert all(before.last < after.first for before, after in pairwise(pieces))
    assert all(size <= 32_000 for size in ref.files.values())
    run = reader.manifest.chain("slices")[0]
    ends = [(span.block.hashes[0], span.block.hashes[-1]) for span in reader.spans("slices", run, None, None)]
    assert len(ends) > 20
    assert all(before < after for (_, before), (after, _) in pairwise(ends))


def test_parts_of_different_columns_share_a_file(tmp_path):
    """One segment a partition and batch, whatever it holds."""
    late = pa.table({GROUP: pa.array([5]), HASH: pa.array([1]), "text": ["x"]})
    ref, reader = written(tmp_path, {"slices": counts({(2, 9): 4, (1, 3): 2}), "late": late, "front": late.slice(0, 0)})
    assert len(ref.files) == 1
    assert set(ref.parts) == {"slices", "late"}
    assert whole(reader, "slices").column("n").to_pylist() == [2, 4]
    assert whole(reader, "late").to_pylist() == [{GROUP: 5, HASH: 1, "text": "x"}]
    assert reader.scan("front") == []
    assert reader.groups("front").tolist() == []


def test_nested_state_and_null_keys_are_read_back(tmp_path):
    """Any Arrow type may stand in a state column (F43)."""
    state = {"total": 3, "tags": ["a", None], "place": {"x": float("inf"), "name": None}}
    table = keyed_table([(4, (None, None), state), (-9, ("a", 0.5), None)])
    _, reader = written(tmp_path, {"state": table})
    assert whole(reader, "state").equals(table)
    assert whole(reader, "state").schema == SCHEMA


def test_a_segment_of_one_part_is_a_plain_arrow_file_that_says_what_it_is(tmp_path):
    """Anyone can read it without Penstock; its schema metadata name step, partition, batch, part and its blocks."""
    table = counts({(0, value): value for value in range(500)})
    with mock.patch.object(segment_module, "BLOCK_BYTES", 4_000):
        ref, _ = written(tmp_path, {"state": table})
    (name,) = ref.files
    with pa.OSFile(str(tmp_path / name)) as file, pa.ipc.open_file(file) as arrow:
        assert arrow.read_all().replace_schema_metadata(None).equals(table)
        facts = json.loads(arrow.schema.metadata[FACTS])
        assert arrow.num_record_batches == len(facts["blocks"]) > 2
        sizes = [(arrow.get_batch(n).num_rows, arrow.get_batch(n).serialize()) for n in range(arrow.num_record_batches)]
    assert [block[:3] for block in facts.pop("blocks")] == [[n, m.size, zlib.crc32(m)] for n, m in sizes]
    assert facts == {"version": 1, "step": "step", "partition": 3, "batch": 7, "part": "state", "rows": 500}


def test_what_is_read_lies_in_the_mapped_file(tmp_path):
    """A scan copies no rows: its columns are views of the file's bytes."""
    ref, reader = written(tmp_path, {"state": counts({(0, value): value for value in range(2_000)})})
    before = pa.total_allocated_bytes()
    tables = reader.scan("state")
    assert pa.total_allocated_bytes() == before
    addresses = [table.column("n").chunk(0).buffers()[1].address for table in tables]
    (section,) = {reader._section(piece) for piece in ref.parts["state"]}
    start = section._data.address
    assert all(start <= address < start + section._data.size for address in addresses)


def test_equal_contents_have_equal_checksums_whatever_the_file_is_called(tmp_path):
    """Two tries of one task answer alike; other rows answer otherwise."""
    table = counts({(0, 1): 1, (0, 2): 2})
    original, other = (written(tmp_path, {"state": table})[0] for _ in range(2))
    assert original.files.keys() != other.files.keys()
    changed, _ = written(tmp_path, {"state": counts({(0, 1): 1, (0, 2): 3})})
    first, second, third = (ref.parts["state"][0] for ref in (original, other, changed))
    assert first == replace(second, file=first.file)
    assert third.checksum != first.checksum


def test_dictionary_columns_are_decoded_and_foreign_metadata_left_out(tmp_path):
    """Segments hold plain columns, so that runs of one part fit each other."""
    table = counts({(0, 1): 1})
    coded = table.set_column(2, "user", table.column("user").dictionary_encode())
    coded = coded.replace_schema_metadata({"pandas": "{}"})
    _, reader = written(tmp_path, {"state": coded})
    assert whole(reader, "state").schema == table.schema


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({HASH: pa.array([1])}), "needs a column _group"),
        (pa.table({GROUP: pa.array([1]), HASH: pa.array([1.5])}), "_hash must be int64"),
        (pa.table({GROUP: pa.array([None], pa.int64()), HASH: pa.array([1])}), "_group must be int64 without nulls"),
        (pa.table({GROUP: [1], HASH: [1], "_expires": ["x"]}), "_expires must be int64"),
        (pa.table({GROUP: [1], HASH: [1], "_deleted": pa.array([None], pa.bool_())}), "_deleted has nulls"),
        (pa.table([[1], [1], [1]], names=[GROUP, HASH, HASH]), "the same name"),
    ],
    ids=["no group", "float hash", "null group", "text expiry", "null tombstone", "twice"],
)
def test_tables_that_cannot_be_state_are_refused(table, message):
    """With the column named; nothing is written."""
    with pytest.raises(TypeError, match=message):
        sort_rows(table)


@pytest.mark.parametrize(
    "name", ["x", "../000000000001-1-1-ab", "000000000001", "000000000001-1-1-ab.arrow", "1-1-1-ab"]
)
def test_a_name_that_is_not_a_segments_is_refused(tmp_path, name):
    """So that a janitor knows every file by its name (F15, F61)."""
    with pytest.raises(ValueError, match="no name of a segment"):
        SegmentWriter(tmp_path, name, step="s", partition=0, batch=1)


@pytest.mark.parametrize("part", ["", "Slices", "a b", "a/b", "state~x"])
def test_a_part_that_has_no_plain_name_is_refused(tmp_path, part):
    """Before anything is written."""
    with pytest.raises(ValueError, match="no name of a part"):
        written(tmp_path, {part: counts({(0, 1): 1})})
    assert not any(tmp_path.iterdir())


def test_a_name_says_batch_epoch_attempt_and_run():
    """What F04 asks for: no two tries of a task can write the same name."""
    assert segment_name(12, epoch=3, attempt=45, run="00ff") == "000000000012-3-45-00ff"


def test_a_name_that_is_taken_is_never_written_over(tmp_path):
    """Whatever made a second try use it."""
    name = fresh_name(1)
    first = write_segment(tmp_path, name, {"a": counts({(0, 1): 1})}, step="s", partition=0, batch=1)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SegmentExists):
        write_segment(tmp_path, name, {"a": counts({(0, 1): 2})}, step="s", partition=0, batch=1)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert [path.name for path in before] == list(first.files)


CALLS = ["open", "write", "fsync", "link"]


@pytest.mark.fault("F27", "F15")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EFBIG, StorageFull),
        (errno.EACCES, StorageDenied),
        (errno.EIO, StorageUnavailable),
    ],
    ids=["no space", "quota", "file limit", "denied", "broken"],
)
def test_a_failing_write_names_the_file_and_leaves_nothing(tmp_path, monkeypatch, call, number, expected):
    """At each call to the system: no file, no part of one, and the same write works once the cause is gone."""
    table = counts({(0, value): value for value in range(100)})
    name = fresh_name(1)

    def failing(*_args, **_kwargs):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        with pytest.raises(expected) as caught:
            write_segment(tmp_path, name, {"state": table}, step="step", partition=3, batch=1)
    assert caught.value.where.startswith(str(tmp_path))
    assert not any(tmp_path.iterdir())
    write_segment(tmp_path, name, {"state": table}, step="step", partition=3, batch=1)


def test_a_short_write_is_carried_on(tmp_path, monkeypatch):
    """The system may take fewer bytes than it is given."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:100]))
    table = counts({(0, value): value for value in range(100)})
    _, reader = written(tmp_path, {"state": table})
    assert whole(reader, "state").equals(table)


@pytest.mark.fault("F15")
def test_what_is_not_published_is_never_seen(tmp_path):
    """A task that dies while writing leaves a temporary file that the store's janitor knows by its name."""
    with SegmentWriter(tmp_path, fresh_name(1), step="s", partition=0, batch=1) as writer:
        writer.add("state", counts({(0, 1): 1}))
        (left,) = tmp_path.iterdir()
        assert left.name.startswith(".tmp-")
    assert not any(tmp_path.iterdir())


def test_folders_are_made_for_the_user_alone(tmp_path):
    """And synced, so that a power cut takes no file's folder."""
    folder = tmp_path / "state" / "step" / "3"
    written(folder, {"state": counts({(0, 1): 1})})
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]


@pytest.mark.fault("F65")
def test_links_are_not_followed(tmp_path):
    """A symbolic link in place of a file of the state is refused."""
    ref, _ = written(tmp_path, {"state": counts({(0, 1): 1})})
    (name,) = ref.files
    (tmp_path / name).rename(tmp_path / "elsewhere")
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    reader = StateReader(tmp_path, empty_manifest().append(ref))
    with pytest.raises(Exception, match=name) as caught:
        reader.scan("state")
    assert caught.value.code in {"PEN-CKP-017", "PEN-CKP-001"}


def test_a_file_is_written_once(tmp_path):
    """Discarding after publishing takes nothing away."""
    with tmp_path.new_file("000000000001-a.arrow") as file:
        file.write(b"x")
        file.publish()
    assert [path.name for path in tmp_path.iterdir()] == ["000000000001-a.arrow"]
    assert Path(tmp_path / "000000000001-a.arrow").read_bytes() == b"x"


def test_a_part_of_many_groups_still_tells_them(tmp_path):
    """Regular groups are kept as steps, irregular ones in great number are looked up in the rows."""
    regular = counts({(60_000_000 * group, 1): 1 for group in range(3_000)})
    squares = counts({(group * group, 1): 1 for group in range(3_000)})
    ref, reader = written(tmp_path, {"slices": regular, "front": squares})
    assert ref.parts["slices"][0].groups == ((0, 60_000_000, 3_000),)
    assert ref.parts["front"][0].groups is None
    assert reader.groups("slices").tolist() == [60_000_000 * group for group in range(3_000)]
    assert reader.groups("front").tolist() == [group * group for group in range(3_000)]


def test_the_same_rows_come_back_when_read_many_at_once(tmp_path):
    """`add_counts` of the tests is a merge: it stands for what operators merge slices with."""
    table = counts({(0, 1): 1, (1, 1): 5})
    assert add_counts([table, table]).column("n").to_pylist() == [2, 10]
    assert np.array_equal(add_counts([table]).column("n"), table.column("n"))
