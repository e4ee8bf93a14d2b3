"""Schemas of writers are those of a registry, that of the reader is fixed when the job opens (SEMANTICS 9.1, 9.3)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from avro_writing import encoded, record
from hypothesis import given
from hypothesis import strategies as st
from registry_server import RegistryServer

from penstock.avro import schema_registry
from penstock.errors import (
    EXIT_RETRY,
    CertificateRefused,
    ConfigError,
    SchemaNotFound,
    SourceRefused,
    SourceUnavailable,
)
from penstock.sources.formats.avro import Avro
from penstock.sources.formats.base import Decoded, Format
from tools.certificates import Certificates

FIRST = record(("id", "int"), ("name", "string"))
SECOND = record(("id", "long"), ("name", "string"), ("more", ["null", "double"], None))
OTHER = record(("id", "int"), name="Another")


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().up() as server:
        yield server


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_SECONDS", 1.0)
    monkeypatch.setattr(schema_registry, "_AGAIN", 0.05)
    schema_registry._schema.cache_clear()  # another server may have had the port


def decoded(form: Format, *values: bytes | None) -> Decoded:
    """Decode as a task does, which got the format pickled."""
    return pickle.loads(pickle.dumps(form)).decode(values, form.columns())


def test_records_of_all_writers_are_read_by_one_schema(registry: RegistryServer) -> None:
    """The latest of the topic when the job opens; a writer that comes later changes no column."""
    first = registry.register("orders-value", FIRST)
    form = Avro(registry=registry.url).opened(["orders"])
    second = registry.register("orders-value", SECOND)
    rows = [encoded(FIRST, {"id": 1, "name": "a"}, first), encoded(SECOND, {"id": 2, "name": "b", "more": 0.5}, second)]
    assert form.columns().names == ["id", "name"]
    made = decoded(form, rows[0])
    assert made.rows.to_pylist() == [{"id": 1, "name": "a"}]
    made = decoded(form, *rows)  # a long is no int, also where it is small: that is a matter of the schemas
    assert made.rows["id"].to_pylist() == [1, None]
    assert made.errors is not None
    assert "SchemaResolutionError" in made.errors[1].as_py()
    made = decoded(Avro(registry=registry.url).opened(["orders"]), *rows)
    assert made.rows.to_pylist() == [{"id": 1, "name": "a", "more": None}, {"id": 2, "name": "b", "more": 0.5}]
    assert made.errors is None


def test_the_reader_may_name_its_schema_or_a_subject(registry: RegistryServer) -> None:
    """Then topics may have subjects of other names, or none."""
    number = registry.register("org.example.Order", FIRST)
    value = encoded(FIRST, {"id": 1, "name": "a"}, number)
    for form in (
        Avro(registry=registry.url, subject="org.example.Order"),
        Avro(record(("name", "string")), registry=registry.url),
    ):
        assert decoded(form.opened(["orders"]), value).rows["name"].to_pylist() == ["a"]
    with pytest.raises(ConfigError, match="subject= or schema="):
        Avro(registry=registry.url).opened([])


@pytest.mark.remedy("PEN-SRC-017")
def test_a_topic_without_a_schema_is_named_when_the_job_opens(registry: RegistryServer) -> None:
    """Also one whose schema is of another language; once there is one, the job opens."""
    for subject in ("orders-value", "odd-value"):
        registry.register("odd-value", "{}", kind="JSON")
        with pytest.raises(SchemaNotFound, match=subject):
            Avro(registry=registry.url).opened([subject.removesuffix("-value")])
    registry.register("orders-value", FIRST)
    assert Avro(registry=registry.url).opened(["orders"]).columns().names == ["id", "name"]


def test_topics_of_different_schemas_need_one_to_be_read_by(registry: RegistryServer) -> None:
    """The text may differ, as by blanks."""
    registry.register("a-value", FIRST)
    registry.register("b-value", str(FIRST).replace("'", '"').replace(",", " ,"))
    registry.register("c-value", SECOND)
    assert Avro(registry=registry.url).opened(["a", "b"]).columns().names == ["id", "name"]
    with pytest.raises(ConfigError, match="'a-value' and 'c-value' have different schemas"):
        Avro(registry=registry.url).opened(["a", "b", "c"])


def test_a_schema_may_refer_to_others(registry: RegistryServer) -> None:
    """Each is asked for by subject and version, as are those that it refers to."""
    registry.register("point", record(("x", "int"), name="Point"))
    line = record(("a", "Point"), ("b", "Point"), name="Line")
    registry.register("line", line, references=[{"name": "Point", "subject": "point", "version": 1}])
    shape = record(("line", "Line"), ("at", "Point"), name="Shape")
    references = [
        {"name": "Line", "subject": "line", "version": 1},
        {"name": "Point", "subject": "point", "version": 1},
    ]
    number = registry.register("shapes-value", shape, references=references)
    form = Avro(registry=registry.url).opened(["shapes"])
    row = {"line": {"a": {"x": 1}, "b": {"x": 2}}, "at": {"x": 3}}
    whole = record(
        ("line", record(("a", record(("x", "int"), name="Point")), ("b", "Point"), name="Line")), ("at", "Point"),
        name="Shape",
    )  # fmt: skip
    assert decoded(form, encoded(whole, row, number)).rows.to_pylist() == [row]


def test_a_version_that_was_deleted_is_not_the_latest(registry: RegistryServer) -> None:
    """Its records are read still: a schema is there by its id."""
    registry.register("orders-value", FIRST)
    second = registry.register("orders-value", SECOND)
    registry.delete("orders-value", 2)
    form = Avro(registry=registry.url).opened(["orders"])
    assert form.columns().names == ["id", "name"]
    late = encoded(SECOND, {"id": 2, "name": "b", "more": 0.5}, second)
    assert decoded(Avro(SECOND, registry=registry.url).opened(["orders"]), late).rows["id"].to_pylist() == [2]
    registry.delete("orders-value", 1)
    with pytest.raises(SchemaNotFound, match="orders-value"):
        Avro(registry=registry.url).opened(["orders"])


def test_a_subject_may_have_any_name(registry: RegistryServer) -> None:
    """Its address has it quoted: slashes, blanks, and what is no ASCII."""
    for subject in ("a/b c", "?x=1&y", "größe%20", "a:b"):
        registry.register(subject, FIRST)
        form = Avro(registry=registry.url, subject=subject).opened(["orders"])
        assert form.columns().names == ["id", "name"]


def test_what_the_registry_does_not_know_is_an_error_of_the_record(registry: RegistryServer) -> None:
    """SEMANTICS 9.3: as are a schema that no reader resolves, and bytes without a header; the others are read."""
    number = registry.register("orders-value", FIRST)
    wrong = {
        encoded(FIRST, {"id": 1, "name": "a"}, 99): "schema 99 of the registry: Schema 99 not found",
        encoded(OTHER, {"id": 1}, registry.register("x", OTHER)): "SchemaResolutionError",
        encoded(FIRST, {"id": 1, "name": "a"}, registry.register("x", "{}", kind="JSON")): "it is JSON",
        encoded(FIRST, {"id": 1, "name": "a"}, registry.register("x", '"int"')): "no record with fields",
        encoded(FIRST, {"id": 1, "name": "a"}, registry.register("x", record(("o", ["null", "Order"])))): "inside itself",
        encoded(FIRST, {"id": 1, "name": "a"}): "no zero byte and schema id",
        b"": "no zero byte", b"\0\0\0\0": "no zero byte", None: "has no value",
    }  # fmt: skip
    good = encoded(FIRST, {"id": 1, "name": "a"}, number)
    form = Avro(registry=registry.url).opened(["orders"])
    for value, words in wrong.items():
        made = decoded(form, good, value, good)
        assert made.rows["id"].to_pylist() == [1, None, 1]
        assert made.errors is not None
        assert words in made.errors[1].as_py()


def test_a_schema_is_asked_for_once_a_process(registry: RegistryServer) -> None:
    """One that is not there is asked for again by the next piece of records: it may be registered late."""
    number = registry.register("orders-value", FIRST)
    form = Avro(registry=registry.url).opened(["orders"])
    value = encoded(FIRST, {"id": 1, "name": "a"}, number)
    for _ in range(3):
        decoded(form, value, value)
    assert registry.asked.count(f"/schemas/ids/{number}") == 1
    late = encoded(FIRST, {"id": 2, "name": "b"}, number + 1)
    assert decoded(form, late, late, late).rows["id"].to_pylist() == [None] * 3
    assert registry.asked.count(f"/schemas/ids/{number + 1}") == 1
    assert registry.register("late-value", {**FIRST, "doc": "the same"}) == number + 1
    assert decoded(form, late).rows["id"].to_pylist() == [2]


@pytest.mark.slow
def test_a_registry_that_is_away_is_waited_for(registry: RegistryServer) -> None:
    """A pause, as for a broker: the driver ends with exit code 75. An error that passes is none."""
    number = registry.register("orders-value", FIRST)
    registry.fails = 2
    form = Avro(registry=registry.url).opened(["orders"])
    server = RegistryServer()
    server.register("orders-value", FIRST)
    with server.up():
        other = Avro(registry=server.url).opened(["orders"])
    for ask in (
        lambda: Avro(registry=server.url).opened(["orders"]),
        lambda: decoded(other, encoded(FIRST, {"id": 1, "name": "a"}, 1)),
    ):
        with pytest.raises(SourceUnavailable, match="127.0.0.1") as away:
            ask()
        assert away.value.exit_code == EXIT_RETRY
    with server.up():
        assert decoded(other, encoded(FIRST, {"id": 1, "name": "a"}, 1)).rows["id"].to_pylist() == [1]
    registry.fails = 10**6
    with pytest.raises(SourceUnavailable, match="status 503"):
        decoded(form, encoded(FIRST, {"id": 1, "name": "a"}, number))


def test_a_user_that_the_registry_refuses_is_named() -> None:
    """Before the first batch; no message has the password."""
    secret = {"password": "s3cret"}
    with RegistryServer(login=("ann", "s3cret")).up() as registry:
        registry.register("orders-value", FIRST)
        for login in ({}, {"user": "ann", "password": "wr0ng"}, {"user": "bob", **secret}):
            with pytest.raises(SourceRefused, match="status 401") as refused:
                Avro(registry=registry.url, **login).opened(["orders"])
            assert "s3cret" not in str(refused.value)
        form = Avro(registry=registry.url, user="ann", **secret).opened(["orders"])
        assert form.columns().names == ["id", "name"]
        assert "s3cret" not in repr(form)


@pytest.mark.remedy("PEN-SRC-016")
def test_a_certificate_that_is_not_trusted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the authority in REQUESTS_CA_BUNDLE the registry is asked."""
    own = Certificates.made(tmp_path / "own")
    with RegistryServer(tls=own.server_context).up() as registry:
        registry.register("orders-value", FIRST)
        form = Avro(registry=registry.url)
        with pytest.raises(CertificateRefused, match="certificate verify failed"):
            form.opened(["orders"])
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(own.authority))
        assert form.opened(["orders"]).columns().names == ["id", "name"]


def test_a_server_that_is_no_registry_is_named(registry: RegistryServer) -> None:
    """Its 404 does not say that a schema is not there, and quarantines no record."""
    with pytest.raises(SourceRefused, match="no schema registry"):
        Avro(registry=f"{registry.url}/elsewhere").opened(["orders"])
    with pytest.raises(SourceRefused, match="127.0.0.1:99999"):
        Avro(registry="http://127.0.0.1:99999").opened(["orders"])


@given(st.lists(st.binary(max_size=12), max_size=4))
def test_nothing_that_a_record_holds_raises(values: list[bytes]) -> None:
    """Behind the header of a schema that is there, and without."""
    with RegistryServer().up() as registry:
        number = registry.register("orders-value", FIRST)
        form = Avro(registry=registry.url).opened(["orders"])
        head = b"\0" + number.to_bytes(4, "big")
        records = [*values, *(head + value for value in values)]
        made = decoded(form, *records)
        for i, value in enumerate(records):
            alone = decoded(form, value)
            assert made.rows.slice(i, 1).to_pylist() == alone.rows.to_pylist()
