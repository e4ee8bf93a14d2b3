"""What the store makes of what HDFS says, and of silence; the servers themselves are in tests/integration."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import requests
from hdfs import InsecureClient
from hdfs_clients import Naps

from penstock.checkpoint.storage.hdfs import HdfsStore, parse_root
from penstock.errors import (
    AlreadyExists,
    CheckpointCorrupt,
    CheckpointError,
    ConfigError,
    NotExclusive,
    RootUnsafe,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

ROOT = "webhdfs://penstock@nn1:9870,nn2:9870/checkpoints/flights"
FOLDER = {
    "type": "DIRECTORY",
    "length": 0,
    "fileId": 7,
    "modificationTime": 1_000,
    "owner": "penstock",
    "permission": "700",
    "pathSuffix": "",
}
NO_ROOM = (
    "File /log/.tmp could only be written to 0 of the 1 minReplication nodes. There are {} datanode(s) running and {}"
    " node(s) are excluded in this operation."
)
Told = Callable[[str], requests.Response]


def answer(body: Any, status: int = 200) -> requests.Response:
    """Return what a server answers."""
    made = requests.Response()
    made.status_code = status
    made._content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return made


def refusal(exception: str, message: str = "why\n\tat org.apache.hadoop.Java(Java.java:1)") -> requests.Response:
    """Return how WebHDFS refuses."""
    return answer({"RemoteException": {"exception": exception, "javaClassName": exception, "message": message}}, 403)


class Scripted(InsecureClient):
    """A client without servers: a healthy root, and what a test says to all else."""

    def __init__(self, urls: str, respond: Told, **named: Any) -> None:
        self.told = respond
        super().__init__(urls, user="penstock", **named)

    def _request(self, method: str, url: str, **named: Any) -> requests.Response:
        asked = named.get("params", {}).get("op", "UPLOAD")
        if asked == "GETHOMEDIRECTORY":
            return answer({"Path": "/user/penstock"})
        if asked == "GETFILESTATUS" and url.endswith("/flights"):
            return answer({"FileStatus": FOLDER})
        return self.told(asked)


def scripted(respond: Told, clock: Naps | None = None) -> HdfsStore:
    """Return a store that is told so, and whose patience costs no time."""
    clock = clock or Naps()
    made = lambda urls, **named: Scripted(urls, respond, **named)  # noqa: E731
    return HdfsStore(ROOT, connect=made, monotonic=clock.monotonic, sleep=clock.sleep)


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("webhdfs://nn/a", (["http://nn:9870"], None, "/a")),
        ("webhdfs://me@nn.example.org:50070/a/b-c/", (["http://nn.example.org:50070"], "me", "/a/b-c")),
        ("swebhdfs://n1,n2:99/a/d=1.x", (["https://n1:9871", "https://n2:99"], None, "/a/d=1.x")),
    ],
)
def test_a_root_names_servers_user_and_folder(root: str, expected: tuple[list[str], str | None, str]) -> None:
    """Ports are those of WebHDFS by themselves, several servers stand in one URL."""
    assert parse_root(root) == expected


@pytest.mark.fault("F61", "F66")
@pytest.mark.parametrize(
    "root",
    [
        "/checkpoints",
        "hdfs://nn:8020/a",
        "webhdfs://nn:9870",
        "webhdfs://nn:9870/",
        "webhdfs:///a",
        "webhdfs://nn/a/../b",
        "webhdfs://nn/a/.hidden",
        "webhdfs://nn/a//b",
        "webhdfs://nn/a b",
        "webhdfs://nn/#LATEST",
        "webhdfs://me:secret@nn/a",
        "webhdfs://nn/a?doas=root",
    ],
)
def test_what_is_no_root_is_refused(root: str) -> None:
    """Before anything is asked; the port of hdfs:// speaks another protocol, and HDFS itself is not a folder."""
    with pytest.raises(ConfigError, match="webhdfs://"):
        HdfsStore(root)


