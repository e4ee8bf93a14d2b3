"""Folders of a checkpoint on a real HDFS, and the copies of their files on machines (DESIGN 6, FAULTS 4)."""

from __future__ import annotations

import os
import pickle
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from state_samples import write_segment

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.hdfs_folder import HdfsFolder
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import folder_at
from penstock.errors import (
    AlreadyExists,
    CheckpointCorrupt,
    RootMissing,
    SegmentExists,
    StateMissing,
    StorageFull,
)
from penstock.runtime.snapshots.delta_table import working_copy
from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.section_reader import forget
from tools.hdfs_server import HdfsServer

pytestmark = [pytest.mark.integration, pytest.mark.sample(1, of="copies of files on HDFS")]

STEP = "sums"


@pytest.fixture
def url(hdfs: HdfsServer) -> str:
    """Return a root on HDFS."""
    return hdfs.url(secrets.token_hex(8))


@pytest.fixture
def here(tmp_path: Path, url: str) -> HdfsFolder:
    """Return the folder that stands for it on one machine."""
    return machine(tmp_path / "here", url)


@pytest.fixture
def there(tmp_path: Path, url: str, here: HdfsFolder) -> HdfsFolder:
    """Return the folder that stands for it on another machine."""
    return machine(tmp_path / "there", url)


def machine(cache: Path, url: str) -> HdfsFolder:
    """Return what stands for a root with this cache; the root is made."""
    root = HdfsFolder(url, str(cache / "copies"))
    root.store()
    return root


def put(folder: CheckpointFolder, name: str, data: bytes) -> CheckpointFolder:
    """Write a file as state is written."""
    folder.make()
    with folder.new_file(name) as file:
        file.write(data)
        file.publish()
    folder.sync()
    return folder / name


def test_a_folder_is_sent_as_it_is_and_shown_as_its_url(here: HdfsFolder, url: str) -> None:
    """Its place on a machine has nothing of the URL's punctuation, and says nothing that is needed."""
    file = here / "job" / "state" / "x"
    assert str(file) == f"{url}/job/state/x"
    assert pickle.loads(pickle.dumps(file)) == file == folder_at(file.address)
    assert (file.name, file.parent, str(file.relative_to(here))) == ("x", here / "job" / "state", "job/state/x")
    assert file.here.is_relative_to(here.here)


def test_a_child_of_a_fork_has_connections_of_its_own(here: HdfsFolder) -> None:
    """What its parent has under way is not the child's to wait for."""
    put(here / "state", "1-a", b"some state")
    mine = here.connection
    child = os.fork()
    if child == 0:
        good = here.connection is not mine and (here / "state" / "1-a").read() == b"some state"
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert here.connection is mine


def test_several_tasks_that_bring_one_file_bring_it_whole(here: HdfsFolder, there: HdfsFolder) -> None:
    """Each reads it, whoever was first."""
    data = os.urandom(3 * 2**20)
    put(here / "state", "1-a", data)
    with ThreadPoolExecutor(6) as pool:
        maps = list(pool.map(lambda _: bytes(memoryview((there / "state" / "1-a").map(len(data)).data)), range(12)))
    assert set(maps) == {data}
    assert [path.name for path in (there / "state").here.iterdir()] == ["1-a"]


def test_what_is_written_on_one_machine_is_read_on_another(here: HdfsFolder, there: HdfsFolder) -> None:
    """Once it is fetched no more is fetched."""
    put(here / "job" / "state", "1-a", b"some state")
    before = there.fetched
    for _ in range(2):
        assert (there / "job" / "state" / "1-a").read_checked(bytes) == b"some state"
    assert there.fetched - before == len(b"some state")
    assert (there / "job").files() == [there / "job" / "state" / "1-a"]
    assert there.folders() == ["job"]
    with pytest.raises(StateMissing, match="no such state file") as caught:
        (there / "job" / "state" / "2-b").read_checked(bytes)
    assert caught.value.where == str(there / "job" / "state" / "2-b")


