"""A fold writes what is live of a partition anew, and its base takes the place of what it was made from (DESIGN 5)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from state_samples import (
    add_counts,
    carry_out,
    combined_part,
    counts,
    empty_manifest,
    folded,
    keyed_table,
    latest_part,
    write,
)

from penstock.errors import CheckpointCorrupt, StateError
from penstock.state.compaction_planner import CompactionPlan
from penstock.state.reader import StateReader
from penstock.state.row_layout import DELETED, GROUP, HASH
from penstock.state.writer import Change

STATE = {"total": 1, "tags": None, "place": None}


def sums(folder, manifest, part="slices"):
    """Return the counts that a reader finds, by group and hash."""
    rows = add_counts(StateReader(folder, manifest).scan(part)).to_pylist()
    return {(row[GROUP], row[HASH]): row["n"] for row in rows}


def batches_of(folder, *changes, manifest=None, **other):
    """Write batches, each of one part's counts; return the manifest."""
    manifest = manifest or empty_manifest(("user",))
    for change in changes:
        manifest = write(folder, manifest, Change(append={"slices": counts(change)}), **other).manifest
    return manifest


@pytest.mark.slow
@settings(max_examples=examples(16), deadline=None)
@given(data=st.data())
def test_a_base_stands_for_the_batches_before_it_whatever_comes_behind(data, tmp_path_factory):
    """Sums stay sums: nothing counts twice, nothing is lost, floors and replaced parts included."""
    folder = tmp_path_factory.mktemp("state")
    places = st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 9)), st.integers(1, 9), max_size=8)
    parts = combined_part("slices", add_counts)

    def grow(manifest, behind):
        append = {"slices": counts(data.draw(places))}
        replace = {"running": counts(data.draw(places))} if data.draw(st.booleans()) else {}
        floors = {"slices": data.draw(st.integers(0, 2))} if data.draw(st.booleans()) else {}
        change = Change(append=append, replace=replace, floors=floors)
        return write(folder, manifest, change, parts=parts, slack=8_192, behind=behind).manifest

    manifest = write(folder, empty_manifest(("user",)), Change(append={"slices": counts({(3, 0): 1})})).manifest
    for _ in range(data.draw(st.integers(0, 8))):
        manifest = grow(manifest, None)
    live_rows, base = folded(
        folder, manifest, batch=manifest.batch, parts=parts, at_once=data.draw(st.sampled_from([300, 10**6]))
    )
    assert {(row[GROUP], row[HASH]): row["n"] for row in live_rows if row["part"] == "slices"} == sums(folder, manifest)
    assert not set(base.files()) & set(manifest.files())
    at = manifest.batch
    for _ in range(data.draw(st.integers(0, 8))):
        manifest = grow(manifest, at)
    rebased = manifest.rebased(base)
    for part in ("slices", "running"):
        assert sums(folder, rebased, part) == sums(folder, manifest, part)
    assert {int(name.split("-")[0]) for name in rebased.files()} <= set(range(at, manifest.batch + 1))
    assert rebased.batch == manifest.batch
    after = grow(rebased, None)
    assert len(after.chain("slices")) <= len(rebased.chain("slices")) + 1


def test_a_key_that_was_deleted_behind_the_fold_stays_deleted(tmp_path):
    """The base has no tombstones, the runs behind it do."""
    manifest = empty_manifest()
    for rows in ([(1, ("a", 1.0), STATE), (2, ("b", 1.0), STATE)], [(2, ("b", 1.0), None)]):
        manifest = write(tmp_path, manifest, Change(append={"state": keyed_table(rows)})).manifest
    live_rows, base = folded(tmp_path, manifest, parts=latest_part("state", manifest.keys))
    assert [row["user"] for row in live_rows] == ["a"]
    assert base.rows == 1
    gone = write(tmp_path, manifest, Change(append={"state": keyed_table([(1, ("a", 1.0), None)])}), behind=1).manifest
    rows = StateReader(tmp_path, gone.rebased(base)).scan("state")
    assert [table["user"].to_pylist() for table in rows] == [["a"], ["a"]]
    assert rows[-1][DELETED].to_pylist() == [True]


