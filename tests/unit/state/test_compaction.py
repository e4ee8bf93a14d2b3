"""Compaction: what is merged next, what comes of it, and that it keeps the budget (DESIGN 6)."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from state_samples import add_counts, combined_part, counts, empty_manifest, folded, latest_part, write

from penstock.state import compaction_planner as compaction_module
from penstock.state.compaction import compact
from penstock.state.compaction_planner import CompactionPlan, live_size, plan_compaction
from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.references import Piece, SegmentRef, segment_name
from penstock.state.row_layout import GROUP, HASH
from penstock.state.writer import Change, write_changes

KIB, MIB = 2**10, 2**20


@pytest.fixture
def unsynced(monkeypatch):
    """Leave syncing out where hundreds of files are written to see what is in them."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def chain_of(*sizes):
    """Return a manifest with runs of these sizes, oldest first."""
    manifest = empty_manifest()
    for batch, size in enumerate(sizes):
        piece = Piece(f"{batch:012d}-a.arrow", 0, size, 0, 0, 0, 100, (0, 0), (0, 99), None)
        manifest = manifest.append(SegmentRef(name="", batch=batch, files={}, parts={"state": (piece,)}))
    return manifest


def planned(manifest, budget_bytes=MIB, **other):
    """Return the numbers of the runs that would be merged next."""
    plan = plan_compaction(manifest, "state", budget_bytes, **other)
    return plan and [run.number for run in plan.inputs]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], None),
        ([5_000] * 3, None),
        ([5_000] * 4, [0, 1, 2, 3]),
        ([5_000] * 6, [0, 1, 2, 3, 4, 5]),
        ([900_000, 5_000, 5_000, 5_000, 5_000], [1, 2, 3, 4]),
        ([5_000, 5_000, 5_000, 900_000], [0, 1, 2, 3]),
        ([900_000] * 4 + [5_000] * 4, [4, 5, 6, 7]),
    ],
    ids=["none", "few", "a tier", "all of a tier", "the small ones", "small before large", "the cheaper tier"],
)
def test_neighbours_of_one_size_are_merged_the_cheapest_first(sizes, expected):
    """Four of a size class; a small run before a large one counts as large."""
    assert planned(chain_of(*sizes)) == expected


def test_a_merge_under_way_goes_on_when_nothing_is_cheaper():
    """And its inputs are not taken into another."""
    manifest = chain_of(*[900_000] * 4, *[5_000] * 3)
    manifest = manifest.merged("state", {0, 1, 2, 3}, (0, 50), (), 9)
    assert planned(manifest) == [0, 1, 2, 3]
    small = chain_of(*[900_000] * 4, *[5_000] * 4).merged("state", {0, 1, 2, 3}, (0, 50), (), 9)
    assert planned(small) == [4, 5, 6, 7]


def test_the_output_of_a_merge_under_way_is_not_merged():
    """It would be rewritten while it still grows."""
    piece = Piece("000000000009-a.arrow", 0, 5_000, 0, 0, 0, 9, (0, 0), (0, 49), None)
    manifest = chain_of(*[5_000] * 3, *[900_000] * 4).merged("state", {3, 4, 5, 6}, (0, 50), (piece,), 9)
    assert [run.number for run in manifest.chain("state")] == [0, 1, 2, 7, 3, 4, 5, 6]
    assert planned(manifest) == [3, 4, 5, 6]


def test_runs_that_a_data_checkpoint_folds_are_left_alone():
    """Neither begun nor gone on with: others will stand in their place (DESIGN 5)."""
    manifest = chain_of(100, 100, 100, 100, 100, 100, 100, 100)
    assert planned(manifest) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert planned(manifest, behind=2) == [3, 4, 5, 6, 7]
    assert planned(manifest, behind=5) is None
    piece = (Piece("000000000009-a.arrow", 0, 50, 0, 0, 0, 50, (0, 0), (0, 49), None),)
    going = manifest.merged("state", {0, 1}, (0, 50), piece, 1)
    assert planned(going, behind=5) is None


def test_runs_of_the_batch_itself_are_not_merged():
    """Their file has no name yet."""
    manifest = chain_of(*[5_000] * 4)
    assert planned(manifest, before=3) is None
    assert planned(manifest, before=4) == [0, 1, 2, 3]


def test_a_budget_too_small_for_anything_is_left():
    """A piece has some kilobytes of its own."""
    assert planned(chain_of(*[5_000] * 4), budget_bytes=4_000) is None


