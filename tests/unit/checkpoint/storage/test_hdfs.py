"""The store on a real HDFS: answers that get lost, servers that die, safe mode, quota, rights, left-overs."""

from __future__ import annotations

import secrets
import signal
import socketserver
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests
from checkpoint_samples import own, purge, run_batch
from hdfs_clients import PATIENT, Send, brief_store, lost, said_done, spoilt_store

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.hdfs import HdfsStore
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.store import create_or_read
from penstock.errors import (
    AlreadyExists,
    CheckpointCorrupt,
    CommitUnknown,
    NotFound,
    PathEscapes,
    RootUnsafe,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)
from tools.hdfs_server import USER, HdfsServer
from tools.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.sample(4, of="files on HDFS")]

BATCHES = 12
FAR = 2e10
"""A wall clock at which all is old."""


@pytest.fixture
def root(hdfs: HdfsServer) -> str:
    return hdfs.url(secrets.token_hex(8))


@pytest.fixture
def store(root: str) -> HdfsStore:
    return HdfsStore(root, patience=PATIENT)


def folder_of(store: HdfsStore) -> str:
    """Return the path of the root on HDFS."""
    return "/checkpoints/" + store.root.rsplit("/", 1)[-1]


def files(hdfs: HdfsServer, store: HdfsStore) -> list[str]:
    """Return every file below the root, left-overs included."""
    top = folder_of(store)
    paths = [f"{folder}/{name}" for folder, _, names in hdfs.client().walk(top) for name in names]
    return sorted(path.removeprefix(f"{top}/") for path in paths)


# --- answers that get lost ---------------------------------------------------------------------
@pytest.mark.fault("F23")
@pytest.mark.parametrize("done", [True, False], ids=["after it was done", "before"])
@pytest.mark.parametrize("asked", ["MKDIRS", "CREATE", "UPLOAD", "GETFILESTATUS", "RENAME"])
def test_one_lost_answer_fails_no_create(hdfs: HdfsServer, store: HdfsStore, asked: str, *, done: bool) -> None:
    """Whichever it is: the file stands there once, and nothing is left beside it."""
    spoil, armed = lost(asked, done=done), False
    spoilt = spoilt_store(store.root, lambda what, send, data: spoil(what, send, data) if armed else send())
    if asked != "MKDIRS":  # only the first file of a folder makes it
        store.create("log/1", b"")
    armed = True
    spoilt.create("log/0", b"mine")
    assert store.read("log/0") == b"mine"
    assert files(hdfs, store) == (["log/0"] if asked == "MKDIRS" else ["log/0", "log/1"])


@pytest.mark.fault("F23")
def test_without_any_answer_the_outcome_is_open_and_can_be_settled(store: HdfsStore) -> None:
    """Neither a failure nor a taken name is claimed, and whoever tries again finds its own bytes."""
    spoilt = spoilt_store(store.root, lost("RENAME", done=True, times=10_000), brief=True)
    with pytest.raises(StorageUnavailable, match="log/0"):
        spoilt.create("log/0", b"mine")
    assert create_or_read(store, "log/0", b"mine") == b"mine"


@pytest.mark.fault("F23")
@pytest.mark.parametrize("can_delete", [True, False], ids=["", "and nothing can be deleted"])
def test_another_who_was_first_is_told_from_oneself(hdfs: HdfsServer, store: HdfsStore, *, can_delete: bool) -> None:
    """A rename is lost, and meanwhile a rival takes the name, with equal bytes: ours was not published.

    The lost one may still be on its way: that it never will be is said only when what it renames is gone.
    """

    def spoil(what: str, send: Send, _: bytes) -> requests.Response:
        if what == "RENAME" and not store.exists("log/0"):
            store.create("log/0", b"equal")
            raise requests.ReadTimeout("spoilt")
        if what == "DELETE" and not can_delete:
            raise requests.ReadTimeout("spoilt")
        return send()

    with pytest.raises(AlreadyExists if can_delete else StorageUnavailable):
        spoilt_store(store.root, spoil, brief=not can_delete).create("log/0", b"equal")
    assert len(files(hdfs, store)) == (1 if can_delete else 2)