def test_a_base_whose_runs_were_written_to_meanwhile_is_refused(tmp_path):
    """Else rows that were merged out of them would count twice."""
    manifest = batches_of(tmp_path, *({(0, n): 1 for n in range(40)} for _ in range(3)))
    _, base = folded(tmp_path, manifest, parts=combined_part("slices", add_counts))
    held = manifest.chain("slices")[0]
    later = type(manifest)(
        step=manifest.step,
        partition=manifest.partition,
        keys=manifest.keys,
        batch=9,
        chains={"slices": (type(held)(held.number, 9, held.pieces),)},
        sizes=manifest.sizes,
        next_run=manifest.next_run,
    )
    with pytest.raises(StateError, match="was merged after the base of batch 2"):
        later.rebased(base)
    begun = carry_out(
        tmp_path,
        manifest,
        CompactionPlan(part="slices", inputs=manifest.chain("slices"), budget_bytes=3_000, oldest=True),
    )
    assert any(run.low is not None for run in begun.chain("slices")), "a merge that is not done yet"
    with pytest.raises(StateError, match="was merged after the base"):
        begun.rebased(base)


def test_rows_of_an_older_schema_and_of_a_newer_are_folded_and_read_as_one(tmp_path):
    """A column that was added lies only in some stretches of hashes (7: schema evolution)."""
    manifest = empty_manifest(("user",))
    old = pa.table({GROUP: [0] * 400, HASH: list(range(400)), "user": [str(n) for n in range(400)], "n": [1] * 400})
    new = pa.table({GROUP: [0], HASH: [399], "user": ["399"], "n": [2], "note": ["x"]})
    for table in (old, new):
        manifest = write(tmp_path, manifest, Change(append={"state": table})).manifest
    rows, base = folded(tmp_path, manifest, parts=latest_part("state", manifest.keys), at_once=4_000)
    assert len(base.chain("state")[0].pieces) > 1
    assert rows[0] == {"part": "state", GROUP: 0, HASH: 0, "user": "0", "n": 1, "note": None}
    assert rows[-1] == {"part": "state", GROUP: 0, HASH: 399, "user": "399", "n": 2, "note": "x"}
    (table,) = StateReader(tmp_path, base).scan("state")
    assert table["note"].to_pylist() == [None] * 399 + ["x"]


def test_a_merge_that_went_on_across_a_new_schema_is_read_as_one_run(tmp_path):
    """Its first pieces were written with the old columns, its last with the new."""
    manifest = empty_manifest(("user",))

    def rows_of(n, **more):
        columns = {GROUP: [0] * 400, HASH: list(range(400)), "user": [str(v) for v in range(400)], "n": [n] * 400}
        return pa.table({**columns, **{name: [value] * 400 for name, value in more.items()}})

    for n in range(4):
        manifest = write(tmp_path, manifest, Change(append={"state": rows_of(n)})).manifest

    def merge_some(manifest, chain):
        plan = CompactionPlan(part="state", inputs=chain, budget_bytes=30_000, oldest=True)
        return carry_out(tmp_path, manifest, plan)

    manifest = merge_some(manifest, manifest.chain("state"))
    assert {run.into for run in manifest.chain("state")} == {None, 4}
    manifest = write(tmp_path, manifest, Change(append={"state": rows_of(9, note="x").slice(399)})).manifest
    while len(chain := manifest.chain("state")) > 2:
        manifest = merge_some(manifest, chain[1:-1])
    merged, newest = StateReader(tmp_path, manifest).scan("state")
    assert merged["note"].null_count == 400
    assert newest["note"].to_pylist() == ["x"]
    rows, _ = folded(tmp_path, manifest, parts=latest_part("state", manifest.keys))
    assert [(row["n"], row["note"]) for row in rows] == [(3, None)] * 399 + [(9, "x")]


def test_a_fold_of_damaged_state_fails_and_leaves_nothing(tmp_path):
    """What is read is checked, as by a task."""
    manifest = batches_of(tmp_path, {(0, n): 1 for n in range(40)})
    (name,) = manifest.files()
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / name).write_bytes(bytes(data))
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(CheckpointCorrupt):
        folded(tmp_path, manifest, parts=combined_part("slices", add_counts))
    assert sorted(path.name for path in tmp_path.iterdir()) == before
