"""Alerts: trouble, and the end of it, at least once, from the records of the streams."""

from __future__ import annotations

import http.server
import json
import threading

import pytest
from structlog.testing import capture_logs

from penstock.checkpoint.storage.memory import MemoryStore
from penstock.config.references import Secret
from penstock.errors import ConfigError
from penstock.supervise.events.alerts import AlertPoster, Webhook
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Phase, Stream, Wish

RUNS, FAILED, PAUSED, BACKOFF = Phase.RUNNING, Phase.FAILED, Phase.PAUSED, Phase.BACKOFF


def stream(phase, at=0):
    """Return a stream in a phase, since that many seconds."""
    return Stream(wish=Wish.RUN, phase=phase, reason="why", generation=3, first=3, since=at * 1_000_000)


class World:
    """A store with one stream, and somebody who listens."""

    def __init__(self):
        self.store = MemoryStore()
        self.records = StreamRecords(self.store, "orders")
        self.heard = []
        self.refuses = []
        self.at = 0

    def be(self, *phases):
        """Let the stream come to phases, one after the other."""
        for phase in phases:
            self.at += 1
            self.records.update(lambda _found, phase=phase: (stream(phase, self.at), None))

    def post(self, alert):
        """Hear an alert, or refuse it."""
        if self.refuses:
            raise self.refuses.pop(0)
        self.heard.append(alert)

    def look(self):
        """Look once, as a poster that was just started."""
        AlertPoster(store=self.store, post=self.post).look()

    def phases(self):
        """Return what was heard."""
        return [alert["phase"] for alert in self.heard]


@pytest.fixture
def world():
    """Return a world in which the stream runs, and somebody listens."""
    made = World()
    made.be(RUNS)
    made.look()
    assert made.heard == []
    return made


def test_an_alert_says_what_and_why(world):
    """`text` is what a chat program shows."""
    world.be(FAILED)
    world.look()
    assert world.heard == [
        {
            "text": "Penstock: orders is FAILED: why",
            "job": "orders",
            "phase": "FAILED",
            "reason": "why",
            "generation": 3,
            "since": "1970-01-01T00:00:02Z",
        }
    ]


@pytest.mark.parametrize("looks", [False, True], ids=["one look", "a look for each"])
def test_another_record_in_the_same_trouble_is_no_news(world, looks):
    """A command that changes nothing of it, such as new limits."""
    for number in range(3):
        world.records.update(lambda _f, n=number: (stream(BACKOFF).having(note=str(n)), None))
        if looks:
            world.look()
    world.look()
    assert world.phases() == ["BACKOFF"]


@pytest.mark.parametrize(
    ("phases", "posted"),
    [
        ([Phase.SUBMITTING, RUNS], []),
        ([BACKOFF, Phase.SUBMITTING, RUNS], [BACKOFF, RUNS]),
        ([BACKOFF, BACKOFF], [BACKOFF]),
        ([BACKOFF, Phase.SUBMITTING, BACKOFF, FAILED], [BACKOFF, BACKOFF, FAILED]),
        ([PAUSED, Phase.SUBMITTING, Phase.FINISHED], [PAUSED, Phase.FINISHED]),
        ([Phase.UNHEALTHY, RUNS, RUNS, Phase.STOPPED], [Phase.UNHEALTHY, RUNS]),
        ([Phase.DRAINING, Phase.FINISHED], []),
        ([FAILED, Phase.STOPPED, Phase.SUBMITTING, RUNS], [FAILED, RUNS]),
        ([Phase.SUSPENDED, Phase.SUBMITTING, RUNS], []),
    ],
    ids=lambda phases: " ".join(phase.value.lower() for phase in phases) or "nothing",
)
def test_trouble_and_the_end_of_it_are_told(world, phases, posted):
    """However many records came between two looks."""
    world.be(*phases)
    world.look()
    world.look()
    assert world.phases() == [phase.value for phase in posted]


def test_one_look_or_many_tell_the_same(world):
    """What was told is remembered with the record that it was told of."""
    for phase in (BACKOFF, Phase.SUBMITTING, RUNS, PAUSED, Phase.SUBMITTING, RUNS):
        world.be(phase)
        world.look()
    assert world.phases() == ["BACKOFF", "RUNNING", "PAUSED", "RUNNING"]


def test_a_stream_that_is_in_trouble_when_somebody_begins_to_listen_is_told():
    """What happened before is not."""
    world = World()
    world.be(BACKOFF, Phase.SUBMITTING, RUNS, FAILED)
    world.look()
    assert world.phases() == ["FAILED"]


def test_the_first_news_of_a_stream_that_begins_while_somebody_listens_are_told():
    """However much of it came between two looks."""
    world = World()
    poster = AlertPoster(store=world.store, post=world.post)
    poster.look()
    world.be(BACKOFF, Phase.SUBMITTING, RUNS)
    poster.look()
    assert world.phases() == ["BACKOFF", "RUNNING"]


@pytest.mark.parametrize(
    "why", [OSError("no route"), ConfigError("there is no secret")], ids=["no answer", "no secret"]
)
def test_what_did_not_arrive_is_told_later(world, why):
    """In order, and that it did not arrive is said once."""
    world.be(BACKOFF, FAILED)
    world.refuses = [why, why]
    poster = AlertPoster(store=world.store, post=world.post)
    with capture_logs() as events:
        poster.look()
        poster.look()
    assert [event["event"] for event in events] == ["events.not_posted"]
    poster.look()
    assert world.phases() == ["BACKOFF", "FAILED"]


def test_only_what_did_not_arrive_comes_again(world):
    """The first of two was told and written down."""
    world.be(BACKOFF, FAILED)
    arrive = world.post

    def once(alert):
        arrive(alert)
        world.refuses = [OSError("gone")]

    AlertPoster(store=world.store, post=once).look()
    world.refuses = []
    world.look()
    assert world.phases() == ["BACKOFF", "FAILED"]


# --- a real webhook -------------------------------------------------------------------------
class Hook(http.server.BaseHTTPRequestHandler):
    """Take what is posted to /canary; refuse the rest."""

    taken: list[object]

    def do_POST(self):
        """Take it."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/canary":
            self.taken.append(json.loads(body))
        self.send_response(204 if self.path == "/canary" else 403)
        self.end_headers()

    def log_message(self, *_words):
        """Say nothing."""


@pytest.fixture
def hook(monkeypatch):
    """Return what a server on loopback was sent; its address is in the variable HOOK."""
    Hook.taken = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.server_port}/canary")
        yield Hook.taken
        server.shutdown()
        thread.join()


def test_a_webhook_gets_json(hook):
    """As it is."""
    Webhook(Secret(env="HOOK"))({"text": "<b>é"})
    assert hook == [{"text": "<b>é"}]


@pytest.mark.fault("F62")
@pytest.mark.parametrize("address", ["refused", "nobody", "nonsense"])
def test_a_webhook_that_does_not_take_it_never_shows_its_address(hook, monkeypatch, address):
    """The address of a webhook is a secret."""
    known = {"refused": "/canary/no", "nobody": "http://127.0.0.1:9/canary", "nonsense": "canary://x"}[address]
    import os

    url = os.environ["HOOK"].replace("/canary", known) if known.startswith("/") else known
    monkeypatch.setenv("HOOK", url)
    with pytest.raises(OSError, match="the webhook") as refused:
        Webhook(Secret(env="HOOK"))({"text": "x"})
    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert hook == []
