"""Window slices: deltas of several runs are all read, whatever has been merged, and old slices go (DESIGN 6 and 7)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_samples import add_counts, combined_part, counts, empty_manifest, write

from penstock.state import compaction_planner as compaction_module
from penstock.state import section_reader
from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.row_layout import GROUP, HASH
from penstock.state.writer import Change

PART = "slices"
BATCHES = st.lists(
    st.tuples(
        st.dictionaries(st.tuples(st.integers(0, 9), st.integers(-2, 3)), st.integers(1, 9), max_size=12),
        st.integers(0, 3),
        st.sampled_from([0, 500, 4_000, 2**20]),
    ),
    min_size=1,
    max_size=12,
)


def sums(tables):
    """Return what tables of counts add up to."""
    merged = add_counts(tables)
    return {(row[GROUP], row[HASH]): row["n"] for row in merged.to_pylist()}


@settings(max_examples=examples(16), suppress_health_check=[HealthCheck.too_slow])
@given(BATCHES, st.booleans())
def test_slices_are_what_their_deltas_add_up_to(tmp_path_factory, batches, restarts):
    """After every batch, for every range of slices, above the floor; merges go on whenever the budget allows."""
    folder = tmp_path_factory.mktemp("state")
    manifest, model, floor, kept = empty_manifest(("user",)), {}, 0, []
    for delta, step, slack in batches:
        floor += step
        rows = {(group + floor, value): n for (group, value), n in delta.items()}
        change = Change(append={PART: counts(rows)}, floors={PART: floor})
        written = write(folder, manifest, change, parts=combined_part(PART, add_counts), slack=slack)
        assert written.rewritten <= 4 * written.written + slack
        manifest = written.manifest
        for place, n in rows.items():
            model[place] = model.get(place, 0) + n
        model = {place: n for place, n in model.items() if place[0] >= floor}
        if restarts:
            section_reader.forget()
        reader = StateReader(folder, manifest)
        assert sums(reader.scan(PART)) == model
        middle = {place: n for place, n in model.items() if floor + 2 <= place[0] < floor + 5}
        assert sums(reader.scan(PART, floor + 2, floor + 5)) == middle
        assert set(reader.groups(PART).tolist()) == {group for group, _ in model}
        if written.ref is not None:
            kept.append((written.ref, dict(model)))
    for ref, expected in kept:
        assert sums(StateReader(folder, Manifest.read(folder / ref.path, ref)).scan(PART)) == expected


def test_a_scan_gives_the_runs_oldest_first(tmp_path):
    """So that a merge may depend on the order, as first and last do."""
    manifest = empty_manifest(("user",))
    for n in range(3):
        manifest = write(tmp_path, manifest, Change(append={PART: counts({(n % 2, 1): n})})).manifest
    reader = StateReader(tmp_path, manifest)
    assert [table.column("n").to_pylist() for table in reader.scan(PART)] == [[0], [1], [2]]
    assert [table.column("n").to_pylist() for table in reader.scan(PART, 0, 1)] == [[0], [2]]
    assert reader.scan(PART, 5) == []
    assert reader.facts == {}


def test_a_combine_is_given_the_runs_oldest_first_and_whole_keys(tmp_path, monkeypatch):
    """One range of keys at a time, over as many batches as it takes, each row once."""
    monkeypatch.setattr(compaction_module, "AT_ONCE", 5_000)
    seen = []

    def combine(tables):
        seen.extend(
            (table.column("n")[0].as_py() // 1_000, *(row[HASH] for row in table.to_pylist())) for table in tables
        )
        return add_counts(tables)

    manifest = empty_manifest(("user",))
    model = {}
    for n in range(12):
        rows = {(0, value): n * 1_000 for value in range(n % 3, 200, 3)}
        written = write(
            tmp_path, manifest, Change(append={PART: counts(rows)}), parts=combined_part(PART, combine), slack=2_000
        )
        manifest = written.manifest
        for place, count in rows.items():
            model[place] = model.get(place, 0) + count
    assert seen
    for _, *hashes in seen:
        assert hashes == sorted(hashes)
    assert any(run.into is not None or len(run.pieces) > 1 for run in manifest.chain(PART))
    assert sums(StateReader(tmp_path, manifest).scan(PART)) == model


def test_an_expiry_index_is_a_part_whose_groups_are_due_times(tmp_path):
    """What is due is a scan below a time, and the floor then forgets it: the cost is that of the keys that are due."""
    manifest = empty_manifest(("user",))
    manifest = write(
        tmp_path, manifest, Change(append={"expiry": counts({(60, 1): 0, (90, 2): 0, (300, 3): 0})})
    ).manifest
    manifest = write(tmp_path, manifest, Change(append={"expiry": counts({(400, 1): 0})})).manifest
    due = StateReader(tmp_path, manifest).scan("expiry", group_to=100)
    assert [(row[GROUP], row["user"]) for table in due for row in table.to_pylist()] == [(60, "1"), (90, "2")]
    after = write(tmp_path, manifest, Change(floors={"expiry": 100})).manifest
    assert StateReader(tmp_path, after).groups("expiry").tolist() == [300, 400]


@pytest.mark.fault("F43")
def test_times_of_any_sign_are_groups(tmp_path):
    """Slices before 1970, and the ends of 64 bits."""
    rows = {(group, 1): 1 for group in (-(2**63), -60, 0, 60, 2**63 - 1)}
    reader = StateReader(
        tmp_path, write(tmp_path, empty_manifest(("user",)), Change(append={PART: counts(rows)})).manifest
    )
    assert reader.groups(PART).tolist() == [group for group, _ in rows]
    assert sums(reader.scan(PART, -60, 60)) == {(-60, 1): 1, (0, 1): 1}
    assert sums(reader.scan(PART, 60)) == {(60, 1): 1, (2**63 - 1, 1): 1}
    assert pa.concat_tables(reader.scan(PART, None, -60)).num_rows == 1
