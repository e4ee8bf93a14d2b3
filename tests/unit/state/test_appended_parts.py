"""Parts that append, against lists: what was appended, merged, folded and restarted, `rows_of` tells (DESIGN 6)."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from state_samples import KEYS, combined_part, empty_manifest, folded, fresh_name, key_table, write, write_segment

from penstock.checkpoint.storage import format as file_format
from penstock.errors import CheckpointCorrupt, FormatTooNew, StateMissing
from penstock.state import section_reader
from penstock.state import segment_writer as segment_module
from penstock.state.full_compaction import live_rows
from penstock.state.keys import canonical
from penstock.state.manifest import Manifest
from penstock.state.parts import PARTS, Merge, Part, by_name
from penstock.state.reader import StateReader
from penstock.state.row_layout import GROUP, HASH
from penstock.state.writer import Change

PART, COUNTS = "rows", "counts"
APPENDED = Part(name=PART, identity=KEYS, merge=Merge.APPEND)
LATEST = Part(name=COUNTS, identity=KEYS, merge=Merge.LATEST)
PARTITIONS = (1, 3)
NAMES = [(name, score) for name in (None, "a", "b", "c") for score in (None, float("nan"))]
USERS = st.sampled_from(NAMES)
GROUPS = st.integers(-3, 3)


def hash_of(key) -> int:
    """Return a hash that several keys share: names a and b, whatever the score."""
    return {None: -5, "a": 3, "b": 3, "c": 2**63 - 1}[key[0]]


def rows_table(rows) -> pa.Table:
    """Return rows of (group, key, n)."""
    keys = key_table([key for _, key, _ in rows])
    columns = [[group for group, _, _ in rows], [hash_of(key) for _, key, _ in rows], *keys.columns]
    columns.append([n for _, _, n in rows])
    names = [(GROUP, pa.int64()), (HASH, pa.int64()), *keys.schema, ("n", pa.int64())]
    return pa.table(
        [
            pa.array(c, t) if isinstance(c, list) else c
            for c, t in zip(columns, [n[1] if isinstance(n, tuple) else n.type for n in names], strict=True)
        ],
        schema=pa.schema(names),
    )


def ask(reader: StateReader, part: Part, keys, low=None, high=None) -> dict:
    """Return by key the groups and numbers of its rows, as they come."""
    ordered = sorted(keys, key=hash_of)
    hashes = np.array([hash_of(key) for key in ordered], dtype=np.int64)
    places, rows = reader.rows_of(part, hashes, key_table(ordered), (low, high))
    assert places.tolist() == sorted(places.tolist())
    by_key: dict = {canonical(key): [] for key in ordered}
    for place, row in zip(places.tolist(), rows.to_pylist(), strict=True):
        assert canonical((row["user"], row["score"])) == canonical(ordered[place])
        by_key[canonical(ordered[place])].append((row[GROUP], row["n"]))
    return by_key


class AppendedRows(RuleBasedStateMachine):
    """Do to the files of some partitions what a step does, and to lists what that means."""

    @initialize(
        block_bytes=st.sampled_from([1, 300, 4 * 2**20]),
        partitions=st.sampled_from(PARTITIONS),
    )
    def begin(self, block_bytes, partitions):
        """Begin without state, in so many partitions."""
        self.parts = by_name([APPENDED])
        self.patched = mock.patch.object(segment_module, "BLOCK_BYTES", block_bytes)
        self.patched.start()
        self.count, self.floor = 0, None
        self.rows = {canonical(key): [] for key in NAMES}
        self._begin(partitions)
        self.kept = [self._snapshot()]

    def _begin(self, partitions):
        self.folders = [self.make_folder() for _ in range(partitions)]
        self.manifests = [empty_manifest() for _ in range(partitions)]

    def _snapshot(self):
        rows = {key: list(held) for key, held in self.rows.items()}
        return list(self.folders), list(self.manifests), rows, self.floor

    def _partition(self, key) -> int:
        return hash_of(key) % len(self.folders)

    def _expected(self, key, low=None, high=None):
        live = [
            (group, n)
            for group, n in self.rows[canonical(key)]
            if (self.floor is None or group >= self.floor)
            and (low is None or group >= low)
            and (high is None or group < high)
        ]
        return sorted(live, key=lambda row: row[0])

    @rule(
        cuts=st.lists(st.lists(st.tuples(GROUPS, USERS), max_size=5), min_size=1, max_size=3),
        slack=st.sampled_from([0, 4_000, 2**20]),
    )
    def append(self, cuts, slack):
        """Append rows, cut into batches."""
        for cut in cuts:
            batch = []
            for group, key in cut:
                self.count += 1
                batch.append((group, key, self.count))
                self.rows[canonical(key)].append((group, self.count))
            self._write(batch, slack)

    @rule(group=GROUPS)
    def raise_floor(self, group):
        """Let all rows of older groups go."""
        self.floor = group if self.floor is None else max(self.floor, group)
        for place, folder in enumerate(self.folders):
            change = Change(floors={PART: self.floor})
            self.manifests[place] = write(folder, self.manifests[place], change, parts=self.parts).manifest

    def _write(self, batch, slack):
        for place, folder in enumerate(self.folders):
            mine = [row for row in batch if self._partition(row[1]) == place]
            change = Change(append={PART: rows_table(mine)} if mine else {})
            self.manifests[place] = write(folder, self.manifests[place], change, parts=self.parts, slack=slack).manifest

    @rule(at_once=st.sampled_from([300, 10**6]))
    def fold(self, at_once):
        """Put a base in the place of each chain, in which there is nothing but live rows."""
        for place, folder in enumerate(self.folders):
            live_rows, base = folded(folder, self.manifests[place], parts=self.parts, at_once=at_once)
            live = [row for key in NAMES if self._partition(key) == place for row in self._expected(key)]
            assert sorted((row[GROUP], row["n"]) for row in live_rows if row["part"] == PART) == sorted(live)
            self.manifests[place] = self.manifests[place].rebased(base)

    @rule(partitions=st.sampled_from(PARTITIONS))
    def rescale(self, partitions):
        """Write what is live anew, for another number of partitions."""
        tables = [
            rows
            for folder, manifest in zip(self.folders, self.manifests, strict=True)
            for rows in live_rows(StateReader(folder, manifest), PART, self.parts, at_once=2_000)
        ]
        self._begin(partitions)
        for place, folder in enumerate(self.folders):
            mine = [t.filter(pa.array(t[HASH].to_numpy() % partitions == place)) for t in tables]
            append = {PART: pa.concat_tables(mine, promote_options="default")} if mine else {}
            floors = {} if self.floor is None else {PART: self.floor}
            change = Change(append=append, floors=floors)
            self.manifests[place] = write(folder, self.manifests[place], change, parts=self.parts).manifest

    @rule()
    def restart(self):
        """Go on as a new process would."""
        section_reader.forget()
        self.kept.append(self._snapshot())

    @rule(data=st.data())
    def restore(self, data):
        """Go back to what was there at a restart."""
        self.folders, self.manifests, rows, self.floor = data.draw(st.sampled_from(self.kept))
        self.folders, self.manifests = list(self.folders), list(self.manifests)
        self.rows = {key: list(held) for key, held in rows.items()}

    @rule(low=st.none() | GROUPS, high=st.none() | GROUPS, keys=st.sets(USERS))
    def look(self, low, high, keys):
        """Ask for some keys and groups."""
        self._compare([key for key in NAMES if canonical(key) in {canonical(k) for k in keys}], low, high)

    @invariant()
    def every_row_is_found_as_it_was_appended(self):
        """All keys there can be, in all groups."""
        if hasattr(self, "manifests"):
            self._compare(NAMES, None, None)

    @invariant()
    def the_first_group_is_that_of_the_first_row(self):
        """From each group on, and None after the last: merges, folds and floors change nothing."""
        for place, folder in enumerate(getattr(self, "folders", [])):
            reader = StateReader(folder, self.manifests[place])
            for low in (None, *range(-3, 5)):
                rows = [row for key in NAMES if self._partition(key) == place for row in self._expected(key, low)]
                assert reader.first_group(PART, low) == min((group for group, _ in rows), default=None)

    def _compare(self, keys, low, high):
        for place, folder in enumerate(self.folders):
            mine = [key for key in keys if self._partition(key) == place]
            by_key = ask(StateReader(folder, self.manifests[place]), self.parts[PART], mine, low, high)
            assert by_key == {canonical(key): self._expected(key, low, high) for key in mine}

    def teardown(self):
        """Leave blocks as large as they are."""
        if hasattr(self, "patched"):
            self.patched.stop()


@pytest.mark.slow
def test_appended_rows_are_lists(tmp_path_factory):
    """Whatever the order of batches, floors, merges, folds, restarts, restores and rescales; hashes collide."""

    class Machine(AppendedRows):
        def make_folder(self):
            return tmp_path_factory.mktemp("state")

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(40), stateful_step_count=25, suppress_health_check=list(HealthCheck), deadline=None
        ),
    )


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 200), USERS), min_size=1, max_size=300),
    keys=st.sets(USERS),
)
@example(rows=[(group, ("a", None)) for group in range(200)], keys=set())
def test_blocks_of_many_groups_are_searched_by_their_rows(tmp_path_factory, rows, keys):
    """However many groups stand in a block, of however many keys, and whether any is looked for."""
    numbered = [(group, key, n) for n, (group, key) in enumerate(rows)]
    parts = by_name([APPENDED])
    folder = tmp_path_factory.mktemp("state")
    manifest = write(folder, empty_manifest(), Change(append={PART: rows_table(numbered)}), parts=parts).manifest
    wanted = {canonical(key) for key in keys}
    asked = [key for key in NAMES if canonical(key) in wanted]
    by_key = ask(StateReader(folder, manifest), parts[PART], asked, 5, 150)
    for key in asked:
        mine = [(group, n) for group, other, n in numbered if canonical(other) == canonical(key) and 5 <= group < 150]
        assert by_key[canonical(key)] == sorted(mine, key=lambda row: row[0])


class Touched:
    """Count the blocks that are touched for the first time, and their bytes."""

    def __init__(self, monkeypatch):
        self.blocks: list[tuple[int, int]] = []
        whole = section_reader.Section._is_whole

        def counted(section, checksum, *places):
            if len(places) == 1:
                self.blocks += places
            return whole(section, checksum, *places)

        monkeypatch.setattr(section_reader.Section, "_is_whole", counted)
        section_reader.forget()


def test_only_blocks_that_may_have_the_keys_are_read(tmp_path, monkeypatch):
    """Of a part of 40 groups with 16 blocks each, one for each key in each group asked for: never a scan."""
    hashes = np.arange(16_000, dtype=np.int64)
    group_table = pa.table({GROUP: np.zeros(16_000, np.int64), HASH: hashes, "k": hashes, "n": hashes})
    tables = [group_table.set_column(0, GROUP, pa.array(np.full(16_000, group))) for group in range(40)]
    with mock.patch.object(segment_module, "BLOCK_BYTES", group_table.nbytes // 16):
        ref = write_segment(tmp_path, fresh_name(0), {PART: pa.concat_tables(tables)}, step="s", partition=3, batch=0)
    reader = StateReader(tmp_path, replace(empty_manifest(["k"]).append(ref), batch=0))
    part = Part(name=PART, identity=("k",), merge=Merge.APPEND)
    touched = Touched(monkeypatch)
    wanted = np.array([5, 7, 9_000])
    places, rows = reader.rows_of(part, wanted, pa.table({"k": wanted}), (10, 15))
    assert places.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert rows[GROUP].to_pylist() == [10, 11, 12, 13, 14] * 3
    # A block may reach over into the next group, and is then one more.
    assert 10 <= len(touched.blocks) <= 16
    assert sum(size for _, size in touched.blocks) < sum(ref.files.values()) // 35
    touched.blocks.clear()
    assert not len(reader.rows_of(part, np.array([20_000]), pa.table({"k": [20_000]}), (20, 21))[0])
    assert len(touched.blocks) <= 2


def test_the_first_group_is_known_without_the_files(tmp_path):
    """The manifest has the groups of each piece, also where a floor is between them."""
    rows = rows_table([(group, key, group) for group in range(0, 9, 3) for key in NAMES])
    parts = by_name([APPENDED])
    change = Change(append={PART: rows}, floors={PART: 2})
    manifest = write(tmp_path, empty_manifest(), change, parts=parts).manifest
    for file in manifest.sizes:
        (tmp_path / file).unlink()
    section_reader.forget()
    reader = StateReader(tmp_path, manifest)
    assert [reader.first_group(PART, low) for low in (None, 1, 3, 4, 6, 7)] == [3, 3, 3, 6, 6, None]


def test_what_is_damaged_or_gone_is_named(tmp_path):
    """As in every other part: by file, and by the batch that named it."""
    parts = by_name([APPENDED])
    rows = rows_table([(group, ("a", None), group) for group in range(3)])
    written = write(tmp_path, empty_manifest(), Change(append={PART: rows}), parts=parts)
    (name,) = written.segment.files
    data = (tmp_path / name).read_bytes()
    at = written.manifest.chain(PART)[0].pieces[0].head + 200
    (tmp_path / name).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    section_reader.forget()
    with pytest.raises(CheckpointCorrupt, match="checksum of the block") as damaged:
        ask(StateReader(tmp_path, written.manifest), parts[PART], [("a", None)])
    assert name in str(damaged.value)
    (tmp_path / name).unlink()
    section_reader.forget()
    with pytest.raises(StateMissing, match="which the manifest of batch 0 names"):
        ask(StateReader(tmp_path, written.manifest), parts[PART], [("a", None)])


def test_rows_of_other_kinds_are_found_otherwise(tmp_path):
    """A part whose rows merge has no order of them."""
    part = combined_part(PART, pa.concat_tables)[PART]
    with pytest.raises(ValueError, match="merges by combine"):
        StateReader(tmp_path, empty_manifest()).rows_of(part, np.array([1]), pa.table({"user": ["a"]}))


def test_a_part_says_what_its_kind_needs():
    """A function where rows are combined, and nowhere else; what is described is read back."""
    with pytest.raises(ValueError, match="lacks one"):
        Part(name="x", identity=(), merge=Merge.COMBINE)
    with pytest.raises(ValueError, match="has a function"):
        Part(name="x", identity=(), merge=Merge.LATEST, combine=pa.concat_tables)
    combined = Part(name="x", identity=("k",), merge=Merge.COMBINE, combine=pa.concat_tables, table="")
    for part in (APPENDED, LATEST, combined):
        assert Part.read(part.name, part.described(), pa.concat_tables) == part


@pytest.mark.fault("F21", "F22")
def test_a_manifest_is_of_the_version_that_its_parts_need(tmp_path, monkeypatch):
    """Who knows version 1 only reads on where nothing appends, and elsewhere names both versions."""
    manifests = {}
    for name, parts in (("old", by_name([LATEST])), ("new", by_name([APPENDED, LATEST]))):
        change = Change(append={COUNTS: rows_table([(0, ("a", None), 1)])})
        written = write(tmp_path / name, empty_manifest(), change, parts=parts)
        manifests[name] = tmp_path / name / written.ref.path
        assert written.manifest.facts[PARTS] == {part.name: part.described() for part in parts.values()}
    monkeypatch.delitem(file_format.LATER_KINDS, "manifest")  # as it was before
    assert Manifest.read(manifests["old"]).version == 1
    with pytest.raises(FormatTooNew, match="format version 2; this Penstock reads up to 1"):
        Manifest.read(manifests["new"])
