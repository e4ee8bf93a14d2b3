"""The folder of this machine through which a checkpoint on a real HDFS is worked with (DESIGN 6, FAULTS 4)."""

from __future__ import annotations

import os
import secrets
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.checkpoint.storage import hdfs_cache
from penstock.checkpoint.storage.durable_files import NewFile, make_folder, map_file, read_file, sync_folder
from penstock.checkpoint.storage.filesystem import (
    files_below,
    folders_in,
    have_file,
    is_taken,
    let_go,
    move_folder,
    read_whole,
    remove_folder,
    size_of,
    write_whole,
)
from penstock.checkpoint.storage.hdfs_cache import fetched, mirrored, open_store, root_of, shown, without_cache
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import (
    AlreadyExists,
    CheckpointCorrupt,
    ConfigError,
    RootMissing,
    RootUnsafe,
    SegmentExists,
    StateMissing,
    StorageFull,
)
from penstock.runtime.snapshots.delta_table import working_copy
from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.section_reader import forget
from penstock.state.segment_writer import write_segment
from tools.hdfs_server import HdfsServer

pytestmark = [pytest.mark.integration, pytest.mark.sample(3, of="copies of files on HDFS")]

STEP = "sums"


@pytest.fixture
def url(hdfs: HdfsServer) -> str:
    """Return a root on HDFS."""
    return hdfs.url(secrets.token_hex(8))


@pytest.fixture
def here(tmp_path: Path, url: str) -> Path:
    """Return the folder that stands for it on one machine."""
    return machine(tmp_path / "here", url)


@pytest.fixture
def there(tmp_path: Path, url: str, here: Path) -> Path:
    """Return the folder that stands for it on another machine."""
    return machine(tmp_path / "there", url)


def machine(cache: Path, url: str) -> Path:
    """Return what stands for a root with this cache; the root is made."""
    root = root_of(url, cache=str(cache))
    open_store(root)
    return root


def put(folder: Path, name: str, data: bytes) -> Path:
    """Write a file as state is written."""
    make_folder(folder)
    with NewFile(folder, name) as file:
        file.write(data)
        file.publish()
    sync_folder(folder)
    return folder / name


def test_a_path_says_which_file_of_which_hdfs_it_is(here: Path, url: str) -> None:
    """It is shown as the URL, and nothing else has to be sent with it."""
    assert shown(here / "job" / "state" / "x") == f"{url}/job/state/x"
    assert shown(Path("plain/x")) == "plain/x"
    assert mirrored(Path("plain/x")) is None
    for wrong in ("hdfs://nn:8020/x", "webhdfs://nn:9870", "webhdfs://nn:9870/a/../b", f"webhdfs://nn/{'x' * 240}"):
        with pytest.raises(ConfigError):
            root_of(wrong)


def test_what_is_written_on_one_machine_is_read_on_another(here: Path, there: Path) -> None:
    """Once it is fetched no more is fetched."""
    put(here / "job" / "state", "1-a", b"some state")
    before = fetched()
    for _ in range(2):
        assert read_file(there / "job" / "state" / "1-a", bytes) == b"some state"
    assert fetched() - before == len(b"some state")
    assert files_below(there / "job") == [there / "job" / "state" / "1-a"]
    assert folders_in(there) == ["job"]
    with pytest.raises(StateMissing, match="no such state file") as caught:
        read_file(there / "job" / "state" / "2-b", bytes)
    assert caught.value.where == shown(there / "job" / "state" / "2-b")


def test_a_name_that_is_taken_is_refused_and_the_copy_is_not_believed(here: Path, there: Path) -> None:
    """HDFS decides: what failed to get there is not here either."""
    put(here / "state", "1-a", b"first")
    with pytest.raises(SegmentExists):
        put(there / "state", "1-a", b"second")
    assert read_file(there / "state" / "1-a", bytes) == b"first"


def test_a_root_that_is_not_there_is_not_made_by_who_looks(tmp_path: Path, url: str) -> None:
    """As on local disk."""
    root = root_of(url, cache=str(tmp_path / "cache"))
    with pytest.raises(RootMissing):
        open_store(root, make=False)
    open_store(root)
    assert not is_taken(root / "job")