def test_a_name_that_is_taken_is_refused_and_the_copy_is_not_believed(here: HdfsFolder, there: HdfsFolder) -> None:
    """HDFS decides: what failed to get there is not here either."""
    put(here / "state", "1-a", b"first")
    with pytest.raises(SegmentExists):
        put(there / "state", "1-a", b"second")
    assert (there / "state" / "1-a").read_checked(bytes) == b"first"


def test_a_root_that_is_not_there_is_not_made_by_who_looks(tmp_path: Path, url: str) -> None:
    """As on local disk."""
    root = HdfsFolder(url, str(tmp_path / "cache" / "copies"))
    with pytest.raises(RootMissing):
        root.store(make=False)
    root.store()
    assert not (root / "job").is_taken()


def segment(folder: CheckpointFolder, rows: int) -> Manifest:
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


def has_key(folder: CheckpointFolder, manifest: Manifest, key: int) -> bool:
    """Look one key up."""
    keys = np.array([key], np.int64)
    hits, _ = StateReader(folder, manifest).lookup("state", keys, pa.table({"k": keys}))
    return bool(hits[0])


def test_a_task_that_misses_reads_only_what_its_keys_are_in(here: HdfsFolder, there: HdfsFolder) -> None:
    """Of a long segment the ends, which say what is where, and the blocks that are touched; each once."""
    folder = here / STEP / "0"
    manifest = segment(folder, 400_000)
    key = int(StateReader(folder, manifest).scan("state")[0]["k"][7].as_py())
    forget()
    far = there / STEP / "0"
    before = there.fetched
    assert has_key(far, manifest, key)
    took = there.fetched - before
    assert 0 < took < manifest.size * 0.75
    assert has_key(far, manifest, key)
    forget()  # another process of that machine
    assert has_key(far, manifest, key)
    assert there.fetched - before == took
    name = next(iter(manifest.sizes))
    assert (far / name).fetch().read_bytes() == (folder / name).here.read_bytes()  # a part is not taken for the whole


