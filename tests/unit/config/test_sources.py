"""A source that code can make, a file can describe: typed, with errors at the line, and without secrets (F62, F66)."""

from datetime import UTC, datetime

import pytest

from penstock.config.settings import load_settings
from penstock.config.sources import argument_models, kinds_of
from penstock.errors import ConfigError
from penstock.graph.durations import millis, seconds
from penstock.graph.policies import BadRecord, OnGap
from penstock.sources import (
    Avro,
    Csv,
    DeltaTable,
    FileReplay,
    Files,
    Http,
    Json,
    Kafka,
    Rate,
    Raw,
    Socket,
    Start,
)
from penstock.sources.base import Source

TOKEN = "sixteen letters."  # noqa: S105 - of this test
KAFKA = """[sources.orders]
kind = "kafka"
topics = ["orders", "returns"]
servers = "127.0.0.1:9092"
format = { kind = "json", schema = "id long" }
on_gap = "skip"

[sources.orders.options]
security.protocol = "SASL_PLAINTEXT"
"sasl.password" = "${env:ORDERS_PASSWORD}"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project, with the working folder in it."""
    (tmp_path / "conf" / "jobs").mkdir(parents=True)
    (tmp_path / "conf" / "penstock.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(project, text: str):
    """Return the source that a job gets for a file."""
    (project / "conf" / "jobs" / "orders.toml").write_text(text)
    return load_settings(project, "orders")[1].source("orders")


def refused(project, text: str) -> tuple[str, str]:
    """Return where a file is refused, and what is wrong."""
    with pytest.raises(ConfigError) as caught:
        made(project, text)
    return caught.value.where, caught.value.what


def test_a_topic_is_described_as_code_would(project, monkeypatch):
    """Enums by value, a format as a table of its own, settings with dots, and a secret from where it is."""
    monkeypatch.setenv("ORDERS_PASSWORD", "hush")
    assert made(project, KAFKA) == Kafka(
        topics=("orders", "returns"),
        servers="127.0.0.1:9092",
        format=Json("id long"),
        on_gap=OnGap.SKIP,
        options={"security.protocol": "SASL_PLAINTEXT", "sasl.password": "hush"},
    )


FORMATS = {
    '{ kind = "csv", schema = "id long", delimiter = ";", nulls = ["NULL"] }': Csv("id long", ";", ["NULL"]),
    '{ kind = "avro", registry = "http://127.0.0.1:8081", user = "ann", password = "${env:ORDERS_PASSWORD}" }': Avro(
        registry="http://127.0.0.1:8081",
        user="ann",
        password="hush",  # noqa: S106 - no secret
    ),
    """{ kind = "avro", schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}' }""": Avro(
        '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    ),
}


@pytest.mark.parametrize(("table", "form"), FORMATS.items(), ids=["csv", "a registry", "a schema of its own"])
def test_a_format_is_a_table_of_its_kind(project, monkeypatch, table, form):
    """With the arguments of its constructor; one that takes a function has no place in a file."""
    monkeypatch.setenv("ORDERS_PASSWORD", "hush")
    described = made(project, KAFKA.replace('{ kind = "json", schema = "id long" }', table)).format
    assert [list(value) if isinstance(value, tuple) else value for value in _arguments(described)] == _arguments(form)
    _, what = refused(project, KAFKA.replace('"json"', '"arrow_function"'))
    assert "kind is 'arrow_function'; use 'avro' or" in what


def _arguments(form):
    return [getattr(form, name) for name in form.__dataclass_fields__]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('"latest"', Start.LATEST),
        ("2026-11-24T10:00:00Z", datetime(2026, 11, 24, 10, tzinfo=UTC)),
        ("{ orders-0 = 17 }", {"orders-0": 17}),
    ],
)
def test_an_argument_of_several_types_takes_each_of_them(project, monkeypatch, text, start):
    """A choice, a time and a table."""
    monkeypatch.setenv("ORDERS_PASSWORD", "hush")
    assert made(project, KAFKA.replace("on_gap", f"start = {text}\non_gap")).start == start