def segment(folder: Path, rows: int) -> Manifest:
    """Write a segment of so many keys, with values that cannot be packed, and return the state it is."""
    random = np.random.default_rng(1)
    hashes = np.sort(random.choice(2**40, rows, replace=False)).astype(np.int64)
    table = pa.table(
        {
            "_group": pa.array(np.zeros(rows, np.int64)),
            "_hash": hashes,
            "k": hashes,
            "v": random.bytes(64 * rows) and pa.array([random.bytes(64) for _ in range(rows)]),
        }
    )
    ref = write_segment(folder, "000000000000-1-0-abc", {"state": table}, step=STEP, partition=0, batch=0)
    return Manifest(step=STEP, partition=0, keys=("k",)).append(ref)


def found(folder: Path, manifest: Manifest, key: int) -> bool:
    """Look one key up."""
    keys = np.array([key], np.int64)
    hits, _ = StateReader(folder, manifest).lookup("state", keys, pa.table({"k": keys}))
    return bool(hits[0])


def test_a_task_that_misses_reads_only_what_its_keys_are_in(here: Path, there: Path) -> None:
    """Of a long segment the ends, which say what is where, and the blocks that are touched; each once."""
    folder = here / STEP / "0"
    manifest = segment(folder, 400_000)
    key = int(StateReader(folder, manifest).scan("state")[0]["k"][7].as_py())
    forget()
    far = there / STEP / "0"
    before = fetched()
    assert found(far, manifest, key)
    took = fetched() - before
    assert 0 < took < manifest.size * 0.75
    assert found(far, manifest, key)
    forget()  # another process of that machine
    assert found(far, manifest, key)
    assert fetched() - before == took
    name = next(iter(manifest.sizes))
    assert have_file(far / name).read_bytes() == (folder / name).read_bytes()  # a part is not taken for the whole