def test_a_copy_that_is_damaged_is_brought_anew_and_damage_on_hdfs_is_told(
    here: HdfsFolder, hdfs: HdfsServer, url: str
) -> None:
    """A disk of this machine loses nothing; what is wrong on HDFS is named."""
    folder = here / STEP / "0"
    manifest = segment(folder, 1_000)
    key = int(StateReader(folder, manifest).scan("state")[0]["k"][7].as_py())
    name = next(iter(manifest.sizes))
    whole = (folder / name).here.read_bytes()
    for harm in (whole[:100] + bytes(50) + whole[150:], whole[: len(whole) // 2]):
        forget()
        (folder / name).here.write_bytes(harm)
        assert has_key(folder, manifest, key)
    forget()
    place = "/" + url.split("/", 3)[3] + f"/{STEP}/0/{name}"
    hdfs.client().write(place, whole[:100] + bytes(50) + whole[150:], overwrite=True)
    (folder / name).here.unlink()
    with pytest.raises(CheckpointCorrupt) as caught:
        has_key(folder, manifest, key)
    assert caught.value.where == f"{url}/{STEP}/0/{name}"
    forget()


def test_fsck_does_not_believe_a_copy(here: HdfsFolder) -> None:
    """It reads through a folder that begins empty, and leaves nothing."""
    put(here / "state", "1-a", b"some state")
    with here.uncached() as fresh:
        assert (str(fresh), fresh == here) == (str(here), False)
        assert (fresh / "state" / "1-a").read_checked(bytes) == b"some state"
        assert fresh.fetched == len(b"some state")
    assert not fresh.here.exists()


def test_copies_that_nobody_needs_go_and_may_go_at_any_time(here: HdfsFolder) -> None:
    """Readers and writers go on while another process lets go of what they have."""
    folder = here / STEP / "0"
    manifest = segment(folder, 1_000)
    name = next(iter(manifest.sizes))
    stop = threading.Event()

    def letting_go() -> None:
        while not stop.is_set():
            folder.let_go(["000000000009-x"])

    beside = threading.Thread(target=letting_go)
    beside.start()
    try:
        for n in range(100):
            assert (folder / name).map(manifest.sizes[name]).data[:6] == b"ARROW1"
            put(folder, f"00000000000{n % 8}-{n}-b", b"x" * 1_000)
    finally:
        stop.set()
        beside.join()
    assert (folder / "000000000003-99-b").size() == 1_000


def test_a_full_disk_of_this_machine_is_named_and_leaves_nothing(
    here: HdfsFolder, there: HdfsFolder, monkeypatch
) -> None:
    """It is no fault of the user's function, and no signal that kills the worker."""
    put(here / "state", "1-a", b"x" * 1_000)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StorageFull):
        (there / "state" / "1-a").read_checked(bytes)
    assert not list((there / "state").here.iterdir())


def test_a_folder_is_moved_whole_or_not_at_all(here: HdfsFolder, there: HdfsFolder) -> None:
    """What has the name keeps it."""
    put(here / "_importing" / "job" / "state", "1-a", b"x")
    put(here / "taken" / "state", "1-b", b"y")
    with pytest.raises(AlreadyExists):
        (here / "_importing" / "job").move_to(here / "taken")
    (here / "_importing" / "job").move_to(here / "job")
    assert (there / "job" / "state" / "1-a").read_checked(bytes) == b"x"
    assert not (there / "_importing" / "job").is_taken()
    (here / "taken").remove_all()
    assert (there / "taken").files() == []


# --- tables of data checkpoints -------------------------------------------------------------------
def write(table: HdfsFolder, name: str, *more: str) -> None:
    """Write an entry of a log, and what else comes with it, as delta-rs does."""
    with working_copy(table) as copy:
        (copy / "_delta_log").mkdir(exist_ok=True)
        (copy / f"{name}.parquet").write_bytes(name.encode())
        (copy / "_delta_log" / "00000000000000000000.json").write_bytes(name.encode())
        for other in more:
            (copy / "_delta_log" / other).write_bytes(name.encode())


def test_of_two_drivers_one_writes_a_version_of_a_table(here: HdfsFolder, there: HdfsFolder) -> None:
    """Nothing of the other is in the log: neither its entry nor its sum of the log."""

    def second() -> None:
        with working_copy(there / "t") as copy:
            write(here / "t", "mine")
            (copy / "_delta_log").mkdir()
            for name in ("00000000000000000000.json", "00000000000000000000.checkpoint.parquet", "_last_checkpoint"):
                (copy / "_delta_log" / name).write_bytes(b"theirs")

    with pytest.raises(AlreadyExists):
        second()
    log = {file.name: file.read() for file in (there / "t" / "_delta_log").files()}
    assert log == {"00000000000000000000.json": b"mine"}


def test_a_copy_of_a_log_is_made_anew_each_time(here: HdfsFolder, there: HdfsFolder) -> None:
    """What another driver has written since is in it, and what was deleted is not."""
    write(here / "t", "first")
    with working_copy(there / "t") as copy:
        assert (copy / "_delta_log" / "00000000000000000000.json").read_bytes() == b"first"
    (here / "t").remove_all()
    write(here / "t", "second")
    with working_copy(there / "t") as copy:
        assert (copy / "_delta_log" / "00000000000000000000.json").read_bytes() == b"second"
    assert not (there / "t").here.exists()


def test_a_file_whose_name_comes_again_is_read_from_hdfs(here: HdfsFolder, there: HdfsFolder) -> None:
    """As the record of a version is when a job was deleted and begun anew."""
    (here / "r" / "0.json").create(b"first")
    assert (there / "r" / "0.json").read() == b"first"
    (here / "r").remove_all()
    (there / "r" / "0.json").create(b"second")
    assert (here / "r" / "0.json").read() == b"second"
    with pytest.raises(AlreadyExists):
        (here / "r" / "0.json").create(b"third")


def test_a_plain_folder_is_a_working_copy_of_itself(tmp_path: LocalFolder) -> None:
    """Nothing is copied on local disk."""
    LocalStore(tmp_path / "root")
    with working_copy(tmp_path / "root" / "t") as copy:
        assert copy == tmp_path / "root" / "t"
