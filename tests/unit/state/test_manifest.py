"""Manifests: what their operations keep and let go, and how they are written (DESIGN 5)."""

from __future__ import annotations

import dataclasses

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from state_samples import add_counts, counts, empty_manifest, fresh_name, write, write_segment

from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.references import Piece, SegmentRef
from penstock.state.writer import Change, write_manifest

LEAST = -(2**63)


def piece(file="000000000001-a.arrow", first=(0, 0), last=(0, 9), groups=None, offset=0, size=100, rows=10):
    """Return a piece; what is not said does not matter."""
    return Piece(file, offset, size, 10, 10, 7, rows, first, last, groups)


def segment(batch, **parts):
    """Return a reference of a segment of one file; parts map to (first, last) or to a list of those."""
    file = f"{batch:012d}-a.arrow"
    refs = {}
    for part, bounds in parts.items():
        spans = bounds if isinstance(bounds, list) else [bounds]
        refs[part] = tuple(piece(file, first, last) for first, last in spans)
    return SegmentRef(name=f"{batch:012d}-a", batch=batch, files={file: 100 * len(parts)}, parts=refs)


def numbers(manifest, part):
    """Return the numbers of a part's runs, oldest first."""
    return [run.number for run in manifest.chain(part)]


def test_appended_segments_are_newest_and_replaced_ones_are_alone():
    """Slices grow by a run a batch while a running aggregate is rewritten."""
    manifest = empty_manifest()
    for batch in (1, 2, 3):
        ref = segment(batch, slices=((batch, 0), (batch, 5)), running=((0, 0), (0, 5)))
        manifest = manifest.drop("running").append(ref)
    assert [run.batch for run in manifest.chain("slices")] == [1, 2, 3]
    assert [run.batch for run in manifest.chain("running")] == [3]
    assert manifest.files() == ["000000000001-a.arrow", "000000000002-a.arrow", "000000000003-a.arrow"]
    assert manifest.size == 600
    assert len(set(numbers(manifest, "slices") + numbers(manifest, "running"))) == 4


def test_a_part_replaced_by_nothing_is_gone():
    """And so are files that nothing else is in."""
    manifest = empty_manifest().append(segment(1, running=((0, 0), (0, 5))))
    manifest = manifest.drop("running")
    assert manifest.chain("running") == ()
    assert manifest.files() == []


def test_a_floor_takes_runs_and_pieces_that_are_wholly_below_it():
    """What straddles it stays until it is merged; a floor never falls."""
    manifest = (
        empty_manifest()
        .append(segment(1, slices=((0, 1), (4, 1))))
        .append(segment(2, slices=[((2, 1), (5, 1)), ((6, 1), (8, 1))]))
    )
    moved = manifest.with_floor(5, "slices")
    assert [len(run.pieces) for run in moved.chain("slices")] == [2]
    moved = moved.with_floor(6, "slices")
    assert [len(run.pieces) for run in moved.chain("slices")] == [1]
    assert moved.files() == ["000000000002-a.arrow"]
    assert moved.with_floor(2, "slices").floors == {"slices": 6}
    assert moved.with_floor(9, "slices").chains == {}


def test_a_floor_is_of_its_part_alone():
    """Rows of other parts live on, whatever their groups."""
    manifest = empty_manifest().append(segment(1, slices=((0, 1), (3, 1)), late=((3, 3), (3, 3))))
    assert manifest.with_floor(4, "late").floors == {"late": 4}
    assert list(manifest.with_floor(4, "late").chains) == ["slices"]


def test_a_merge_that_has_not_ended_leaves_its_inputs_live_from_the_bound_on():
    """The output stands before its inputs, and the next merge goes on from there (DESIGN 6)."""
    manifest = empty_manifest()
    for batch in (1, 2, 3):
        manifest = manifest.append(segment(batch, state=((0, 0), (0, 90))))
    half = manifest.merged("state", {0, 1}, (0, 40), segment(4, state=((0, 0), (0, 39))).parts["state"], 4)
    assert [(run.number, run.low, run.into) for run in half.chain("state")] == [
        (3, None, None),
        (0, (0, 40), 3),
        (1, (0, 40), 3),
        (2, None, None),
    ]
    whole = half.merged("state", {0, 1}, None, segment(5, state=((0, 40), (0, 90))).parts["state"], 5)
    assert [(run.number, run.batch, len(run.pieces)) for run in whole.chain("state")] == [(3, 5, 2), (2, 3, 1)]
    assert whole.next_run == 4