def test_a_copy_that_is_damaged_is_brought_anew_and_damage_on_hdfs_is_told(
    here: Path, hdfs: HdfsServer, url: str
) -> None:
    """A disk of this machine loses nothing; what is wrong on HDFS is named."""
    folder = here / STEP / "0"
    manifest = segment(folder, 1_000)
    key = int(StateReader(folder, manifest).scan("state")[0]["k"][7].as_py())
    name = next(iter(manifest.sizes))
    whole = (folder / name).read_bytes()
    for harm in (whole[:100] + bytes(50) + whole[150:], whole[: len(whole) // 2]):
        forget()
        (folder / name).write_bytes(harm)
        assert found(folder, manifest, key)
    forget()
    place = "/" + url.split("/", 3)[3] + f"/{STEP}/0/{name}"
    hdfs.client().write(place, whole[:100] + bytes(50) + whole[150:], overwrite=True)
    (folder / name).unlink()
    with pytest.raises(CheckpointCorrupt) as caught:
        found(folder, manifest, key)
    assert caught.value.where == f"{url}/{STEP}/0/{name}"
    forget()


def test_fsck_does_not_believe_a_copy(here: Path) -> None:
    """It reads through a folder that begins empty, and leaves nothing."""
    put(here / "state", "1-a", b"some state")
    with without_cache(here) as fresh:
        assert (shown(fresh), fresh == here) == (shown(here), False)
        before = fetched()
        assert read_file(fresh / "state" / "1-a", bytes) == b"some state"
        assert fetched() - before == len(b"some state")
    assert not fresh.exists()


def test_copies_that_nobody_needs_go_and_may_go_at_any_time(here: Path) -> None:
    """Readers and writers go on while another process lets go of what they have."""
    folder = here / STEP / "0"
    manifest = segment(folder, 1_000)
    name = next(iter(manifest.sizes))
    stop = threading.Event()

    def letting_go() -> None:
        while not stop.is_set():
            let_go(folder, ["000000000009-x"])

    beside = threading.Thread(target=letting_go)
    beside.start()
    try:
        for n in range(100):
            assert map_file(folder / name, manifest.sizes[name]).data[:6] == b"ARROW1"
            put(folder, f"00000000000{n % 8}-{n}-b", b"x" * 1_000)
    finally:
        stop.set()
        beside.join()
    assert size_of(folder / "000000000003-99-b") == 1_000


def test_a_full_disk_of_this_machine_is_named_and_leaves_nothing(here: Path, there: Path, monkeypatch) -> None:
    """It is no fault of the user's function, and no signal that kills the worker."""
    put(here / "state", "1-a", b"x" * 1_000)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StorageFull):
        read_file(there / "state" / "1-a", bytes)
    assert not list((there / "state").iterdir())


def test_a_cache_of_somebody_else_is_not_used(tmp_path: Path, url: str) -> None:
    """He could put in a state of his own (F65)."""
    cache = tmp_path / "cache"
    machine(cache, url)
    hdfs_cache._store.cache_clear()
    cache.chmod(0o777)
    with pytest.raises(RootUnsafe):
        size_of(root_of(url, cache=str(cache)) / "x")


def test_what_nobody_has_used_for_long_is_swept_once_a_day(tmp_path: Path, url: str) -> None:
    """Not what a supervisor keeps there of its drivers."""
    root = machine(tmp_path / "cache", url)
    (root / "job").mkdir()
    (root / "_logs").mkdir()
    old = {root / "job" / "1-a": 8 * 86_400, root / "job" / ".tmp-1": 2 * 86_400, root / "_logs" / "1.log": 90 * 86_400}
    young = {root / "job" / "2-b": 86_400, root / "job" / ".tmp-2": 7_200}
    for path, age in (old | young).items():
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    hdfs_cache._store.cache_clear()
    size_of(root / "x")
    assert all(path.exists() for path in old)  # it was done when the root was opened
    os.utime(root / ".swept", (0, 0))
    hdfs_cache._store.cache_clear()
    size_of(root / "x")
    assert [path for path in old | young if not path.exists()] == list(old)[:2]


def test_a_folder_is_moved_whole_or_not_at_all(here: Path, there: Path) -> None:
    """What has the name keeps it."""
    put(here / "_importing" / "job" / "state", "1-a", b"x")
    put(here / "taken" / "state", "1-b", b"y")
    with pytest.raises(AlreadyExists):
        move_folder(here / "_importing" / "job", here / "taken")
    move_folder(here / "_importing" / "job", here / "job")
    assert read_file(there / "job" / "state" / "1-a", bytes) == b"x"
    assert not is_taken(there / "_importing" / "job")
    remove_folder(here / "taken")
    assert files_below(there / "taken") == []


# --- tables of data checkpoints -------------------------------------------------------------------
def write(table: Path, name: str, *more: str) -> None:
    """Write an entry of a log, and what else comes with it, as delta-rs does."""
    with working_copy(table) as copy:
        (copy / "_delta_log").mkdir(exist_ok=True)
        (copy / f"{name}.parquet").write_bytes(name.encode())
        (copy / "_delta_log" / "00000000000000000000.json").write_bytes(name.encode())
        for other in more:
            (copy / "_delta_log" / other).write_bytes(name.encode())


def test_of_two_drivers_one_writes_a_version_of_a_table(here: Path, there: Path) -> None:
    """Nothing of the other is in the log: neither its entry nor its sum of the log."""

    def second() -> None:
        with working_copy(there / "t") as copy:
            write(here / "t", "mine")
            (copy / "_delta_log").mkdir()
            for name in ("00000000000000000000.json", "00000000000000000000.checkpoint.parquet", "_last_checkpoint"):
                (copy / "_delta_log" / name).write_bytes(b"theirs")

    with pytest.raises(AlreadyExists):
        second()
    log = {path.name: read_whole(path) for path in files_below(there / "t" / "_delta_log")}
    assert log == {"00000000000000000000.json": b"mine"}


def test_a_copy_of_a_log_is_made_anew_each_time(here: Path, there: Path) -> None:
    """What another driver has written since is in it, and what was deleted is not."""
    write(here / "t", "first")
    with working_copy(there / "t") as copy:
        assert (copy / "_delta_log" / "00000000000000000000.json").read_bytes() == b"first"
    remove_folder(here / "t")
    write(here / "t", "second")
    with working_copy(there / "t") as copy:
        assert (copy / "_delta_log" / "00000000000000000000.json").read_bytes() == b"second"
    assert not (there / "t").exists()


def test_a_file_whose_name_comes_again_is_read_from_hdfs(here: Path, there: Path) -> None:
    """As the record of a version is when a job was deleted and begun anew."""
    write_whole(here / "r" / "0.json", b"first")
    assert read_whole(there / "r" / "0.json") == b"first"
    remove_folder(here / "r")
    write_whole(there / "r" / "0.json", b"second")
    assert read_whole(here / "r" / "0.json") == b"second"
    with pytest.raises(AlreadyExists):
        write_whole(here / "r" / "0.json", b"third")


def test_a_plain_folder_is_a_working_copy_of_itself(tmp_path: Path) -> None:
    """Nothing is copied on local disk."""
    LocalStore(tmp_path / "root")
    with working_copy(tmp_path / "root" / "t") as copy:
        assert copy == tmp_path / "root" / "t"