@pytest.mark.fault("F07", "F23")
def test_of_racing_threads_whose_answers_get_lost_one_wins(store: HdfsStore) -> None:
    """Each round: four threads, every other answer of a rename lost; one claims the name, and its bytes stand there."""
    stores = [spoilt_store(store.root, lost("RENAME", done=bool(at % 2), times=5)) for at in range(4)]
    for number in range(8):
        path, start = f"race/{number}", threading.Barrier(4)

        def contend(at: int, path: str = path, start: threading.Barrier = start) -> bytes | None:
            start.wait()
            try:
                stores[at].create(path, bytes([at]) * 2_000)
            except AlreadyExists:
                return None
            return bytes([at]) * 2_000

        with ThreadPoolExecutor(4) as pool:
            winners = [data for data in pool.map(contend, range(4)) if data]
        assert winners == [store.read(path)]


@pytest.mark.fault("F24")
def test_a_rename_that_was_answered_well_and_not_done_is_done_again(hdfs: HdfsServer, store: HdfsStore) -> None:
    """Or, where HDFS goes on like that, the outcome is unknown and nothing is cleaned up."""
    spoilt_store(store.root, said_done("RENAME")).create("log/0", b"x")
    assert store.read("log/0") == b"x"
    with pytest.raises(CommitUnknown, match="log/1"):
        spoilt_store(store.root, said_done("RENAME", times=10_000), brief=True).create("log/1", b"x")
    assert not store.exists("log/1")
    assert len(files(hdfs, store)) == 2


