"""A batch's change of a partition: whole or not at all, the same in every try, and nothing where nothing changed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from state_samples import add_counts, combined_part, counts, empty_manifest, fresh_name, latest_part, write

from penstock.errors import CheckpointCorrupt, StateRowTooLarge, StateTooLarge, StorageFull
from penstock.state import segment_writer as segment_module
from penstock.state.compaction_planner import budget
from penstock.state.limits import check_rows, check_sizes
from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.references import batch_of, segment_name
from penstock.state.row_layout import DELETED, GROUP, HASH
from penstock.state.writer import Change, manifest_name, write_changes, write_manifest


def rows_of(folder, manifest, part):
    """Return what a part's counts add up to, by group and hash."""
    table = add_counts(StateReader(folder, manifest).scan(part))
    return {(row[GROUP], row[HASH]): row["n"] for row in table.to_pylist()}


def test_a_batch_appends_replaces_forgets_and_remembers(tmp_path):
    """All at once: what a window step does."""
    manifest = empty_manifest(("user",))
    for n in range(1, 4):
        change = Change(
            append={"slices": counts({(n, 1): n})},
            replace={"running": counts({(0, 1): n})},
            floors={"slices": n - 1},
            facts={"end": n},
        )
        written = write(tmp_path, manifest, change)
        manifest = written.manifest
        assert (written.manifest.batch, written.manifest.facts) == (n - 1, {"end": n})
    assert rows_of(tmp_path, manifest, "slices") == {(2, 1): 2, (3, 1): 3}
    assert rows_of(tmp_path, manifest, "running") == {(0, 1): 3}
    assert StateReader(tmp_path, manifest).facts == {"end": 3}
    emptied = write(tmp_path, manifest, Change(replace={"running": counts({})})).manifest
    assert list(emptied.chains) == ["slices"]


@pytest.mark.parametrize(
    "change",
    [
        Change(),
        Change(append={"slices": counts({})}),
        Change(replace={"running": counts({})}),
        Change(facts={}),
    ],
    ids=["nothing", "no rows", "no rows in place of none", "the same facts"],
)
def test_a_change_of_nothing_writes_nothing(tmp_path, change):
    """A partition without changes costs nothing (DESIGN 6)."""
    written = write(tmp_path, empty_manifest(), change)
    assert (written.ref, written.segment, written.manifest) == (None, None, empty_manifest())
    assert not any(tmp_path.iterdir())


def test_a_change_of_facts_alone_writes_a_manifest_alone(tmp_path):
    """There are no rows, so there is no segment."""
    written = write(tmp_path / "new", empty_manifest(), Change(facts={"closed_to": 5}))
    assert [path.name for path in (tmp_path / "new").iterdir()] == [written.ref.path]
    assert (written.written, written.rewritten, written.segment.files) == (0, 0, {})


def test_one_segment_and_one_manifest_a_batch(tmp_path):
    """However many parts and merges there are."""
    manifest = empty_manifest(("user",))
    for n in range(12):
        rows = counts({(n % 2, value): 1 for value in range(5)})
        change = Change(append={"slices": rows, "late": rows}, replace={"running": rows})
        written = write(
            tmp_path, manifest, change, parts=combined_part("slices", add_counts) | combined_part("late", add_counts)
        )
        manifest = written.manifest
        assert len(written.segment.files) == 1
    assert sum(name.suffix == ".json" for name in tmp_path.iterdir()) == 12
    assert sum(name.suffix == ".arrow" for name in tmp_path.iterdir()) == 12
    assert len(manifest.chain("slices")) <= 6
    assert rows_of(tmp_path, manifest, "late") == {(group, value): 6 for group in (0, 1) for value in range(5)}


@pytest.mark.fault("F04", "F50")
def test_two_tries_of_a_batch_say_the_same(tmp_path):
    """Merges included: what a commit compares tells a try from another's only where the state differs."""
    manifest = empty_manifest(("user",))
    for n in range(9):
        change = Change(append={"slices": counts({(0, value): n for value in range(n, n + 50)})})
        tries = [
            write(tmp_path, manifest, change, parts=combined_part("slices", add_counts), slack=20_000) for _ in range(2)
        ]
        assert tries[0].ref.path != tries[1].ref.path
        assert tries[0].ref.checksum == tries[1].ref.checksum
        # The file itself names other files, and a later task's id may have a digit more.
        assert len({Manifest.read(tmp_path / attempt.ref.path, attempt.ref).checksum for attempt in tries}) == 1
        manifest = tries[0].manifest
    other = write(tmp_path, manifest, Change(append={"slices": counts({(0, 1): 2})}))
    assert other.ref.checksum != write(tmp_path, manifest, Change(append={"slices": counts({(0, 1): 3})})).ref.checksum


