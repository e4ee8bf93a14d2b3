"""What is posted of windows that were published: at least once, in order, and never in a stream's way."""

from __future__ import annotations

from typing import Any

import pytest
from checkpoint_samples import commit, offsets, own
from structlog.testing import capture_logs

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.log.entries import Commit, Release, Restore, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import ConfigError
from penstock.quality.held.decision_records import Decision, HeldDecision, HeldRecords
from penstock.quality.held.release import find_held
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.supervise.commands import Command, Verb, fold
from penstock.supervise.events.assets import AssetPoster, events_of_windows
from penstock.supervise.records import StreamRecords

MINUTE = 60_000_000


def a_commit(
    batch: int, *, rows: int = 3, action: str = "publish", status: str = "passed", windows: bool = True
) -> Commit:
    """Return the Commit of a batch that closed one window of a minute."""
    file = StagedFile(path=f"{batch}.parquet", size=9, rows=rows, checksum="c", stats={})
    return commit(
        batch,
        staged={"totals": [file]} if rows else {},
        verdicts=[{"check": "sane", "unit": batch * MINUTE, "action": action, "status": status}],
        watermarks_in={"minutely": (batch + 1) * MINUTE if windows else None},
        watermarks_out={"minutely": (batch + 2) * MINUTE},
        published={"totals": batch - 1} if batch else {},
    )