def test_what_is_left_of_a_budget_is_not_spent_on_small_pieces_of_a_large_merge():
    """Unless it is half of what the batch had."""
    manifest = chain_of(*[10 * MIB] * 4)
    assert planned(manifest, 20_000, whole_budget=MIB) is None
    assert planned(manifest, 20_000, whole_budget=40_000) == [0, 1, 2, 3]
    assert planned(manifest, 20_000) == [0, 1, 2, 3]


def test_spare_bytes_shorten_a_long_chain():
    """Above ten runs, by what can be merged at once."""
    sizes = [int(3_000_000 * 0.6**n) for n in range(11)]
    assert planned(chain_of(*sizes[:10])) is None
    assert planned(chain_of(*sizes)) == [9, 10]
    assert planned(chain_of(*sizes), budget_bytes=30_000) is None


def test_only_the_oldest_runs_lose_their_tombstones():
    """Also when a merge is carried on behind its own output."""
    manifest = chain_of(*[5_000] * 4)
    assert plan_compaction(manifest, "state", MIB).oldest
    newer = chain_of(9_000_000, *[5_000] * 4)
    assert not plan_compaction(newer, "state", MIB).oldest
    piece = Piece("000000000009-a.arrow", 0, 900, 0, 0, 0, 9, (0, 0), (0, 49), None)
    under_way = manifest.merged("state", {0, 1, 2, 3}, (0, 50), (piece,), 9)
    assert plan_compaction(under_way, "state", MIB).oldest


def test_dead_rows_have_no_size():
    """What lies below a bound or a floor costs nothing to merge."""
    (run,) = chain_of(1_000).chain("state")
    assert live_size(run) == 1_000
    assert live_size(run, (0, 50)) == pytest.approx(500, abs=15)
    assert live_size(run, (0, 100)) == 0
    assert live_size(run, (0, -5)) == 1_000
    (manifest,) = [chain_of(1_000).with_floor(1, "state")]
    assert manifest.chain("state") == ()


def keyed(hashes, n):
    """Return rows whose key is their hash."""
    columns = {GROUP: np.zeros(len(hashes)), HASH: hashes, "k": hashes, "n": np.full(len(hashes), n)}
    table = pa.table({name: pa.array(np.asarray(values, dtype=np.int64)) for name, values in columns.items()})
    return table.append_column("_deleted", pa.array(np.full(len(hashes), n is None or n < 0)))


