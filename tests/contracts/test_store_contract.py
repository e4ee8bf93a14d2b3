"""What every checkpoint store must do; subclass `StoreContract` for a store of your own."""

from __future__ import annotations

import multiprocessing
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faulty_store import FaultyStore

from penstock.checkpoint.storage.hdfs import HdfsStore
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.store import CheckpointStore, prove_exclusive
from penstock.errors import AlreadyExists, CheckpointCorrupt, NotExclusive, NotFound, PathEscapes
from tools.hdfs_server import HdfsServer

BAD_PATHS = {
    "empty": "",
    "absolute": "/log/0",
    "parent": "log/../metadata.json",
    "only parent": "..",
    "here": "./log",
    "double slash": "log//0",
    "trailing slash": "log/",
    "drive": "c:/log",
    "colon": "log/a:b",
    "hidden": "log/.tmp-0",
    "back slash": "log\\0",
    "null": "log/\0",
    "newline": "log/0\n",
    "space": "log/a b",
    "upper case": "log/A",
    "not ascii": "log/\u00e9",
    "two dots inside": "log/a..b",
    "ends with a dot": "log/a.",
    "a long element": "log/" + "a" * 201,
    "a long path": "/".join(["a" * 100] * 20),
}


class StoreContract:
    """The suite. A subclass gives `make_store`, which returns an empty store each time.

    `rounds` is how many races are run; a store of servers may take fewer.
    """

    rounds = 50

    def make_store(self, folder: Path) -> CheckpointStore:
        """Return a new store; `folder` is an empty folder that it may use."""
        raise AssertionError("a contract suite needs a store")

    @pytest.fixture
    def store(self, tmp_path: Path) -> CheckpointStore:
        return self.make_store(tmp_path)

    def test_what_is_created_is_read_back(self, store: CheckpointStore) -> None:
        """Any bytes come back as they were, none included."""
        for name, data in {"empty": b"", "text": b"{}\n", "binary": bytes(range(256)) * 300}.items():
            store.create(f"log/{name}", data)
            assert store.read(f"log/{name}") == data

    def test_a_second_create_is_refused_and_changes_nothing(self, store: CheckpointStore) -> None:
        """The first keeps the name, also against equal bytes."""
        store.create("log/0", b"first")
        for data in (b"second", b"first"):
            with pytest.raises(AlreadyExists) as caught:
                store.create("log/0", data)
            assert isinstance(caught.value, FileExistsError)
        assert store.read("log/0") == b"first"

    def test_existence_follows_create_and_delete(self, store: CheckpointStore) -> None:
        """Existence is told at once."""
        assert not store.exists("state/hourly/0")
        store.create("state/hourly/0", b"x")
        assert store.exists("state/hourly/0")
        store.delete("state/hourly/0")
        assert not store.exists("state/hourly/0")

    def test_a_folder_takes_a_name_and_is_no_file(self, store: CheckpointStore) -> None:
        """In a slot of the log it is damage. Were the slot free to `exists`, drivers would try it for ever."""
        store.create("state/hourly/0", b"x")
        assert store.exists("state/hourly")
        with pytest.raises(AlreadyExists):
            store.create("state/hourly", b"y")
        with pytest.raises(CheckpointCorrupt):
            store.read("state/hourly")

    def test_reading_what_is_not_there_names_it(self, store: CheckpointStore) -> None:
        """A missing file is `NotFound`, also in a folder that is missing."""
        store.create("log/0", b"x")
        for path in ("log/1", "nothing/here/0"):
            with pytest.raises(NotFound, match=path) as caught:
                store.read(path)
            assert isinstance(caught.value, FileNotFoundError)

    def test_deleting_twice_is_no_error(self, store: CheckpointStore) -> None:
        """Delete is idempotent, and a deleted name can be created again."""
        store.create("log/0", b"old")
        store.delete("log/0")
        store.delete("log/0")
        store.delete("no/such/folder/0")
        store.create("log/0", b"new")
        assert store.read("log/0") == b"new"

    def test_a_quiet_store_lists_its_files(self, store: CheckpointStore) -> None:
        """Files below the folder, of any depth, sorted, with paths from the root."""
        paths = ["log/000000000001", "log/000000000000", "state/hourly/0/a.arrow", "state/hourly/1/a.arrow", "logs/0"]
        for path in paths:
            store.create(path, b"x")
        assert store.list("log") == ["log/000000000000", "log/000000000001"]
        assert store.list("state/hourly") == ["state/hourly/0/a.arrow", "state/hourly/1/a.arrow"]
        assert store.list("") == sorted(paths)
        assert store.list("nothing") == []

    @pytest.mark.fault("F61")
    @pytest.mark.parametrize("path", BAD_PATHS.values(), ids=BAD_PATHS.keys())
    def test_paths_that_could_leave_the_root_are_refused(self, store: CheckpointStore, path: str) -> None:
        """Every method refuses them, before anything is touched."""
        calls = [store.read, store.exists, store.delete, lambda path: store.create(path, b"x")]
        if path:
            calls.append(store.list)
        for call in calls:
            with pytest.raises(PathEscapes):
                call(path)
        assert store.list("") == []

    def test_names_that_penstock_uses_are_allowed(self, store: CheckpointStore) -> None:
        """Slots, control records, segments and staged files have allowed names."""
        for path in (
            "metadata.json",
            "_control/status/flights/000000000001",
            "state/hourly/7/000000000012-0f3a-3.arrow",
            "staged/hourly_delays/part-00003-0f3a1c.c000.snappy.parquet",
        ):
            store.create(path, b"x")
            assert store.exists(path)

    @pytest.mark.fault("F32")
    def test_the_probe_passes_and_leaves_nothing(self, store: CheckpointStore) -> None:
        """A store that keeps the contract proves it."""
        prove_exclusive(store)
        assert store.list("") == []

    @pytest.mark.fault("F07", "F32")
    def test_of_racing_threads_one_wins(self, store: CheckpointStore) -> None:
        """In each round one of four threads wins, and its bytes are what everyone reads."""
        for round_number in range(self.rounds):
            path, start = f"race/{round_number}", threading.Barrier(4)

            def contend(racer: int, path: str = path, start: threading.Barrier = start) -> bytes | None:
                data = bytes([racer]) * 2_000
                start.wait()
                return data if wins(store, path, data) else None

            with ThreadPoolExecutor(4) as pool:
                winners = [data for data in pool.map(contend, range(4)) if data]
            assert [store.read(path)] == winners

    def test_the_janitor_finds_nothing_behind_whole_writes(self, store: CheckpointStore) -> None:
        """F15: what is there is no temporary file, however long ago it was written."""
        store.create("a/x", b"1")
        assert store.janitor(0, now=2e10) == 0
        assert store.list("") == ["a/x"]


