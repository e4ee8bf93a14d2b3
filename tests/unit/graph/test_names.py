"""Names of steps and of key columns are checked at the user's line (F61)."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from penstock.errors import BadName, DuplicateName, JobError
from penstock.graph.names import checked_columns, checked_name, is_name


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "a/b", "a" * 64, None])
def test_a_name_is_plain(name: Any) -> None:
    """State, offsets and receipts are stored under it."""
    assert checked_name("a_1", "a step") == "a_1"
    assert name is None or not is_name(name)
    with pytest.raises(BadName, match="a step is named") as met:
        checked_name(name, "a step")
    assert __file__ in str(met.value.where)


@pytest.mark.parametrize("columns", ["id", [], 5, ["lower(id)"], [1]])
def test_key_columns_are_a_list_of_names(columns: Any) -> None:
    """The error has the argument and the step."""
    assert checked_columns(["b", "a"], "on=", "join 'j'") == ("b", "a")
    with pytest.raises(JobError, match="on= of join 'j'") as met:
        checked_columns(columns, "on=", "join 'j'")
    assert __file__ in str(met.value.where)


def test_a_key_column_is_named_once() -> None:
    """A second time it would say nothing."""
    with pytest.raises(DuplicateName, match="twice"):
        checked_columns(["id", "id"], "on=", "join 'j'")


def test_a_key_column_may_be_a_member_of_an_enum_of_texts() -> None:
    """Its text is the column; Spark, Arrow and the checkpoint see nothing else."""

    class Columns(str, Enum):  # noqa: UP042 - people have these; a StrEnum is a text already
        USER = "user"

    names = checked_columns([Columns.USER, "b"], "by=", "deduplicate 'd'")
    assert names == ("user", "b")
    assert [type(name) for name in names] == [str, str]
    with pytest.raises(DuplicateName, match="twice"):
        checked_columns([Columns.USER, "user"], "by=", "deduplicate 'd'")