def test_a_part_is_appended_to_or_replaced_and_not_both(tmp_path):
    """The caller must say which rows there are."""
    rows = counts({(0, 1): 1})
    with pytest.raises(ValueError, match="in the segment already"):
        write(tmp_path, empty_manifest(), Change(append={"a": rows}, replace={"a": rows}))
    assert not any(tmp_path.iterdir())


class Disk:
    """Let one call to the system find no space: the one after `fails_at` others."""

    def __init__(self, fails_at):
        self.calls = 0
        self.fails_at = fails_at

    def call(self, real):
        """Return a call of the system that is counted."""

        def counted(*args, **how):
            self.calls += 1
            if self.calls == self.fails_at + 1:
                raise OSError(errno.ENOSPC, "no space left on device")
            return real(*args, **how)

        return counted


@pytest.mark.fault("F27", "F30")
def test_a_full_disk_at_any_call_leaves_the_state_as_it_was(tmp_path):
    """The n-th call to the system fails, for every n until none does; then the batch is written."""
    manifest = empty_manifest(("user",))
    for n in range(4):
        manifest = write(tmp_path, manifest, Change(append={"slices": counts({(0, v): n for v in range(9)})})).manifest
    before = rows_of(tmp_path, manifest, "slices")
    kept = {path.name for path in tmp_path.iterdir()}
    change = Change(append={"slices": counts({(1, 1): 1})}, facts={"end": 1})
    failures = 0
    real = {name: getattr(os, name) for name in ("open", "write", "fsync", "link")}
    while True:
        disk = Disk(fails_at=failures)
        reader = StateReader(tmp_path, manifest)
        reader.scan("slices")
        with mock.patch.multiple(os, **{name: disk.call(real[name]) for name in real}):
            try:
                written = write_changes(
                    reader, fresh_name(4), change, batch=4, parts=combined_part("slices", add_counts)
                )
            except StorageFull:
                failures += 1
                assert rows_of(tmp_path, manifest, "slices") == before
                assert not any(path.name.startswith(".tmp") for path in tmp_path.iterdir())
                continue
        break
    assert failures >= 6
    assert written.rewritten > 0
    assert rows_of(tmp_path, written.manifest, "slices") == {**before, (1, 1): 1}
    manifests = {path.name for path in tmp_path.iterdir() if path.suffix == ".json"} - kept
    assert written.ref.path in manifests
    for name in manifests:  # the folder was not synced, so no commit names it; what it says is whole all the same
        assert rows_of(tmp_path, Manifest.read(tmp_path / name), "slices") == {**before, (1, 1): 1}