@pytest.mark.fault("F13")
def test_a_torn_upload_is_never_published(hdfs: HdfsServer, store: HdfsStore) -> None:
    """A DataNode that has half of the bytes and says it has all of them is found out before the rename."""
    torn = iter([True])
    store.create("log/1", b"")

    def spoil(what: str, send: Send, data: bytes) -> requests.Response:
        half = {"data": data[: len(data) // 2]} if what == "UPLOAD" and next(torn, False) else {}
        return send(**half)

    spoilt_store(store.root, spoil).create("log/0", b"0123456789")
    assert store.read("log/0") == b"0123456789"
    assert files(hdfs, store) == ["log/0", "log/1"]


# --- left-overs --------------------------------------------------------------------------------
@pytest.mark.fault("F15")
def test_left_over_temporary_files_are_never_seen_and_go_after_a_grace(hdfs: HdfsServer, store: HdfsStore) -> None:
    """Only files that a store itself left, in any folder, older than the grace."""
    store.create("log/0", b"x")
    client = hdfs.client()
    for name, age in ((f".tmp-{'a' * 32}", 1_000), (f".tmp-{'b' * 32}", 4_000), (".tmp-mine", 1_000)):
        client.write(f"{folder_of(store)}/log/{name}", b"half")
        client.set_times(f"{folder_of(store)}/log/{name}", modification_time=age * 1_000)
    assert store.list("") == ["log/0"]
    assert store.janitor(600, now=4_500.0) == 1
    assert files(hdfs, store) == [f"log/.tmp-{'b' * 32}", "log/.tmp-mine", "log/0"]


@pytest.mark.fault("F15")
@pytest.mark.parametrize("in_doubt", [False, True], ids=["certain", "in doubt"])
def test_a_writer_whose_temporary_file_was_taken_away_lies_to_nobody(store: HdfsStore, *, in_doubt: bool) -> None:
    """It writes another, unless the first may have been published and removed since: then it does not know."""
    swept = iter([True])

    def spoil(what: str, send: Send, _: bytes) -> requests.Response:
        if what == "RENAME" and next(swept, False):
            assert store.janitor(0, now=FAR) == 1
            if in_doubt:
                raise requests.ReadTimeout("spoilt")
        return send()

    store.create("log/0", b"x")
    spoilt = spoilt_store(store.root, spoil, brief=in_doubt)
    if in_doubt:
        with pytest.raises(CommitUnknown):
            spoilt.create("log/1", b"y")
        assert store.list("") == ["log/0"]
    else:
        spoilt.create("log/1", b"y")
        assert store.read("log/1") == b"y"


# --- what stands in the way --------------------------------------------------------------------
def test_what_is_not_a_plain_file_is_not_read(store: HdfsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a giant are damage; a folder with files is not deleted, and no file takes its name or goes below."""
    store.create("log/0", b"0123456789")
    assert store.exists("log")
    with pytest.raises(CheckpointCorrupt, match="not a plain file"):
        store.read("log")
    with pytest.raises(PathEscapes):
        store.delete("log")
    with pytest.raises(AlreadyExists):
        store.create("log", b"x")
    with pytest.raises(RootUnsafe):
        store.create("log/0/1", b"x")
    monkeypatch.setattr("penstock.checkpoint.storage.hdfs.READ_CAP", 9)
    with pytest.raises(CheckpointCorrupt, match="10 bytes"):
        store.read("log/0")


@pytest.mark.fault("F65")
def test_the_root_and_its_folders_are_private(hdfs: HdfsServer, store: HdfsStore) -> None:
    """Folders are made with 0700 and files with 0600."""
    store.create("state/hourly/0", b"x")
    paths = [folder_of(store) + below for below in ("", "/state", "/state/hourly", "/state/hourly/0")]
    assert [hdfs.client().status(path)["permission"] for path in paths] == ["700", "700", "700", "600"]


@pytest.mark.fault("F65")
def test_an_unsafe_root_is_refused(hdfs: HdfsServer, store: HdfsStore) -> None:
    """One of another user, one that others can write, one that is a file."""
    name = store.root.rsplit("/", 1)[-1]
    with pytest.raises(RootUnsafe, match=f"belongs to user {USER}, not to alice"):
        HdfsStore(hdfs.url(name, user="alice"))
    for mode in ("770", "702"):
        hdfs.client().set_permission(folder_of(store), mode)
        with pytest.raises(RootUnsafe, match="group or others"):
            HdfsStore(store.root)
    hdfs.client().write(f"{folder_of(store)}/file", b"")
    with pytest.raises(RootUnsafe, match="not a folder"):
        HdfsStore(f"{store.root}/file")


@pytest.mark.fault("F28")
def test_who_may_not_write_is_told_as_whom_and_where(hdfs: HdfsServer, store: HdfsStore) -> None:
    """At once, however patient: asking again gives no permission."""
    store.create("log/0", b"x")
    hdfs.client().set_permission(f"{folder_of(store)}/log", "500")
    with pytest.raises(StorageDenied, match=rf"user={USER}.*\(log/1\)"):
        store.create("log/1", b"y")
    with pytest.raises(StorageDenied):
        HdfsStore(f"{hdfs.url('', user='alice')}{store.root.rsplit('/', 1)[-1]}/log")
    assert store.list("") == ["log/0"]


@pytest.mark.fault("F27")
def test_a_quota_is_named_and_leaves_no_part(hdfs: HdfsServer, store: HdfsStore) -> None:
    """The error names file and quota; the old is whole, no part is left, and with room the same write works."""
    store.create("log/0", b"x")
    hdfs.admin("-setSpaceQuota", "3m", folder_of(store))
    with pytest.raises(StorageFull, match=r"quota.*3 MB.*\(log/1\)"):
        store.create("log/1", b"y" * 5_000_000)
    assert files(hdfs, store) == ["log/0"]
    hdfs.admin("-clrSpaceQuota", folder_of(store))
    store.create("log/1", b"y" * 5_000_000)
    assert (store.read("log/0"), len(store.read("log/1"))) == (b"x", 5_000_000)


def test_a_root_that_went_away_is_not_an_empty_checkpoint(hdfs: HdfsServer, store: HdfsStore) -> None:
    """A root that was removed, or another HDFS, must not look like a new job, and is not made again."""
    hdfs.client().delete(folder_of(store))
    for call in (lambda: store.exists("log/0"), lambda: store.read("log/0"), lambda: store.create("log/0", b"x")):
        with pytest.raises(StorageUnavailable, match="gone"):
            call()
    assert hdfs.client().status(folder_of(store), strict=False) is None


# --- servers -----------------------------------------------------------------------------------
@contextmanager
def writing(store: HdfsStore) -> Iterator[Callable[[], int]]:
    """Let a job run batches in another thread; `written()` is how many, and at the end there are all."""
    log = Log(store)
    owned = own(log)
    count = 0

    def run() -> None:
        nonlocal count
        while count < BATCHES:
            run_batch(owned, count)
            count += 1

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        yield lambda: count
        running.result()
    recovered = recover(Log(store))
    assert ([kept.batch for kept in recovered.kept], recovered.next_batch) == (list(range(BATCHES)), BATCHES)


@pytest.mark.sample(1, of="servers that are killed")
@pytest.mark.fault("F25")
def test_a_namenode_that_is_killed_and_starts_again_loses_nothing(hdfs: HdfsServer, store: HdfsStore) -> None:
    """Who has little patience is told to wait; who has enough writes on, and every batch stands there once."""
    with writing(store) as written:
        brief = brief_store(store.root)
        until(lambda: written() >= 3)
        hdfs.kill_namenode()
        try:
            for call in (lambda: brief.read("log/000000000000"), lambda: brief.create("other", b"x")):
                with pytest.raises(StorageUnavailable, match="does not answer"):
                    call()
        finally:
            hdfs.start_namenode()
    hdfs.wait()
    assert not store.exists("other")


@pytest.mark.fault("F08", "F23", "F25")
def test_what_a_sleeping_namenode_was_asked_may_come_later(
    hdfs: HdfsServer, store: HdfsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It falls asleep before a rename and does it when nobody waits any more: open until then, and settled after."""

    def spoil(what: str, send: Send, _: bytes) -> requests.Response:
        if what == "RENAME":
            hdfs.namenode.send_signal(signal.SIGSTOP)
        return send()

    monkeypatch.setattr("penstock.checkpoint.storage.webhdfs.ANSWER_SECONDS", 0.2)
    spoilt = spoilt_store(store.root, spoil, patience=1.0)
    try:
        with pytest.raises(StorageUnavailable, match="does not answer"):
            spoilt.create("log/0", b"mine")
    finally:
        hdfs.namenode.send_signal(signal.SIGCONT)
        monkeypatch.undo()
    assert create_or_read(store, "log/0", b"mine") == b"mine"


@pytest.mark.sample(1, of="servers that are killed")
@pytest.mark.fault("F25", "F26")
def test_a_datanode_that_is_killed_and_starts_again_loses_nothing(hdfs: HdfsServer, store: HdfsStore) -> None:
    """No file is open across writes, so no lease is to be recovered: the next try is another file."""
    with writing(store) as written:
        until(lambda: written() >= 3)
        hdfs.kill_datanode()
        try:
            with pytest.raises(StorageUnavailable):
                brief_store(store.root).create("other", b"x")
        finally:
            hdfs.start_datanode()
    hdfs.wait()
    assert not store.exists("other")


@pytest.mark.fault("F25")
def test_safe_mode_is_waited_for(hdfs: HdfsServer, store: HdfsStore) -> None:
    """In it all can be read; a write waits, or is told why it cannot be done now."""
    store.create("log/0", b"x")
    hdfs.admin("-safemode", "enter")
    with ThreadPoolExecutor(1) as pool:
        try:
            brief = brief_store(store.root)
            assert (brief.read("log/0"), brief.exists("log/1"), brief.list("")) == (b"x", False, ["log/0"])
            with pytest.raises(StorageUnavailable, match="safe mode"):
                brief.create("log/1", b"brief")
            waits = pool.submit(store.create, "log/2", b"patient")
        finally:
            hdfs.admin("-safemode", "leave")
        waits.result()
    assert store.list("") == ["log/0", "log/2"]


class Standby(BaseHTTPRequestHandler):
    """A NameNode that is not the active one."""

    def do_GET(self) -> None:
        """Refuse as such a one does."""
        body = (
            b'{"RemoteException": {"exception": "StandbyException", "javaClassName": "org.apache.hadoop.ipc.Standby'
            b'Exception", "message": "Operation category READ is not supported in state standby"}}'
        )
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that http.server asks for

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def standby() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Standby) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.fault("F25")
def test_of_several_namenodes_the_active_one_is_found(hdfs: HdfsServer, root: str, standby: str) -> None:
    """One that is gone and one that stands by are passed over; alone, each is one to wait for."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as free:
        dead = f"127.0.0.1:{free.server_address[1]}"
    name = root.rsplit("/", 1)[-1]
    store = HdfsStore(hdfs.url(name, hosts=f"{dead},{standby},{hdfs.address}"))
    store.create("log/0", b"x")
    with pytest.raises(AlreadyExists):
        store.create("log/0", b"y")
    with pytest.raises(NotFound):
        store.read("log/1")
    assert HdfsStore(root).read("log/0") == b"x"
    for host in (dead, standby, f"{dead},{standby}"):
        with pytest.raises(StorageUnavailable):
            brief_store(hdfs.url(name, hosts=host))


# --- the log -----------------------------------------------------------------------------------
@pytest.mark.fault("F07", "F30")
def test_a_log_is_kept_taken_over_recovered_and_purged_as_in_memory(store: HdfsStore) -> None:
    """The same job on both stores leaves the same slots and the same story."""
    outcomes = []
    for place in (store, MemoryStore()):
        log = Log(place, stride=4)
        owned = own(log)
        for batch in range(2):
            run_batch(owned, batch)
        owned = own(log, "w2")
        for batch in range(2, 7):
            run_batch(owned, batch, floor=4)
        purge(log, owned)
        recovered = recover(Log(place, stride=4))
        outcomes.append(
            (place.list("log"), recovered.tail, recovered.next_batch, [kept.batch for kept in recovered.kept])
        )
    assert outcomes[0] == outcomes[1]