class SharedStoreContract(StoreContract):
    """The suite for stores that several processes may open; `open_again` must be picklable."""

    @staticmethod
    def open_again(root: str) -> CheckpointStore:
        """Open the store of that root, in another process."""
        raise AssertionError(f"a contract suite needs a store, at {root}")

    @pytest.mark.slow
    @pytest.mark.fault("F07", "F32")
    def test_of_racing_processes_one_wins(self, store: CheckpointStore) -> None:
        """In each round one of three processes wins, and none is told a lie."""
        spawn = multiprocessing.get_context("spawn")  # fork would copy the threads of a Spark session
        barrier, answers = spawn.Barrier(3), spawn.Queue()
        racers = [
            spawn.Process(target=race, args=(type(self).open_again, store.root, racer, self.rounds, barrier, answers))
            for racer in range(3)
        ]
        for racer in racers:
            racer.start()
        won = dict(answers.get(timeout=60) for _ in racers)
        for racer in racers:
            racer.join()
        answers.close()
        claims = [(path, racer) for racer, paths in won.items() for path in paths]
        held = [(path, store.read(path)[0]) for path in store.list("race")]
        assert sorted(claims) == held
        assert len(held) == self.rounds


def wins(store: CheckpointStore, path: str, data: bytes) -> bool:
    """Try to create; False when another was first."""
    try:
        store.create(path, data)
    except AlreadyExists:
        return False
    return True


def race(open_again: Any, root: str, racer: int, rounds: int, barrier: Any, answers: Any) -> None:
    """Run one process of the race."""
    store, won = open_again(root), []
    for number in range(rounds):
        barrier.wait()
        if wins(store, f"race/{number}", bytes([racer]) * 2_000):
            won.append(f"race/{number}")
    answers.put((racer, won))


class TestMemoryStore(StoreContract):
    def make_store(self, folder: Path) -> MemoryStore:
        return MemoryStore()


class TestLocalStore(SharedStoreContract):
    open_again = LocalStore

    def make_store(self, folder: Path) -> LocalStore:
        return LocalStore(folder / "checkpoint")


@pytest.mark.sample(5, of="the contract on HDFS")
@pytest.mark.integration
class TestHdfsStore(SharedStoreContract):
    open_again = HdfsStore
    rounds = 20

    @pytest.fixture
    def store(self, hdfs: HdfsServer) -> HdfsStore:
        return HdfsStore(hdfs.url(secrets.token_hex(8)))


class TestFaultyStoreWithoutFaults(StoreContract):
    def make_store(self, folder: Path) -> FaultyStore:
        return FaultyStore(MemoryStore())


class Replacing(MemoryStore):
    """A store like one whose gateway drops the precondition."""

    def create(self, path: str, data: bytes) -> None:
        self._files[path] = data


class Refusing(Replacing):
    """A store that refuses the second create, but only after it has replaced the bytes."""

    def create(self, path: str, data: bytes) -> None:
        taken = self.exists(path)
        super().create(path, data)
        if taken:
            raise AlreadyExists("too late", where=path)


class Looking(Replacing):
    """A store that looks before it writes, as on NFS: right in turn, wrong at once."""

    def __init__(self) -> None:
        super().__init__()
        self._both_looked = threading.Barrier(2)

    def create(self, path: str, data: bytes) -> None:
        if self.exists(path):
            raise AlreadyExists("taken", where=path)
        if threading.current_thread() is not threading.main_thread():
            self._both_looked.wait()
        super().create(path, data)


@pytest.mark.fault("F32")
@pytest.mark.parametrize("broken", [Replacing, Refusing, Looking])
def test_a_store_without_exclusive_create_is_refused(broken: type[MemoryStore]) -> None:
    """The probe finds each of the ways in which stores are known to break their word, and cleans up."""
    store = broken()
    with pytest.raises(NotExclusive):
        prove_exclusive(store)
    assert store.list("") == []
