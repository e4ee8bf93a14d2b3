"""Damaged state is found when it is read, named, and never answered from (F13, F14, F18, F21, F49)."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from unittest import mock

import pyarrow as pa
import pytest
from state_samples import counts, empty_manifest, fresh_name, write, write_segment

from penstock.checkpoint.storage.format import encode
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import CheckpointCorrupt, FormatTooNew, StateMissing
from penstock.state import section_reader
from penstock.state import segment_writer as segment_module
from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.writer import Change

PARTS = {
    "slices": counts({(group, value): value for group in range(3) for value in range(4)}),
    "late": pa.table({"_group": [1, 2], "_hash": [5, 6], "text": ["one", None]}),
}


@pytest.fixture
def segment(tmp_path):
    """Return folder, manifest and the file of a small segment of two parts and several blocks."""
    with mock.patch.object(segment_module, "BLOCK_BYTES", 200):
        ref = write_segment(tmp_path, fresh_name(41), PARTS, step="step", partition=3, batch=41)
    (name,) = ref.files
    return tmp_path, replace(empty_manifest(("user",)).append(ref), batch=41), tmp_path / name


def read_all(folder, manifest):
    """Read all parts as a new process would."""
    section_reader.forget()
    reader = StateReader(folder, manifest)
    return {part: pa.concat_tables(reader.scan(part)).combine_chunks() for part in PARTS}


def flip(file, at):
    """Flip a bit of a file where it stands."""
    with file.open("r+b") as changed:
        changed.seek(at)
        (byte,) = changed.read(1)
        changed.seek(at)
        changed.write(bytes([byte ^ 0x40]))


@pytest.mark.fault("F13")
def test_a_folder_in_place_of_a_segment_or_a_manifest_is_damage(segment):
    """No storage that one waits for brings the file back."""
    folder, manifest, file = segment
    file.unlink()
    file.mkdir()
    with pytest.raises(CheckpointCorrupt, match="not a plain file"):
        read_all(folder, manifest)
    with pytest.raises(CheckpointCorrupt, match="not a plain file"):
        Manifest.read(LocalFolder(file))


@pytest.mark.slow
@pytest.mark.fault("F14")
def test_every_flipped_byte_of_a_segment_is_found_or_changes_nothing(segment):
    """Only the zeros between two sections are under no checksum, and nothing reads them."""
    folder, manifest, file = segment
    size = file.stat().st_size
    covered = {
        at
        for chain in manifest.chains.values()
        for run in chain
        for piece in run.pieces
        for at in range(piece.offset, piece.offset + piece.size)
    }
    for at in range(size):
        flip(file, at)
        if at in covered:
            with pytest.raises(CheckpointCorrupt, match="batch 41") as caught:
                read_all(folder, manifest)
            assert caught.value.where == str(file)
        else:
            tables = read_all(folder, manifest)
            assert all(tables[part].equals(PARTS[part]) for part in PARTS)
        flip(file, at)
    assert size - len(covered) < 64
    assert read_all(folder, manifest)["late"].equals(PARTS["late"])


@pytest.mark.fault("F13", "F14")
def test_a_segment_that_is_cut_off_or_grown_is_found(segment):
    """At whatever length, the empty file included."""
    folder, manifest, file = segment
    data = file.read_bytes()
    for length in [*range(0, len(data), 97), len(data) - 1]:
        file.write_bytes(data[:length])
        with pytest.raises(CheckpointCorrupt, match=f"{length} bytes instead of {len(data)}"):
            read_all(folder, manifest)
    file.write_bytes(data + b"\0")
    with pytest.raises(CheckpointCorrupt):
        read_all(folder, manifest)


@pytest.mark.fault("F14")
def test_a_segment_in_place_of_another_is_found(segment):
    """Both are whole; the manifest knows which one it means."""
    folder, manifest, file = segment
    with mock.patch.object(segment_module, "BLOCK_BYTES", 200):
        parts = {**PARTS, "late": PARTS["late"].set_column(2, "text", pa.array(["two", None]))}
        other = write_segment(folder, fresh_name(42), parts, step="step", partition=3, batch=41)
    (name,) = other.files
    assert (folder / name).stat().st_size == file.stat().st_size
    shutil.copy(folder / name, file)
    with pytest.raises(CheckpointCorrupt, match="checksum of schema and footer"):
        read_all(folder, manifest)


@pytest.mark.fault("F18")
def test_a_missing_segment_and_a_missing_folder_are_named(segment):
    """Also when the process had the file open before: what is gone from disk is not answered from memory."""
    folder, manifest, file = segment
    reader = StateReader(folder, manifest)
    reader.scan("slices")
    file.unlink()
    with pytest.raises(StateMissing, match="which the manifest of batch 41 names") as caught:
        reader.scan("slices")
    assert caught.value.where == str(file)
    shutil.rmtree(folder)
    with pytest.raises(StateMissing):
        read_all(folder, manifest)
    with pytest.raises(StateMissing):
        Manifest.read(folder / "000000000041-a.json")


def test_a_block_is_checked_when_it_is_touched_and_not_before(segment):
    """A lookup of few keys does not read the whole state; damage elsewhere is found by `verify`."""
    folder, manifest, file = segment
    data = bytearray(file.read_bytes())
    piece = manifest.chain("slices")[0].pieces[0]
    data[piece.offset + piece.size - piece.tail - 9] ^= 1
    file.write_bytes(data)
    section_reader.forget()
    reader = StateReader(folder, manifest)
    assert sum(table.num_rows for table in reader.scan("slices", 0, 1)) == 4
    with pytest.raises(CheckpointCorrupt, match="checksum of the block"):
        reader.scan("slices", 2, 3)
    with pytest.raises(CheckpointCorrupt):
        reader.verify()


def test_verify_reads_every_byte_that_counts(segment):
    """It returns how many bytes the state has."""
    folder, manifest, file = segment
    assert StateReader(folder, manifest).verify() == file.stat().st_size


def forged(folder, change):
    """Write a segment whose own facts are changed, checksums and all, and return a manifest that trusts it."""
    dumps = json.dumps

    def altered(value, **how):
        return dumps(change(value), **how) if isinstance(value, dict) and "blocks" in value else dumps(value, **how)

    with mock.patch.object(segment_module.json, "dumps", altered):
        ref = write_segment(folder, fresh_name(5), {"slices": PARTS["slices"]}, step="s", partition=0, batch=5)
    return empty_manifest(("user",)).append(ref)


@pytest.mark.fault("F21")
def test_a_segment_of_a_later_format_is_refused_with_both_versions(tmp_path):
    """And not called damaged."""
    manifest = forged(tmp_path, lambda facts: facts | {"version": 2})
    with pytest.raises(FormatTooNew, match="segment format 2; this Penstock reads up to 1") as caught:
        StateReader(tmp_path, manifest).scan("slices")
    assert (caught.value.found, caught.value.known) == (2, 1)


@pytest.mark.fault("F49")
@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts | {"blocks": []},
        lambda facts: facts | {"blocks": [[1, 2, 3]]},
        lambda facts: facts | {"blocks": 7},
        lambda facts: facts | {"blocks": [[*facts["blocks"][0][:1], 1, *facts["blocks"][0][2:]]]},
        lambda facts: {"blocks": facts["blocks"]},
        lambda facts: facts | {"blocks": [["x"] * 7]},
    ],
    ids=["no blocks", "short", "no list", "other size", "no version", "text"],
)
def test_facts_that_no_writer_writes_are_damage_and_not_a_crash(tmp_path, change):
    """Even where the checksums were made to fit."""
    manifest = forged(tmp_path, change)
    with pytest.raises(CheckpointCorrupt):
        StateReader(tmp_path, manifest).scan("slices")


@pytest.mark.fault("F13", "F14")
def test_every_flipped_byte_of_a_manifest_is_found(tmp_path):
    """It has the header that all metadata files have."""
    change = Change(append={"slices": PARTS["slices"]}, floors={"slices": 1}, facts={"end": 5})
    written = write(tmp_path, empty_manifest(("user",)), change)
    path = tmp_path / written.ref.path
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :])
        with pytest.raises(CheckpointCorrupt):
            Manifest.read(path)
    for length in (0, 1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointCorrupt):
            Manifest.read(path)


@pytest.mark.fault("F14")
def test_a_manifest_in_place_of_another_is_found(tmp_path):
    """A commit names a manifest by what it says."""
    first = write(tmp_path, empty_manifest(("user",)), Change(append={"slices": counts({(0, 1): 1})}))
    second = write(tmp_path, first.manifest, Change(append={"slices": counts({(0, 1): 1})}))
    shutil.copy(tmp_path / first.ref.path, tmp_path / second.ref.path)
    with pytest.raises(CheckpointCorrupt, match="another than the one the commit names"):
        Manifest.read(tmp_path / second.ref.path, second.ref)


@pytest.mark.fault("F49", "F61")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"names": ["../../etc/passwd"], "sizes": [1]},
        {"names": [], "sizes": []},
        {"names": 5, "sizes": []},
    ],
    ids=["empty", "path", "few", "types"],
)
def test_a_manifest_that_no_writer_writes_is_damage(tmp_path, body):
    """Names in it never lead out of the folder."""
    path = tmp_path / "000000000001-a.json"
    path.write_bytes(encode("manifest", body))
    with pytest.raises(CheckpointCorrupt, match="batch 1"):
        Manifest.read(path)


def test_maps_of_files_that_no_manifest_names_are_let_go(segment):
    """Deleted files would hold their disk space as long as a worker lives."""
    folder, manifest, file = segment
    StateReader(folder, manifest).scan("slices")
    assert list(section_reader._open[folder]) == [file.name]
    section_reader.retain(folder, manifest.drop("slices", "late").sizes)
    assert list(section_reader._open[folder]) == []


def in_turn(folder, partitions, rounds):
    """Read so many partitions in turn, and return how many files were mapped in the last round."""
    section_reader.forget()
    readers = []
    for number in range(partitions):
        place = folder / str(number)
        ref = write_segment(place, fresh_name(1), PARTS, step="s", partition=number, batch=1)
        readers.append(StateReader(place, empty_manifest(("user",)).append(ref)))
    for _ in range(rounds):
        with mock.patch.object(LocalFolder, "map", autospec=True, side_effect=LocalFolder.map) as mapped:
            for reader in readers:
                reader.scan("late")
    return mapped.call_count


@pytest.mark.slow
def test_a_worker_that_serves_many_partitions_keeps_their_maps(tmp_path):
    """Hundreds of partitions in turn are mapped and checked once, not once a batch."""
    assert in_turn(tmp_path, 300, 2) == 0


def test_one_partition_too_many_costs_little(tmp_path):
    """The number of maps has a bound; beyond it some are made again, and not all."""
    with mock.patch.object(section_reader, "MOST_FILES", 40):
        assert 0 < in_turn(tmp_path, 44, 6) < 22
        assert section_reader._mapped == sum(map(len, section_reader._open.values())) <= 40
    section_reader.forget()


def test_a_file_that_changes_under_a_reader_is_checked_anew(segment):
    """A copy put in its place is mapped; one that is damaged is found."""
    folder, manifest, file = segment
    reader = StateReader(folder, manifest)
    reader.scan("slices")
    data = bytearray(file.read_bytes())
    data[manifest.chain("slices")[0].pieces[0].head + 100] ^= 1
    swapped = file.with_name("swapped")
    swapped.write_bytes(data)
    swapped.replace(file)
    with pytest.raises(CheckpointCorrupt):
        reader.scan("slices")
