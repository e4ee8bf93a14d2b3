"""Avro by a schema registry that others have written, and by the one of the tests, which answers alike (decision 143)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import requests
from avro_writing import encoded, record
from kafka_reading import all_rows, reader_of
from registry_server import RegistryServer

from penstock.errors import SchemaNotFound
from penstock.sinks import Avro as ToAvro
from penstock.sources.formats import Avro
from tools.apicurio_server import ApicurioServer

pytestmark = pytest.mark.soak

FIRST = record(("id", "int"), ("name", "string"))
SECOND = record(("id", "int"), ("name", "string"), ("more", ["null", "double"], None))
POINT = record(("x", "int"), name="Point")
LINE = record(("a", "Point"), ("b", "Point"), name="Line")
TO_POINT = [{"name": "Point", "subject": "point", "version": 1}]


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioServer]:
    """Return the registry, up."""
    server = ApicurioServer(tmp_path_factory.mktemp("registry"))
    try:
        server.start()
        yield server
    finally:
        server.end()


def register(apicurio: ApicurioServer, subject: str, schema: Any, **more: Any) -> int:
    """Return the id of a schema that is a subject's next version."""
    body = {"schema": json.dumps(schema), **more}
    answer = apicurio.ask("POST", f"/subjects/{requests.utils.quote(subject, safe='')}/versions", json=body)
    assert answer.ok, answer.text
    return int(answer.json()["id"])


def test_records_of_a_topic_are_read_by_its_schemas(apicurio: ApicurioServer, kafka: Any, topic: str) -> None:
    """Of two writers, by the latest schema; a schema that it does not have is an error of the record."""
    subject = f"{topic}-value"
    first, second = (register(apicurio, subject, schema) for schema in (FIRST, SECOND))
    kafka.create(topic)
    values = [
        encoded(FIRST, {"id": 1, "name": "a"}, first),
        encoded(SECOND, {"id": 2, "name": "b", "more": 0.5}, second),
        encoded(FIRST, {"id": 3, "name": "c"}, 9_999),
    ]
    kafka.produce(topic, values)
    form = Avro(registry=apicurio.url).opened([topic])
    rows = all_rows(reader_of(kafka, topic, form=form))
    assert rows.select(["id", "name", "more"]).to_pylist()[:2] == [
        {"id": 1, "name": "a", "more": None},
        {"id": 2, "name": "b", "more": 0.5},
    ]
    errors = rows["_penstock_error"].to_pylist()
    assert errors[:2] == [None, None]
    assert "schema 9999 of the registry" in errors[2]
    with pytest.raises(SchemaNotFound, match="nothing-value"):
        Avro(registry=apicurio.url).opened(["nothing"])


def test_schemas_may_refer_to_others(apicurio: ApicurioServer) -> None:
    """By subject and version, and by names that an address has quoted."""
    register(apicurio, "point", POINT)
    number = register(apicurio, "a line/of b", LINE, references=TO_POINT)
    form = Avro(registry=apicurio.url, subject="a line/of b").opened(["lines"])
    whole = record(("a", POINT), ("b", "Point"), name="Line")
    row = {"a": {"x": 1}, "b": {"x": 2}}
    assert form.decode([encoded(whole, row, number)], form.columns()).rows.to_pylist() == [row]


def test_what_a_sink_encodes_is_read_back(apicurio: ApicurioServer) -> None:
    """With the id of the registry before it."""
    number = register(apicurio, "written-value", FIRST)
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"]})
    encoder = ToAvro(registry=apicurio.url, subject="written-value")
    encoder.check(rows.schema)
    values = encoder.encode(rows).to_pylist()
    assert {value[:5] for value in values} == {b"\0" + number.to_bytes(4, "big")}
    form = Avro(registry=apicurio.url).opened(["written"])
    assert form.decode(values, form.columns()).rows.to_pylist() == rows.to_pylist()


def test_the_registry_of_the_tests_answers_alike(apicurio: ApicurioServer) -> None:
    """Status, number of the error and members of the answer; so other tests need no server of others."""
    other = RegistryServer()
    for subject, schema, more in (
        ("alike", FIRST, {}), ("alike", SECOND, {}), ("alike", FIRST, {}), ("same", FIRST, {}), ("gone", FIRST, {}),
        ("half", FIRST, {}), ("half", SECOND, {}), ("point", POINT, {}), ("alike line", LINE, {"references": TO_POINT}),
    ):  # fmt: skip
        register(apicurio, subject, schema, **more)
        other.register(subject, schema, **more)
    for subject, version in (("gone", 1), ("half", 2)):
        apicurio.ask("DELETE", f"/subjects/{subject}/versions/{version}")
        other.delete(subject, version)
    paths = [
        *(f"/subjects/alike/versions/{version}" for version in ("1", "2", "latest", "9")),
        *(f"/subjects/{subject}/versions/latest" for subject in ("same", "gone", "half", "none", "alike%20line")),
        *(f"/subjects/half/versions/{version}" for version in (1, 2)), "/schemas/ids/99999",
    ]  # fmt: skip
    with other.up():
        for path in paths:
            theirs = apicurio.ask("GET", path)
            ours = requests.get(other.url + path, timeout=20)
            assert answer_of(ours) == answer_of(theirs), path


def answer_of(response: requests.Response) -> dict[str, Any]:
    """Return what a reader uses of an answer, but for ids, which no two registries have in common."""
    body = response.json()
    used = {name: body.get(name) or None for name in ("error_code", "subject", "version", "references")}
    schema = json.loads(body["schema"]) if "schema" in body else None
    return {"status": response.status_code, "kind": body.get("schemaType", "AVRO"), "schema": schema, **used}