FILES = {
    "all keys each batch": lambda batch, _: (np.arange(300), batch),
    "one key for ever": lambda batch, _: (np.array([7]), batch),
    "growing, then deleted": lambda batch, _: (
        (np.arange(batch * 20, batch * 20 + 20), batch)
        if batch < 100
        else (np.arange((batch - 100) * 20, (batch - 99) * 20), -1)
    ),
    "huge, then tiny": lambda batch, rng: (np.arange(60_000) if batch == 0 else rng.integers(0, 60_000, 5), batch),
    "any": lambda _, rng: (rng.integers(0, 5_000, int(rng.integers(1, 1_000))), int(rng.integers(-1, 50))),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("pattern", FILES)
@pytest.mark.parametrize(("slack", "most"), [(0, 40), (64 * KIB, 20)], ids=["no slack", "slack"])
@pytest.mark.usefixtures("unsynced")
def test_with_real_files_the_budget_is_kept_and_the_result_is_that_of_a_dict(tmp_path, pattern, slack, most):
    """Two hundred batches of each pattern; the bytes are those on disk, of which each file has some kilobytes."""
    rng = np.random.default_rng(3)
    manifest, model, longest = empty_manifest(("k",)), {}, 0
    for batch in range(200):
        hashes, n = FILES[pattern](batch, rng)
        hashes = np.unique(hashes).astype(np.int64)
        change = Change(append={"state": keyed(hashes, n)})
        written = write(tmp_path, manifest, change, parts=latest_part("state", manifest.keys), slack=slack)
        assert written.rewritten <= 4 * written.written + slack
        assert sum(written.segment.files.values()) <= 5 * written.written + slack + 64 * len(written.segment.parts)
        manifest = written.manifest
        longest = max(longest, len(manifest.chain("state")))
        model |= dict.fromkeys(hashes.tolist(), n)
    assert longest <= most
    wanted = np.array(sorted(model), dtype=np.int64)
    hits, rows = StateReader(tmp_path, manifest).lookup("state", wanted, pa.table({"k": wanted}))
    expected = [n if n >= 0 else None for n in (model[key] for key in wanted.tolist())]
    assert rows.column("n").to_pylist() == expected
    assert hits.tolist() == [n is not None for n in expected]


@pytest.mark.usefixtures("unsynced")
def test_deleted_keys_give_their_space_back(tmp_path):
    """After as many batches as wrote them, a state that was deleted key by key is small again."""
    manifest, sizes = empty_manifest(("k",)), []
    for batch in range(200):
        hashes, n = FILES["growing, then deleted"](batch, None)
        change = Change(append={"state": keyed(hashes, n)})
        manifest = write(tmp_path, manifest, change, parts=latest_part("state", manifest.keys)).manifest
        sizes.append(manifest.rows)
    assert max(sizes) >= 2_000
    rows, manifest = folded(tmp_path, manifest, parts=latest_part("state", manifest.keys))
    assert rows == []
    assert manifest.chain("state") == ()


def test_one_group_and_hash_is_merged_whole_even_above_the_budget(tmp_path):
    """It cannot be divided, and a merge that waits for ever would let the chain grow without end."""
    manifest = empty_manifest(("user",))
    for n in range(4):
        rows = [((0, 7), n)] * 2_000 + [((0, 8), n)]
        manifest = write(tmp_path, manifest, Change(append={"rows": counts(rows)})).manifest
    plan = plan_compaction(manifest, "rows", 10_000)
    merged = compact(StateReader(tmp_path, manifest), plan, combined_part("rows", pa.concat_tables)["rows"])
    assert merged.rows.num_rows == 8_000
    assert (merged.bound, merged.indivisible) == ((0, 8), True)
    written = write(
        tmp_path, manifest, Change(facts={"x": 1}), parts=combined_part("rows", pa.concat_tables), slack=10_000
    )
    assert written.rewritten > 10_000
    kept = pa.concat_tables(StateReader(tmp_path, written.manifest).scan("rows"))
    assert kept.num_rows == 8_004


def test_a_combine_whose_rows_grow_is_given_fewer_of_them(tmp_path):
    """The budget is that of the bytes written, which are known only then."""

    def swollen(tables):
        table = add_counts(tables)
        return table.set_column(2, "user", pa.array([f"{row}" * 40 for row in range(table.num_rows)]))

    manifest = empty_manifest(("user",))
    for n in range(4):
        rows = counts({(0, value): n for value in range(2_000)})
        manifest = write(tmp_path, manifest, Change(append={"slices": rows})).manifest
    written = write(tmp_path, manifest, Change(facts={"x": 1}), parts=combined_part("slices", swollen), slack=60_000)
    assert 10_000 < written.rewritten <= 60_000
    assert len(written.manifest.chain("slices")) == 5


def test_a_combine_that_only_grows_is_given_up_within_the_budget(tmp_path):
    """Nothing is rewritten then, and nothing is lost."""

    def absurd(tables):
        table = add_counts(tables)
        return table.set_column(2, "user", pa.array(["x" * 100_000] * table.num_rows))

    manifest = empty_manifest(("user",))
    for n in range(4):
        manifest = write(
            tmp_path, manifest, Change(append={"slices": counts({(0, v): n for v in range(200)})})
        ).manifest
    written = write(tmp_path, manifest, Change(facts={"x": 1}), parts=combined_part("slices", absurd), slack=60_000)
    assert written.rewritten == 0
    assert written.manifest.chains == manifest.chains


def test_wider_merges_are_made_where_the_budget_is_what_lacks(monkeypatch):
    """They cost fewer bytes for each run that goes."""
    sizes = [5_000] * 5
    assert planned(chain_of(*sizes)) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(compaction_module, "SATURATED", 4)
    assert planned(chain_of(*sizes)) is None
    assert planned(chain_of(*[5_000] * 6)) == [0, 1, 2, 3, 4, 5]


def test_a_merge_goes_on_in_large_steps_where_the_largest_run_begins_late(tmp_path):
    """DESIGN 6: a bounded amount of work each batch, and not one key of it at a time.

    Runs of older slices end before the largest run begins, so none of its rows is a bound that helps.
    """
    manifest = Manifest(step="w", partition=0, keys=("k",))
    for batch, (first, rows) in enumerate([(0, 40_000), (1, 40_000), (2, 40_000), (100, 60_000)]):
        hashes = np.arange(rows, dtype=np.int64)
        slices = pa.table({GROUP: np.full(rows, first), HASH: hashes, "k": hashes, "n": hashes})
        change = Change(append={"slices": slices})
        name = segment_name(batch, epoch=1, attempt=batch, run="ab")
        written = write_changes(StateReader(tmp_path, manifest), name, change, batch=batch, parts={})
        manifest = written.manifest
    reader = StateReader(tmp_path, manifest)
    plan = CompactionPlan(part="slices", inputs=manifest.chain("slices"), budget_bytes=200_000, oldest=True)
    assert compact(reader, plan, combined_part(plan.part, pa.concat_tables)[plan.part]).rows.num_rows > 1_000