@pytest.mark.fault("F25", "F27", "F28")
@pytest.mark.parametrize(
    ("response", "error"),
    [
        pytest.param(refusal("AccessControlException"), StorageDenied, id="denied"),
        pytest.param(refusal("SecurityException"), StorageDenied, id="token"),
        pytest.param(refusal("InvalidToken"), StorageDenied, id="expired"),
        pytest.param(answer(b"", 401), StorageDenied, id="not authenticated"),
        pytest.param(refusal("DSQuotaExceededException"), StorageFull, id="space quota"),
        pytest.param(refusal("NSQuotaExceededException"), StorageFull, id="name quota"),
        pytest.param(refusal("IOException", NO_ROOM.format(3, "no")), StorageFull, id="disks full"),
        pytest.param(refusal("IOException", NO_ROOM.format(0, "no")), StorageUnavailable, id="no datanode"),
        pytest.param(refusal("IOException", NO_ROOM.format(3, 3)), StorageUnavailable, id="all excluded"),
        pytest.param(refusal("SafeModeException"), StorageUnavailable, id="safe mode"),
        pytest.param(refusal("StandbyException"), StorageUnavailable, id="standby"),
        pytest.param(refusal("RetriableException"), StorageUnavailable, id="starting"),
        pytest.param(refusal("NullPointerException"), StorageUnavailable, id="anything else"),
        pytest.param(refusal("ParentNotDirectoryException"), RootUnsafe, id="file for a folder"),
        pytest.param(answer(b"<html>", 502), StorageUnavailable, id="a page"),
        pytest.param(answer({}, 500), StorageUnavailable, id="another JSON"),
    ],
)
def test_what_hdfs_says_is_an_error_of_a_store(response: requests.Response, error: type[CheckpointError]) -> None:
    """With the path, and without a trace of Java's."""
    with pytest.raises(error, match=r"\(log/0\)") as caught:
        scripted(lambda _: response).create("log/0", b"x")
    assert "org.apache" not in str(caught.value)


@pytest.mark.fault("F27")
@pytest.mark.parametrize(
    ("left", "error"),
    [(0, StorageFull), (9, StorageFull), (10, StorageUnavailable), (None, StorageUnavailable)],
    ids=["nothing", "little", "enough", "not told"],
)
@pytest.mark.parametrize("refused", [NO_ROOM.format(3, 3), "Failed to find datanode, suggest to check cluster health."])
def test_no_datanode_takes_a_block_because_disks_are_full_or_for_another_reason(
    refused: str, left: int | None, error: type[CheckpointError]
) -> None:
    """Which of them it is HDFS tells when it is asked how much room there is; before 3.4 it does not know the question."""

    def respond(asked: str) -> requests.Response:
        if asked != "GETSTATUS":
            return refusal("IOException", refused)
        if left is None:
            return answer({"RemoteException": {"exception": "IllegalArgumentException", "message": "which?"}}, 400)
        return answer({"FsStatus": {"used": 0, "remaining": left, "capacity": 1_000}})

    with pytest.raises(error, match=rf"{refused[:30]}.*\(log/0\)"):
        scripted(respond).create("log/0", b"x")