def test_a_rate_is_described_as_code_would(project):
    """Whole numbers and a duration; a rate below one row is refused at its line."""
    text = '[sources.orders]\nkind = "rate"\nrows_per_second = 1_000\nramp = "30 seconds"\npartitions = 2\n'
    assert made(project, text) == Rate(1_000, ramp=seconds(30), partitions=2)
    where, what = refused(project, text.replace("1_000", "0"))
    assert where == "conf/jobs/orders.toml:3"
    assert "rows_per_second" in what


def test_an_empty_text_may_stand_in_a_list(project):
    """As the default of `nulls` does, which a file may write out."""
    (project / "orders.csv").touch()
    text = '[sources.orders]\nkind = "file_replay"\npath = "orders.csv"\norder_by = "t"\nnulls = ["", "NA"]\n'
    assert made(project, text).nulls == ("", "NA")


@pytest.mark.fault("F66")
@pytest.mark.parametrize(
    ("before", "after", "line", "what"),
    [
        (
            'kind = "kafka"',
            "",
            1,
            "the key 'kind' is missing in [sources.orders]; use 'delta_table' or 'file_replay' or 'files' or 'http' or 'kafka'",
        ),
        ('"skip"', '"skp"', 6, "on_gap is 'skp' in [sources.orders]; use 'fail' or 'skip'"),
        ('"json"', '"jsn"', 5, "kind is 'jsn'; use 'avro' or 'csv' or 'json' or"),
        ('"id long"', '"id nosuchtype"', 5, "schema is 'id nosuchtype': column 'id' has the type 'nosuchtype'"),
        ("schema", "schma", 5, "unknown key 'schma'; did you mean 'schema'?"),
        (
            '{ kind = "json", schema = "id long" }',
            '"json"',
            5,
            "'json' is no table with a `kind`; use 'avro' or 'csv' or 'json' or",
        ),
        ("on_gap", "start = 7\non_gap", 6, "start is 7 in [sources.orders]; it takes 'earliest' or 'latest' or a time"),
        ("on_gap", "start = {orders = 1}\non_gap", 6, "start= has 'orders', which names no partition"),
        ("on_gap", "splits = 0\non_gap", 6, "splits is 0"),
        ('topics = ["orders", "returns"]', "", 1, "Kafka needs one of topics="),
        ('kind = "json", schema = "id long"', 'kind = "avro", schema = "id long"', 5, "not the name of its file"),
        ('kind = "json", schema = "id long"', 'kind = "csv", schema = "id long", delimiter = ";;"', 5, "delimiter"),
    ],
)
def test_what_a_source_does_not_take_is_refused_at_its_line(project, monkeypatch, before, after, line, what):
    """Also what only its constructor knows."""
    monkeypatch.setenv("ORDERS_PASSWORD", "hush")
    where, problem = refused(project, KAFKA.replace(before, after, 1))
    assert (where, what in problem) == (f"conf/jobs/orders.toml:{line}", True), problem


@pytest.mark.fault("F62", "F66")
def test_a_secret_is_named_and_never_written_nor_shown(project, monkeypatch):
    """The file is copied with each version of the code; an error goes to logs."""
    where, what = refused(project, KAFKA.replace("${env:ORDERS_PASSWORD}", "hush"))
    assert where == "conf/jobs/orders.toml:8"
    assert "sasl.password is a secret: write where it is" in what
    assert "hush" not in what
    monkeypatch.delenv("ORDERS_PASSWORD", raising=False)
    assert refused(project, KAFKA)[1] == "there is no secret in the environment variable ORDERS_PASSWORD"