def test_a_merge_of_rows_that_are_all_deleted_leaves_nothing():
    """No run without pieces is kept, neither in the middle of a merge nor at its end."""
    manifest = empty_manifest().append(segment(1, state=((0, 0), (0, 90)))).append(segment(2, state=((0, 0), (0, 90))))
    half = manifest.merged("state", {0, 1}, (0, 40), (), 3)
    assert [(run.number, run.low) for run in half.chain("state")] == [(0, (0, 40)), (1, (0, 40))]
    later = half.merged("state", {0, 1}, (0, 60), segment(4, state=((0, 40), (0, 59))).parts["state"], 4)
    assert numbers(later, "state") == [2, 0, 1]
    assert half.merged("state", {0, 1}, None, (), 4).chains == {}


def test_pieces_below_the_bound_of_a_merge_go_before_it_ends():
    """So a long merge does not keep the disk space of two states."""
    manifest = empty_manifest().append(segment(1, state=[((0, 0), (0, 9)), ((0, 10), (0, 19))]))
    manifest = manifest.append(segment(2, state=((0, 0), (0, 19))))
    half = manifest.merged("state", {0, 1}, (0, 10), segment(3, state=((0, 0), (0, 9))).parts["state"], 3)
    assert [len(run.pieces) for run in half.chain("state")] == [1, 1, 1]


PLACES = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))


@st.composite
def manifests(draw):
    """Return any manifest: appended, replaced, half merged, with floors and facts."""
    manifest = empty_manifest(draw(st.lists(st.text(min_size=1, max_size=3), max_size=2, unique=True)))
    for batch in range(draw(st.integers(0, 5))):
        first, last = sorted([draw(PLACES), draw(PLACES)])
        manifest = manifest.append(segment(batch, **{draw(st.sampled_from(["slices", "late"])): (first, last)}))
    chain = manifest.chain("slices")
    if len(chain) > 1 and draw(st.booleans()):
        manifest = manifest.merged("slices", {chain[0].number, chain[1].number}, draw(PLACES), (), 9)
    if draw(st.booleans()):
        for part in list(manifest.chains):
            manifest = manifest.with_floor(draw(st.integers(LEAST, 2**63 - 1)), part)
    facts = draw(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=2) | st.none(), max_size=2))
    return dataclasses.replace(manifest, facts=facts, batch=draw(st.integers(-1, 9)))


@settings(max_examples=examples(20))
@given(manifests())
def test_a_manifest_reads_back_as_it_was_written(tmp_path_factory, manifest):
    """Numbers of 64 bits, negative ones and merges under way included."""
    folder = tmp_path_factory.mktemp("state")
    ref = write_manifest(folder, fresh_name(3), manifest)
    assert Manifest.read(folder / ref.path, ref) == manifest
    assert ref.size == (folder / ref.path).stat().st_size


@settings(max_examples=examples(12))
@given(manifests())
def test_the_checksum_is_of_what_is_said_and_not_of_file_names(manifest):
    """Two tries of a task write equal states under different names (F04)."""
    renamed = dataclasses.replace(
        manifest,
        sizes={name.replace("-a", "-b"): size for name, size in manifest.sizes.items()},
        chains={
            part: tuple(
                dataclasses.replace(
                    run, pieces=tuple(dataclasses.replace(p, file=p.file.replace("-a", "-b")) for p in run.pieces)
                )
                for run in chain
            )
            for part, chain in manifest.chains.items()
        },
    )
    assert renamed.checksum == manifest.checksum
    assert dataclasses.replace(manifest, batch=77).checksum != manifest.checksum


@pytest.mark.fault("F04")
def test_files_of_a_zombie_are_in_no_manifest_and_never_read(tmp_path):
    """A try of a task that ends late writes under a name of its own; the state is what the commit's manifest says."""
    rows = {(0, 1): 1}
    kept = write(tmp_path, empty_manifest(("user",)), Change(append={"state": counts(rows)}))
    late = write(tmp_path, empty_manifest(("user",)), Change(append={"state": counts({(0, 1): 99})}))
    assert kept.ref.path != late.ref.path
    assert set(kept.manifest.sizes).isdisjoint(late.manifest.sizes)
    manifest = Manifest.read(tmp_path / kept.ref.path, kept.ref)
    assert add_counts(StateReader(tmp_path, manifest).scan("state")).equals(counts(rows))


def test_merged_rows_are_not_appended_by_themselves(tmp_path):
    """They take the place of runs; only `merged` puts them there."""
    parts = {"state": counts({(0, 1): 1}), "state~0": counts({(0, 2): 1})}
    ref = write_segment(tmp_path, fresh_name(1), parts, step="s", partition=0, batch=1)
    assert list(empty_manifest().append(ref).chains) == ["state"]
