"""`penstock upkeep` reads all that a job can go back to: whatever is damaged is found and named, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_engine import Witness, World, quick_folder
from test_damage import CUTS, TIMES, Site, flips, start

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.errors import PenstockError
from penstock.runtime.inspect.fsck import Verified, verify
from penstock.state.manifest import Manifest


@pytest.fixture
def site() -> Iterator[Site]:
    """Return a checkpoint that a driver left behind after a few batches."""
    with quick_folder() as folder:
        made = Site(World(root=folder, times=TIMES), Witness())
        start(made.world, made.store, "first", CUTS["Release at the end"])
        yield made


def state_files(site: Site) -> list[Path]:
    """Return all files of state."""
    assert site.world.root is not None
    return sorted((site.world.root / "state").glob("*/*/*.*"))


def verified(site: Site) -> Verified:
    """Verify it."""
    assert site.world.root is not None
    return verify(Log(site.store), site.world.root)


def problems_of(site: Site) -> list[str]:
    """Return what is wrong, without what it means."""
    return [finding.what for finding in verified(site).findings]


def test_what_is_whole_has_no_problems(site: Site) -> None:
    """All of it was read: each file of state that a kept batch names."""
    report = verified(site)
    assert report.findings == ()
    assert report.batches == 3
    assert report.files == len(state_files(site))
    assert report.size == sum(path.stat().st_size for path in state_files(site))


@pytest.mark.sample(seconds=15)
@pytest.mark.slow
@pytest.mark.fault("F13", "F14")
def test_a_flipped_byte_of_the_state_is_found_and_named(site: Site) -> None:
    """In manifests, and in every section that a manifest names."""
    flipped = 0
    for path in state_files(site):
        data = path.read_bytes()
        for at, changed in flips(data, 7):
            path.write_bytes(changed)
            problems = problems_of(site)
            assert any(path.name in problem or path.stem in problem for problem in problems), f"byte {at} of {path}"
            flipped += 1
        path.write_bytes(data)
    assert flipped > 100
    assert verified(site).findings == ()


@pytest.mark.fault("F14")
def test_what_damaged_state_means_depends_on_whether_it_is_in_force(site: Site) -> None:
    """The job stops at what it goes on from, and only loses a way back where an older batch is damaged."""
    assert site.world.root is not None
    commits = {kept.batch: kept for kept in recover(Log(site.store)).kept}
    newest = max(commits)
    for batch in (newest, min(commits)):
        (step, refs), *_ = commits[batch].state.items()
        (partition, ref), *_ = refs.items()
        path = site.world.root / "state" / step / partition / ref.path
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        means = [f.means for f in verified(site).findings if f.what.startswith(f"batch {batch}:")]
        if batch == newest:
            assert all(
                "the job stops when it reads it; restore with --from batch=N to one of" in meaning for meaning in means
            )
        else:
            assert f"batch {batch} cannot be restored; the job continues" in means
        assert means
        path.write_bytes(data)


@pytest.mark.fault("F13", "F14")
def test_a_file_of_state_that_is_gone_or_cut_short_is_found(site: Site) -> None:
    """Each of them."""
    for path in state_files(site):
        data = path.read_bytes()
        path.unlink()
        assert any(path.name in problem for problem in problems_of(site))
        path.write_bytes(data[:-1])
        assert any(path.name in problem for problem in problems_of(site))
        path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.fault("F13")
def test_a_flipped_byte_of_any_entry_is_found(site: Site) -> None:
    """Also of one that no restart would read; only the entry that says how to begin may end the reading at once."""
    store = site.store
    for path in [path for path in store._files if path.startswith("log/")]:
        data = store._files[path]
        for at, changed in flips(data, 31):
            store._files[path] = changed
            assert any(path in problem for problem in problems_of(site)), f"byte {at} of {path}"
        store._files[path] = data


@pytest.mark.fault("F29")
def test_an_entry_that_is_gone_and_should_be_there_is_found(site: Site) -> None:
    """The Takeover that later entries stand on, Offsets of a kept Commit, a Commit: no start could use what is left."""
    store = site.store
    for path in sorted(path for path in store._files if path.startswith("log/"))[:-1]:
        data = store._files.pop(path)
        try:
            problems = problems_of(site)
        except PenstockError:
            problems = ("it cannot even be begun",)
        store._files[path] = data
        assert problems, path
    assert verified(site).findings == ()


def test_the_same_bytes_are_read_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches name them."""
    from penstock.runtime.inspect import fsck as module

    opened = []
    real = module.open_section
    monkeypatch.setattr(module, "open_section", lambda *args: opened.append(args[:2]) or real(*args))
    verified(site)
    assert len(opened) == len(set(opened))
    named = [piece for m in manifests(site) for chain in m.chains.values() for run in chain for piece in run.pieces]
    assert len(opened) < len(named)


def manifests(site: Site) -> list[Manifest]:
    """Return all manifests."""
    return [Manifest.read(path) for path in state_files(site) if path.suffix == ".json"]
