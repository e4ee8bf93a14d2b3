"""Requests to send quarantined rows again stay until they are answered, and count once for each id."""

from __future__ import annotations

import pytest

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.requeue_requests import Requeue, RequeueAnswer, RequeueRequests
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import RequeueRefused


def test_a_request_waits_for_a_driver_until_it_is_answered() -> None:
    """Whoever looks later finds it, oldest first; answered it is gone."""
    store = MemoryStore()
    first = RequeueRequests(store, "j").ask("a", from_batch=None, by="me")
    second = RequeueRequests(store, "j").ask("b", from_batch=3, by="me")
    driver = RequeueRequests(store, "j")
    assert driver.open() == [Requeue(id=first, source="a"), Requeue(id=second, source="b", from_batch=3)]
    driver.reply(first, RequeueAnswer(rows=7, batch=4))
    assert [request.id for request in driver.open()] == [second]
    assert RequeueRequests(store, "j").answer(first) == RequeueAnswer(rows=7, batch=4)
    assert RequeueRequests(store, "j").answer(second) is None
    assert RequeueRequests(store, "other").open() == []


def test_an_id_is_one_request() -> None:
    """A try again leaves no second one, also after the answer; another wish under the id is refused."""
    requests = RequeueRequests(MemoryStore(), "j")
    assert [requests.ask("a", from_batch=None, by="me", again="x") for _ in range(2)] == ["x", "x"]
    assert len(requests.open()) == 1
    requests.reply("x", RequeueAnswer(rows=1, batch=1))
    requests.reply("x", RequeueAnswer(rows=9, batch=2))
    requests.ask("a", from_batch=None, by="me", again="x")
    assert requests.open() == []
    assert requests.answer("x") == RequeueAnswer(rows=1, batch=1), "the first answer counts"
    with pytest.raises(RequeueRefused, match="'x' has asked for 'a' already"):
        requests.ask("b", from_batch=None, by="me", again="x")


def test_an_error_reaches_who_asked() -> None:
    """By its class, with what it said."""
    requests = RequeueRequests(MemoryStore(), "j")
    name = requests.ask("a", from_batch=None, by="me")
    requests.reply(name, RequeueRefused("no such source"))
    with pytest.raises(RequeueRefused, match="no such source"):
        requests.answer(name)
    assert requests.open() == []


@pytest.mark.fault("F77")
def test_senseless_records_are_passed_over() -> None:
    """They end no driver."""
    store = MemoryStore()
    for body in (
        {"request": 5},
        {"request": "x", "source": None},
        {"request": "y", "source": "a", "from_batch": "1"},
        {},
    ):
        Records(store, "requeues", "j").put(body)
    assert RequeueRequests(store, "j").open() == []
    assert [place[-1] for place in RequeueRequests(store, "j").unreadable()] == ["0", "1", "2", "3"], "F77: named"


@pytest.mark.fault("F13")
@pytest.mark.parametrize("left", [0, 20])
def test_a_damaged_request_is_named_until_somebody_asks_again(left: int) -> None:
    """It was lost without a word; whoever asks has been told, so only damage since is named."""
    store = MemoryStore()
    requests = RequeueRequests(store, "j")

    def damaged() -> str:
        requests.ask("a", from_batch=0, by="me")
        path = f"_control/requeues/j/{Records(store, 'requeues', 'j').tail():012d}"
        data = store.read(path)
        store.delete(path)
        store.create(path, data[:left])
        return f"{store.root}/{path}"

    assert requests.unreadable() == []
    first = damaged()
    assert RequeueRequests(store, "j").unreadable() == [first]
    requests = RequeueRequests(store, "j")
    requests.ask("a", from_batch=0, by="me")
    assert (requests.unreadable(), len(requests.open())) == ([], 1)
    second = damaged()
    assert RequeueRequests(store, "j").unreadable() == [second]


@pytest.mark.fault("F13")
def test_a_request_before_a_damaged_record_is_in_doubt_and_one_after_it_is_not() -> None:
    """What cannot be read may be its answer."""
    store = MemoryStore()
    requests = RequeueRequests(store, "j")
    before = requests.ask("a", from_batch=0, by="me")
    requests.reply(before, RequeueAnswer(rows=7, batch=4))
    (answer,) = [path for path in store.list("_control") if path.endswith("1")]
    store.delete(answer)
    store.create(answer, b"")
    after = requests.ask("a", from_batch=0, by="me")
    doubts = {request.id: request.doubt for request in RequeueRequests(store, "j").open()}
    assert doubts == {before: "record 1 of the requests cannot be read, and may be the answer: ask again", after: None}
