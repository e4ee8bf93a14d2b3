"""What a constructor is given has the type that it says: else a policy would be another one in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge

from penstock import seconds, sinks, sources
from penstock.errors import ConfigError
from penstock.graph.argument_types import refuse_other_types
from penstock.graph.durations import Duration
from penstock.graph.policies import OnGap
from penstock.receivers import Receiver
from penstock.sources import Start
from penstock.sources.file.reader import AtMost


@dataclass
class Made:
    """One field of each kind of annotation."""

    count: Annotated[int, Ge(1)] = 1
    share: float = 0.5
    flag: bool = False
    name: str | None = None
    path: str | Path = "a"
    columns: Sequence[str] = ()
    options: Mapping[str, int] = field(default_factory=dict)
    pair: tuple[str, int] = ("a", 1)
    on_gap: OnGap = OnGap.FAIL
    start: Literal[Start.EARLIEST, Start.LATEST] | Duration = Start.EARLIEST
    kind: type[ValueError] = ValueError
    fn: Callable[[int], int] = abs
    anything: Any = None
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        refuse_other_types(self)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"count": 10**30, "share": 1, "flag": True},
        {"name": "", "path": Path("b"), "columns": ["a", "b"], "options": {"a": 1}, "pair": ("b", 2)},
        {"on_gap": OnGap.SKIP, "start": Start.LATEST, "kind": UnicodeError, "fn": Path, "anything": object()},
        {"start": seconds(1), "share": float("nan")},
    ],
)
def test_a_value_of_the_type_is_taken(arguments: dict[str, Any]) -> None:
    """Whether it is in range, the constructor says itself."""
    assert Made(**arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"on_gap": "fail"}, "on_gap is 'fail', and takes OnGap.FAIL or OnGap.SKIP"),
        ({"on_gap": None}, "on_gap is None, and takes OnGap.FAIL or OnGap.SKIP"),
        ({"count": True}, "count is True, and takes a whole number"),
        ({"count": 1.0}, "count is 1.0, and takes a whole number"),
        ({"count": "1"}, "count is '1', and takes a whole number"),
        ({"share": True}, "share is True, and takes a number"),
        ({"flag": 1}, "flag is 1, and takes True or False"),
        ({"name": b"a"}, "name is b'a', and takes a text or None"),
        ({"path": 3}, "path is 3, and takes a text or Path"),
        ({"columns": "ab"}, "columns='ab' is a text; write columns=['ab']"),
        ({"columns": ["a", 1]}, "columns is ['a', 1], and takes a list of a text"),
        ({"columns": b"ab"}, "columns is b'ab', and takes a list of a text"),
        ({"options": {"a": "1"}}, "options is {'a': '1'}, and takes a mapping"),
        ({"options": []}, "options is [], and takes a mapping"),
        ({"pair": ("a", 1, 2)}, "pair is ('a', 1, 2), and takes tuple"),
        ({"start": Start.SNAPSHOT}, "start is <Start.SNAPSHOT"),
        ({"start": "latest"}, "start is 'latest', and takes Start.EARLIEST or Start.LATEST or Duration"),
        ({"kind": KeyError}, "kind is <class 'KeyError'>, and takes a class of ValueError"),
        ({"fn": 1}, "fn is 1, and takes Callable"),
        ({"token": b"secret"}, "token is of type bytes, and takes a text"),
    ],
)
def test_a_value_of_another_type_is_refused(arguments: dict[str, Any], problem: str) -> None:
    """The message names the field, the value and what it takes."""
    with pytest.raises(ConfigError) as raised:
        Made(**arguments)
    assert problem in raised.value.what


class _Idle(Receiver):
    def on_start(self) -> None:
        """Receive nothing."""


_AVRO = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
_JSON = sources.Json("a int")
PUBLIC: list[tuple[Any, dict[str, Any]]] = [
    (AtMost, {"files": 1}),
    (sources.ArrowFunction, {"fn": abs, "output": "a int"}),
    (sources.Avro, {"schema": _AVRO}),
    (sources.Csv, {"schema": "a int"}),
    (sources.DeltaTable, {"path": "t"}),
    (sources.FileReplay, {"path": "a.csv", "order_by": "a"}),
    (sources.Files, {"path": "in", "format": _JSON}),
    (sources.Http, {"port": 8080, "token": "0123456789abcdef", "schema": "a int"}),
    (sources.Json, {"schema": "a int"}),
    (sources.Kafka, {"topics": ["t"], "servers": "localhost:9", "format": _JSON}),
    (sources.Parquet, {"schema": "a int"}),
    (sources.Rate, {"rows_per_second": 1}),
    (sources.Receive, {"receiver": _Idle, "schema": "a int"}),
    (sources.Socket, {"host": "localhost", "port": 9, "format": _JSON}),
    (sources.Version, {"number": 1}),
    (sinks.Avro, {"schema": _AVRO}),
    (sinks.Console, {}),
    (sinks.Delta, {"path": "t"}),
    (sinks.Json, {}),
    (sinks.Kafka, {"topic": "t", "servers": "localhost:9"}),
    (sinks.NewTopic, {"partitions": 1}),
    (sinks.Postgres, {"dsn": "postgresql://localhost", "table": "t"}),
    (sinks.Raw, {}),
    (sinks.Text, {}),
]


@pytest.mark.parametrize(
    ("made", "arguments", "name"),
    [
        pytest.param(made, arguments, of.name, id=f"{made.__module__.split('.')[1]}.{made.__name__}({of.name})")
        for made, arguments in PUBLIC
        for of in fields(made)
        if of.init
    ],
)
def test_every_source_and_sink_refuses_other_types(made: Any, arguments: dict[str, Any], name: str) -> None:
    """`on_rewrite="fail"` would pass over rows that a version rewrites, and `mode="upsert"` append."""
    assert made(**arguments)
    for wrong in (object(), True if "bool" not in str(made.__annotations__[name]) else 1, b"fail"):
        with pytest.raises(ConfigError) as raised:
            made(**{**arguments, name: wrong})
        assert name in raised.value.what


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (sources.DeltaTable, "path"),
        (sources.Files, "path"),
        (sources.Kafka, "servers"),
        (sinks.Delta, "path"),
        (sinks.Kafka, "servers"),
    ],
)
def test_an_empty_text_names_no_place(made: Any, name: str) -> None:
    """As a path it would be the folder that the driver is in, as where a variable of the environment is not set."""
    arguments = next(arguments for other, arguments in PUBLIC if other is made)
    with pytest.raises(ConfigError, match=f"{name} is empty"):
        made(**{**arguments, name: ""})