DESCRIBED = {
    "delta_table": ('path = "orders"\nchanges = true\n', lambda root: DeltaTable(root / "orders", changes=True)),
    "file_replay": (
        'path = "orders.csv"\norder_by = "t"\nrows_per_batch = 7\n',
        lambda root: FileReplay(root / "orders.csv", order_by="t", rows_per_batch=7),
    ),
    "files": (
        'path = "orders"\nformat = { kind = "json", schema = "id long" }\nsettle = "2 seconds"\n',
        lambda root: Files(root / "orders", format=Json("id long"), settle=seconds(2)),
    ),
    "http": (
        'port = 8080\ntoken = "${env:ORDERS_TOKEN}"\nschema = "id long"\nwith_columns = ["_row"]\n'
        'block_interval = "50 millis"\n',
        lambda _: Http(port=8080, token=TOKEN, schema="id long", with_columns=("_row",), block_interval=millis(50)),
    ),
    "kafka": (
        'topics = ["orders"]\nservers = "127.0.0.1:9092"\nformat = { kind = "raw" }\n',
        lambda _: Kafka(("orders",), servers="127.0.0.1:9092", format=Raw()),
    ),
    "rate": ("rows_per_second = 9\n", lambda _: Rate(9)),
    "socket": (
        'host = "quotes.example.org"\nport = 7000\nformat = { kind = "json", schema = "id long" }\n'
        'on_bad_record = "fail"\n',
        lambda _: Socket("quotes.example.org", 7000, format=Json("id long"), on_bad_record=BadRecord.FAIL),
    ),
}
"""What a file says of each kind, and the same in code."""


@pytest.fixture
def things(project, monkeypatch):
    """The project with what its files name: a folder, a file and a secret."""
    (project / "orders").mkdir()
    (project / "orders.csv").touch()
    monkeypatch.setenv("ORDERS_TOKEN", TOKEN)
    return project


@pytest.mark.parametrize("kind", DESCRIBED)
def test_each_kind_makes_its_source(things, kind):
    """The source is equal to that of the constructor."""
    keys, in_code = DESCRIBED[kind]
    assert made(things, f'[sources.orders]\nkind = "{kind}"\n{keys}') == in_code(things)


WRONG = [
    ("delta_table", "changes = true", "changes = 1", "changes is 1"),
    ("file_replay", "rows_per_batch = 7", "rows_per_batch = 0", "rows_per_batch is 0"),
    ("files", '"2 seconds"', '"soon"', "settle is 'soon'"),
    ("http", "port = 8080", "port = 0", "port is 0, and no port of TCP"),
    ("http", "port = 8080", 'port = "8080"', "port is '8080'"),
    ("http", "${env:ORDERS_TOKEN}", TOKEN, "token is a secret: write where it is"),
    ("http", "id long", "id nosuchtype", "column 'id' has the type 'nosuchtype'"),
    ("http", "_row", "_path", "with_columns has '_path'"),
    ("http", "50 millis", "0 millis", "block_interval"),
    ("kafka", '["orders"]', '"orders"', "topics is 'orders'"),
    ("rate", "9", "0", "rows_per_second is 0"),
    ("socket", '"quotes.example.org"', "7", "host is 7"),
    ("socket", "7000", "70_000", "port is 70000, and no port of TCP"),
    ("socket", '"json"', '"parquet"', "kind is 'parquet'; use"),
    ("socket", '"fail"', '"drop"', "on_bad_record is 'drop'"),
]
"""Of each kind: a text, what somebody writes instead, and what is wrong then."""


@pytest.mark.fault("F62", "F66")
@pytest.mark.parametrize(("kind", "before", "after", "what"), WRONG)
def test_a_wrong_setting_of_each_kind_is_refused_at_its_line(things, kind, before, after, what):
    """The file knows the types, the constructor the values. No error shows a secret."""
    lines = [f'[sources.orders]\nkind = "{kind}"', *DESCRIBED[kind][0].splitlines()]
    number = next(n for n, line in enumerate(lines) if n and before in line)
    lines[number] = lines[number].replace(before, after)
    where, problem = refused(things, "\n".join(lines))
    assert (where, what in problem) == (f"conf/jobs/orders.toml:{number + 2}", True), problem
    assert TOKEN not in problem


def test_every_source_but_that_of_tests_can_be_described():
    """A class that is offered to code is offered to files, and has its cases above."""
    assert "memory_source" not in kinds_of(Source)
    assert DESCRIBED.keys() == argument_models().keys() == {kind for kind, *_ in WRONG}
