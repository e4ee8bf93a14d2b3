"""Requests to a driver are answered by their ids, and an error comes back as what it was."""

from __future__ import annotations

import pytest

from penstock.checkpoint.answered_records import AnsweredRecords, new_id
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import HeldNotFound, PenstockError


def test_an_answer_is_found_by_the_id_of_its_request() -> None:
    """Of several the newest; those of another kind or job are no answers."""
    store = MemoryStore()
    records = AnsweredRecords(store, "asks", "j", keep=8)
    assert (records.tail(), records.answer("x")) == (-1, None)
    records.request({"ask": "x"})
    records.reply("x", {"rows": 1})
    records.reply("x", {"rows": 2})
    assert AnsweredRecords(store, "asks", "j", keep=8).answer("x") == {"answer": "x", "rows": 2}
    assert AnsweredRecords(store, "asks", "other", keep=8).answer("x") is None
    assert AnsweredRecords(store, "requeues", "j", keep=8).answer("x") is None


def test_an_error_comes_back_as_its_class() -> None:
    """With its place; one that this version does not know is a PenstockError with the words."""
    records = AnsweredRecords(MemoryStore(), "asks", "j", keep=8)
    records.reply("x", HeldNotFound("no batch 7", where="hdfs://a/j"))
    with pytest.raises(HeldNotFound, match="no batch 7") as raised:
        records.answer("x")
    assert raised.value.where == "hdfs://a/j"
    records.reply("y", {"code": "PEN-NEW-999", "what": "of a later version"})
    with pytest.raises(PenstockError, match="of a later version"):
        records.answer("y")


def test_old_records_go() -> None:
    """As many stay as are looked at."""
    records = AnsweredRecords(MemoryStore(), "asks", "j", keep=4)
    for _ in range(20):
        records.request({"ask": new_id()})
    assert len(records.bodies()) == 4
    assert len({body["ask"] for body in records.bodies()}) == 4