@pytest.mark.fault("F25")
@pytest.mark.parametrize(
    "silence",
    [
        requests.ConnectionError("refused"),
        requests.ReadTimeout("nothing"),
        requests.exceptions.ChunkedEncodingError("cut"),
        ConnectionResetError("reset"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_silence_is_asked_again_until_the_deadline(silence: Exception) -> None:
    """With naps of random length that grow, and no longer than told."""
    clock = Naps()

    def respond(_: str) -> requests.Response:
        raise silence

    store = scripted(respond, clock)
    with pytest.raises(StorageUnavailable, match="does not answer"):
        store.exists("log/0")
    assert 10 < len(clock.taken) == len(set(clock.taken))
    assert max(clock.taken[:3]) < max(clock.taken) <= 2.0
    assert clock.now <= 30.0


@pytest.mark.fault("F62")
@pytest.mark.parametrize("kind", [requests.ConnectionError, requests.exceptions.InvalidURL, OSError])
def test_a_token_in_an_address_is_told_to_nobody(kind: type[Exception]) -> None:
    """Neither in the error nor in what a log prints of its causes."""

    def respond(_: str) -> requests.Response:
        raise kind(
            "HTTPConnectionPool(host='dn', port=9864): url: /webhdfs/v1/a?op=CREATE&delegation=canary-7f3 (Caused…"
        )

    with pytest.raises(StorageUnavailable, match=r"/webhdfs/v1/a\?… \(Caused") as caught:
        scripted(respond).exists("log/0")
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_an_answer_without_sense_is_none() -> None:
    """A page of a proxy that says 200 is not taken for an absent file."""
    for body in (b"<html>", {"FileStatus": {}}, {"other": 1}):
        store = scripted(lambda _, body=body: answer(body))
        with pytest.raises((StorageUnavailable, NotExclusive)):
            store.exists("log/0")


@pytest.mark.fault("F32")
def test_a_gateway_that_does_not_tell_files_apart_is_refused() -> None:
    """HttpFS gives no number of a file, so after a lost answer nobody could say whose file has the name."""
    status = {name: value for name, value in FOLDER.items() if name != "fileId"}
    with pytest.raises(NotExclusive, match="which file is which"):
        scripted(lambda _: answer({"FileStatus": status})).exists("log/0")


@pytest.mark.fault("F13")
def test_a_folder_takes_a_name_as_a_file_does() -> None:
    """Nobody can create a file of that name: who looked for a free slot would try it for ever."""
    store = scripted(lambda _: answer({"FileStatus": FOLDER}))
    assert store.exists("log/0")
    assert store.size("log/0") is None
    with pytest.raises(CheckpointCorrupt, match="not a plain file"):
        store.read("log/0")


def test_a_rename_is_never_one_that_overwrites() -> None:
    """Without the option HDFS moves a file into a folder of that name; with another it replaces what is there."""
    asked: list[dict[str, Any]] = []

    class Watched(Scripted):
        def _request(self, method: str, url: str, **named: Any) -> requests.Response:
            asked.append(named.get("params", {}))
            return super()._request(method, url, **named)

    def respond(what: str) -> requests.Response:
        if what == "CREATE":
            made = answer({})
            made.headers["location"] = "http://dn/"
            return made
        if what == "GETFILESTATUS":
            return answer({"FileStatus": {**FOLDER, "type": "FILE", "length": 1, "fileId": len(asked)}})
        return refusal("FileAlreadyExistsException") if what == "RENAME" else answer({"boolean": True})

    with pytest.raises(AlreadyExists):
        HdfsStore(ROOT, connect=lambda urls, **named: Watched(urls, respond, **named)).create("log/0", b"x")
    assert [each["renameoptions"] for each in asked if each.get("op") == "RENAME"] == ["NONE"]
    assert [each["overwrite"] for each in asked if each.get("op") == "CREATE"] == ["false"]


def test_the_store_is_imported_without_its_client() -> None:
    """Commands that keep checkpoints on disk do not load HdfsCLI, requests and tenacity."""
    text = "import sys, penstock.checkpoint.storage.hdfs; print(sorted({'hdfs', 'requests', 'tenacity'} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.fault("F25")
def test_who_has_waited_in_vain_waits_no_more_until_hdfs_answers() -> None:
    """A driver that is about to give up asks for this and that; each with all its patience would take minutes."""
    clock, dead = Naps(), [True]

    def respond(_: str) -> requests.Response:
        if dead[0]:
            raise requests.ConnectionError("refused")
        return refusal("FileNotFoundException")

    store = scripted(respond, clock)
    took = []
    for _ in range(3):
        began = clock.now
        with pytest.raises(StorageUnavailable):
            store.exists("log/0")
        took.append(clock.now - began)
    dead[0] = False
    assert not store.exists("log/0")
    dead[0], began = True, clock.now
    with pytest.raises(StorageUnavailable):
        store.exists("log/0")
    took.append(clock.now - began)
    assert [seconds > 20 for seconds in took] == [True, False, False, True], took
    assert max(took[1:3]) <= 2.0


def test_a_file_has_as_many_copies_as_its_store_asks_for() -> None:
    """HDFS is asked for them when the file is created, and of another store's files it decides."""
    asked: list[Any] = []

    class Noting(Scripted):
        def _request(self, method: str, url: str, **named: Any) -> requests.Response:
            params = named.get("params", {})
            if params.get("op") == "CREATE":
                asked.append(params.get("replication"))
            return super()._request(method, url, **named)

    clock = Naps()
    store = HdfsStore(
        ROOT,
        connect=lambda urls, **named: Noting(urls, lambda _: refusal("AccessControlException"), **named),
        monotonic=clock.monotonic,
        sleep=clock.sleep,
    )
    for each in (store, store.replicated(2), store):
        with pytest.raises(StorageDenied):
            each.create("blocks/s-0/000001/000000000000", b"x")
    assert asked == [None, "2", None]