@pytest.mark.slow
@pytest.mark.fault("F27")
def test_a_real_limit_of_the_system_is_named(tmp_path):
    """A file size limit of the process: StorageFull with the path, no file and no part of one."""
    program = """
        import resource, sys
        import pyarrow as pa
        from penstock.checkpoint.storage.local_folder import LocalFolder
        from penstock.errors import StorageFull
        from penstock.state.references import segment_name
        from state_samples import write_segment
        rows = pa.table({"_group": [0] * 9999, "_hash": list(range(9999)), "n": list(range(9999))})
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        try:
            write_segment(LocalFolder(sys.argv[1]), segment_name(1, epoch=1, attempt=1, run="ab"), {"a": rows},
                          step="s", partition=0, batch=1)
        except StorageFull as error:
            print(error.where)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.strip() == str(tmp_path / "000000000001-1-1-ab.arrow")
    assert not any(tmp_path.iterdir())


def test_a_part_larger_than_a_file_is_cut_into_several(tmp_path):
    """The run is one; its pieces are in order, each in a file of about the size set."""
    hashes = np.arange(20_000, dtype=np.int64)
    rows = pa.table({GROUP: np.zeros(20_000, dtype=np.int64), HASH: hashes, "user": hashes, "n": hashes})
    with mock.patch.multiple(segment_module, BLOCK_BYTES=20_000, FILE_BYTES=100_000):
        written = write(tmp_path, empty_manifest(("user",)), Change(append={"state": rows}))
        assert len(written.segment.files) > 5
        assert max(written.segment.files.values()) <= 110_000
        reader = StateReader(tmp_path, written.manifest)
        wanted = hashes[::97].copy()
        assert reader.lookup("state", wanted, pa.table({"user": wanted}))[1].column("n").to_pylist() == wanted.tolist()
        again = write(tmp_path, written.manifest, Change(append={"state": rows}), parts=latest_part("state", ["user"]))
    assert sorted(again.manifest.sizes) == again.manifest.files()
    (only,) = StateReader(tmp_path, again.manifest).scan("state", schema=pa.schema([("n", pa.int64())]))[:1]
    assert only.column("n").to_pylist() == hashes.tolist()


@pytest.mark.fault("F14")
def test_damage_is_never_merged_into_new_files(tmp_path):
    """A batch that would rewrite a damaged block fails instead, and names the file."""
    manifest = empty_manifest(("user",))
    for n in range(4):
        manifest = write(tmp_path, manifest, Change(append={"slices": counts({(0, 1): n})})).manifest
    path = tmp_path / manifest.files()[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    names = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(CheckpointCorrupt, match="batch 1") as caught:
        write(
            tmp_path,
            manifest,
            Change(append={"slices": counts({(0, 1): 9})}),
            parts=combined_part("slices", add_counts),
        )
    assert caught.value.where == str(path)
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.fault("F60")
def test_a_step_above_its_cap_stops_with_the_numbers(tmp_path):
    """The sizes are in the manifests: no segment is read to know them."""
    manifests = []
    for partition in range(3):
        folder = tmp_path / str(partition)
        rows = counts({(0, value): 1 for value in range(100)})
        manifests.append(write(folder, empty_manifest(("user",)), Change(append={"state": rows})).manifest)
    rows, size = sum(manifest.rows for manifest in manifests), sum(manifest.size for manifest in manifests)
    assert rows == 300
    assert [(len(m.sizes), [len(chain) for chain in m.chains.values()]) for m in manifests] == [(1, [1])] * 3
    assert size == sum(path.stat().st_size for path in tmp_path.rglob("*.arrow"))
    check_sizes({"hourly": size}, {"hourly": size, "daily": 1})
    with pytest.raises(StateTooLarge, match=r"step 'hourly' has [0-9,]+ bytes, above its cap of 5,000"):
        check_sizes({"hourly": size, "daily": 10**9}, {"hourly": 5_000})


@pytest.mark.fault("F60")
@pytest.mark.parametrize("place", [0, 5, 9])
def test_a_row_above_the_cap_is_named_wherever_it_stands(place):
    """By its key; a table that is larger than the cap as a whole may have rows that are all small enough."""
    texts = ["x" * 100] * 10
    rows = pa.table({"user": [f"u{i}" for i in range(10)], "seen": [[text] for text in texts]})
    check_rows(rows, ["user"], step="s", part="state", cap=300)
    check_rows(rows, ["user"], step="s", part="state", cap=None)
    texts[place] = "x" * 1_000
    rows = rows.set_column(1, "seen", pa.array([[text] for text in texts]))
    gone = pa.array([number == place for number in range(10)])
    check_rows(rows.append_column(DELETED, gone), ["user"], step="s", part="state", cap=300)  # it is being forgotten
    with pytest.raises(StateRowTooLarge, match=f"step 's' keeps 1,0[0-9]+ bytes in 'state' for .*'u{place}'.* of 300"):
        check_rows(rows, ["user"], step="s", part="state", cap=300)


def test_a_budget_is_four_times_what_is_written_and_the_slack():
    """DESIGN 6: a bounded amount of work each batch."""
    assert budget(0) == 2**20
    assert budget(1_000, slack=500) == 4_500


def test_a_manifest_goes_by_the_name_of_its_segment(tmp_path):
    """So that batch, epoch and attempt stand in it too."""
    name = segment_name(5, epoch=2, attempt=7, run="ab")
    assert manifest_name(name) == "000000000005-2-7-ab.json"
    ref = write_manifest(tmp_path, name, empty_manifest())
    assert Manifest.read(tmp_path / ref.path, ref) == empty_manifest()
    assert (batch_of(ref.path), batch_of("x-1"), batch_of("000000000005.json")) == (5, None, None)