class Listener:
    """Assets that remember, and that answer as a test wants."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answers: list[Any] = []

    def post(self, uri: str, extra: dict[str, Any]) -> bool:
        """Hear an event, or do what was to be done instead."""
        assert uri == "penstock://orders/windows"
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        if answer is True:
            self.heard.append(extra)
        return answer

    def batches(self) -> list[int]:
        """Return the batches that were heard of."""
        return [event["batch"] for event in self.heard]


class World:
    """A control root with one stream, whose driver the test plays."""

    def __init__(self, root) -> None:
        self.root = root
        self.store = control_store(root)
        records = StreamRecords(self.store, "orders")
        records.update(lambda stream: fold(stream, Command(verb=Verb.START, id="a"), 1))
        self.listener = Listener()
        self.owned = None

    def poster(self) -> AssetPoster:
        """Return a poster, as after a start of the supervisor."""
        return AssetPoster(root=self.root, store=self.store, post=self.listener.post)

    def begin(self) -> None:
        """Let the driver take the log."""
        (self.root / "orders").mkdir(mode=0o700)
        self.owned = own(Log(LocalStore(self.root / "orders")))

    def run(self, batch: int, **fields: Any) -> None:
        """Commit a batch; that it is published shows in the next one, or in the status."""
        self.owned.append(offsets(batch))
        self.owned.append(a_commit(batch, **fields))

    def tell(self, batch: int, **more: Any) -> None:
        """Write the status record that a batch was published."""
        StatusRecords(self.store, "orders").put({"last": {"batch": batch}, "epoch": 1, **more})

    def release(self, batch: int) -> None:
        """Let the driver leave."""
        self.owned.append(Release(epoch=1, writer="w1", reason="stopped", published={"totals": batch}))


@pytest.fixture
def world(tmp_path) -> World:
    """Return a world in which somebody listens from the beginning."""
    made = World(tmp_path / "root")
    made.poster().look()
    made.begin()
    return made


def test_an_event_says_what_was_published():
    """Step, batches, windows, rows and verdicts, of several batches together."""
    batches = [a_commit(4), a_commit(5, status="failed"), a_commit(6, rows=0)]
    (event,) = events_of_windows("orders", batches, before=a_commit(3))
    assert event == {
        "job": "orders",
        "step": "minutely",
        "batch": 6,
        "first_batch": 4,
        "windows": {"after": "1970-01-01T00:04:00Z", "until": "1970-01-01T00:07:00Z"},
        "rows": {"totals": 6},
        "verdicts": {"passed": 1, "failed": 1},
    }


def test_windows_of_one_event_follow_those_of_the_one_before(world):
    """None is left out between them, however the batches were put together."""
    poster = world.poster()
    for batch in range(6):
        world.run(batch)
        if batch % 2:
            poster.look()
    bounds = [(event["windows"]["after"], event["windows"]["until"]) for event in world.listener.heard]
    assert bounds[0][0] is None
    assert [after for after, _ in bounds[1:]] == [until for _, until in bounds[:-1]]


def test_batches_without_rows_are_no_news():
    """A batch that closed nothing, or whose windows are all held."""
    assert list(events_of_windows("orders", [a_commit(1, rows=0), a_commit(2, rows=0, action="hold")])) == []


def test_held_windows_are_not_among_the_verdicts():
    """They were not published."""
    (event,) = events_of_windows("orders", [a_commit(1, action="hold", status="failed"), a_commit(2)])
    assert event["verdicts"] == {"passed": 1}


def test_a_batch_is_posted_once_it_is_published(world):
    """Which the next Commit, the status of this driver, or a Release says; a Commit alone does not."""
    poster = world.poster()
    world.run(0)
    poster.look()
    assert world.listener.heard == []
    world.run(1)
    poster.look()
    assert world.listener.batches() == [0]
    world.tell(1)
    poster.look()
    assert world.listener.batches() == [0, 1]
    world.run(2)
    world.release(2)
    poster.look()
    poster.look()
    assert world.listener.batches() == [0, 1, 2]


def test_the_status_of_another_driver_says_nothing_of_this_log(world):
    """It may be of a log that was there before."""
    world.run(0)
    world.tell(0, epoch=7)
    world.poster().look()
    assert world.listener.heard == []


@pytest.mark.parametrize(
    "trouble", [ConnectionError("no route"), TimeoutError("no answer"), False, ConfigError("no password")]
)
def test_what_could_not_be_posted_is_posted_later(world, trouble):
    """As it was, and then what came since; that it did not arrive is told once."""
    poster = world.poster()
    world.run(0)
    world.run(1)
    world.listener.answers = [trouble, trouble]
    with capture_logs() as logged:
        poster.look()
        poster.look()
    assert [line["event"] for line in logged] == ["events.not_posted"]
    world.run(2)
    poster.look()
    assert [(event["first_batch"], event["batch"]) for event in world.listener.heard] == [(0, 0), (1, 1)]


@pytest.mark.fault("F10")
def test_a_post_that_was_not_written_down_comes_again_as_it_was(world, monkeypatch):
    """The supervisor was killed between the two; batches that came since are another event."""
    world.run(0)
    world.run(1)
    put, calls = Records.put, []

    def killed(self, body):
        calls.append(body)
        if len(calls) == 2:
            raise OSError("killed")
        return put(self, body)

    with monkeypatch.context() as broken:
        broken.setattr(Records, "put", killed)
        world.poster().look()
    world.run(2)
    world.poster().look()
    first, again, more = world.listener.heard
    assert first == again
    assert (first["batch"], more["first_batch"], more["batch"]) == (0, 1, 1)


def test_commits_that_were_purged_since_are_told_all_the_same(world):
    """What was to be said of them is kept while nobody listens."""
    poster = world.poster()
    world.listener.answers = [OSError("away")] * 3
    for batch in range(4):
        world.run(batch, status="failed" if batch == 1 else "passed")
        poster.look()
    store = LocalStore(world.root / "orders")
    for path in store.list("log")[1:5]:
        store.delete(path)
    poster.look()
    assert sum(event["verdicts"].get("failed", 0) for event in world.listener.heard) == 1
    assert world.listener.batches() == [0, 1, 2]


def test_a_held_batch_is_told_of_when_it_is_released(world):
    """Once, with what it publishes then; what was discarded never is."""
    world.run(0)
    for batch in (1, 2):
        held = a_commit(batch, action="hold", status="failed")
        world.owned.append(offsets(batch))
        world.owned.append(held.model_copy(update={"staged": {}, "held": held.staged}))
    world.tell(2)
    poster = world.poster()
    poster.look()
    assert [(event["first_batch"], event["batch"], event["rows"]) for event in world.listener.heard] == [
        (0, 2, {"totals": 3})
    ]
    records = HeldRecords(world.store, "orders")
    decided = {1: Decision.RELEASE, 2: Decision.DISCARD}
    rulings = {batch: rule(world, batch, decision) for batch, decision in decided.items()}
    poster.look()
    assert len(world.listener.heard) == 1
    for batch, ruling in rulings.items():
        records.carried_out(batch, ruling, by="me")
    poster.look()
    world.poster().look()
    assert world.listener.heard[1:] == [
        {
            "job": "orders",
            "step": "minutely",
            "batch": 1,
            "first_batch": 1,
            "windows": {"after": "1970-01-01T00:01:00Z", "until": "1970-01-01T00:02:00Z"},
            "rows": {"totals": 3},
            "verdicts": {},
            "released": True,
            "tables": {},
        }
    ]


def rule(world, batch: int, decision: Decision) -> HeldDecision:
    """Decide on a held batch as a driver does, which reads it from the log."""
    records = HeldRecords(world.store, "orders")
    held = find_held(records, recover(Log(LocalStore(world.root / "orders"))), batch)
    return records.decide(batch, decision, held.rows, by="me", windows=held.windows)


def test_a_release_long_after_its_batch_is_told_of_whatever_became_of_the_log(world):
    """A purge leaves holes behind the batch, and takes its Commit once the decision was carried out."""
    world.run(0)
    held = a_commit(1, action="hold", status="failed")
    world.owned.append(offsets(1))
    world.owned.append(held.model_copy(update={"staged": {}, "held": held.staged}))
    for batch in range(2, 9):
        world.run(batch)
    world.tell(8)
    poster = world.poster()
    poster.look()
    before = len(world.listener.heard)
    ruling = rule(world, 1, Decision.RELEASE)
    store = LocalStore(world.root / "orders")
    for path in store.list("log")[1:12]:
        store.delete(path)
    HeldRecords(world.store, "orders").carried_out(1, ruling, by="me")
    poster.look()
    poster.look()
    (late,) = world.listener.heard[before:]
    assert (late["batch"], late["released"], late["rows"]) == (1, True, {"totals": 3})
    assert late["windows"] == {"after": "1970-01-01T00:01:00Z", "until": "1970-01-01T00:02:00Z"}


def test_what_was_released_before_anybody_listened_is_no_news(tmp_path):
    """It is history, like what was published."""
    world = World(tmp_path / "root")
    world.begin()
    held = a_commit(0, action="hold", status="failed")
    world.owned.append(offsets(0))
    world.owned.append(held.model_copy(update={"staged": {}, "held": held.staged}))
    records = HeldRecords(world.store, "orders")
    records.carried_out(0, records.decide(0, Decision.RELEASE, {"totals": 3}, by="me"), by="me")
    poster = world.poster()
    poster.look()
    poster.look()
    assert world.listener.heard == []


def test_a_cursor_of_an_earlier_version_makes_no_news_of_old_releases(world):
    """It does not say which were told of: all that are there were released before."""
    held = a_commit(0, action="hold", status="failed")
    world.owned.append(offsets(0))
    world.owned.append(held.model_copy(update={"staged": {}, "held": held.staged}))
    records = HeldRecords(world.store, "orders")
    records.carried_out(0, records.decide(0, Decision.RELEASE, {"totals": 3}, by="me"), by="me")
    Records(world.store, "assets", "orders").put({"batch": 0, "waiting": []})
    poster = world.poster()
    poster.look()
    poster.look()
    assert world.listener.heard == []


def test_a_checkpoint_that_began_anew_is_told_of_from_its_first_batch(world):
    """The cursor speaks of the batches of the one before, whose ids come again."""
    folder = world.root / "orders"
    name(folder)
    for batch in range(3):
        world.run(batch)
    world.poster().look()
    assert world.listener.batches() == [1]
    folder.rename(world.root / "_aside")
    world.poster().look()
    world.begin()
    name(folder)
    for batch in range(3):
        world.run(batch)
    world.poster().look()
    world.poster().look()
    assert world.listener.batches() == [1, 1]


def name(folder) -> None:
    """Give a checkpoint a uuid of its own; its driver does that before it takes the log."""
    log = (folder / "log").rename(folder.parent / "_log")
    open_or_create(LocalStore(folder), now=1)
    log.rename(folder / "log")


def test_windows_after_a_restore_follow_no_batch_before_it(world):
    """They come again; the range would be upside down."""
    for batch in range(4):
        world.run(batch)
    world.owned.append(Restore(epoch=1, writer="w1", batch=0, source="batch", saved=None, partitions=None))
    world.owned.append(offsets(4))
    world.owned.append(a_commit(1).model_copy(update={"batch": 4, "published": {"totals": 3}, "place": None}))
    world.owned.append(offsets(5))
    world.owned.append(a_commit(2).model_copy(update={"batch": 5, "published": {"totals": 4}, "place": None}))
    world.poster().look()
    heard = [(event["first_batch"], event["batch"], event["windows"]["after"]) for event in world.listener.heard]
    assert heard == [(0, 3, None), (4, 4, None)]


def test_a_batch_that_one_sink_lacks_is_not_published(world):
    """The driver was ended between the two."""
    world.run(0)
    world.owned.append(Release(epoch=1, writer="w1", reason="stopped", published={"totals": 0, "late": -1}))
    world.poster().look()
    assert world.listener.heard == []


def test_a_stream_that_begins_while_somebody_listens_has_no_history(tmp_path):
    """However quickly it has published its first batches."""
    world = World(tmp_path / "root")
    poster = world.poster()
    StreamRecords(world.store, "other").update(lambda stream: fold(stream, Command(verb=Verb.START, id="b"), 1))
    poster.look()
    records = StreamRecords(world.store, "third")
    records.update(lambda stream: fold(stream, Command(verb=Verb.START, id="c"), 1))
    (world.root / "third").mkdir(mode=0o700)
    owned = own(Log(LocalStore(world.root / "third")))
    owned.append(offsets(0))
    owned.append(a_commit(0))
    owned.append(Release(epoch=1, writer="w1", reason="stopped", published={"totals": 0}))
    heard = []
    poster.post = lambda uri, extra: heard.append((uri, extra["batch"])) or True
    poster.look()
    assert heard == [("penstock://third/windows", 0)]


def test_a_step_without_a_closed_window_has_no_event():
    """Other sinks of the job may have got rows."""
    assert list(events_of_windows("orders", [a_commit(1, windows=False)])) == []
    assert list(events_of_windows("orders", [a_commit(1)], before=a_commit(1))) == []


def test_an_answer_that_nobody_foresaw_stops_no_other_job(world, monkeypatch):
    """It is told by its kind, because it may hold anything."""
    monkeypatch.setattr(world.listener, "post", lambda *_: {}["canary"])
    world.run(0)
    world.run(1)
    with capture_logs() as logged:
        poster = world.poster()
        poster.look()
        poster.look()
    assert [line["reason"] for line in logged] == ["unexpected: KeyError"]


def test_what_was_published_before_anybody_listened_is_no_news(tmp_path):
    """A year of batches is not posted at once."""
    world = World(tmp_path / "root")
    world.begin()
    for batch in range(3):
        world.run(batch)
    world.poster().look()
    world.run(3)
    world.poster().look()
    assert world.listener.batches() == [2]


def test_the_versions_of_the_tables_are_those_of_their_logs(world, tmp_path):
    """By path, as the driver's status names them; a table that is not there has none."""
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    for name in ("00000000000000000009.json", "00000000000000000010.json", "_last_checkpoint", "x.json"):
        (log / name).write_text("")
    world.run(0)
    world.tell(0, tables={"totals": str(tmp_path / "table"), "late": str(tmp_path / "none")})
    world.poster().look()
    assert world.listener.heard[0]["tables"] == {str(tmp_path / "table"): 10}
