"""A table of PostgreSQL as a sink: what it asks before the first batch, and what it never shows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from postgres_writing import Writing

from penstock.errors import (
    ConfigError,
)
from penstock.sinks import Mode, Postgres
from tools.postgres_server import PASSWORD

PAIRS = pa.schema([("k", pa.int64()), ("v", pa.string())])
AWAY = f"postgresql://user:{PASSWORD}@127.0.0.1:1/database"


@pytest.mark.parametrize("named", [{"mode": Mode.UPSERT}, {"keys": ["k"]}, {"mode": Mode.UPSERT, "keys": "k"}], ids=str)
def test_keys_and_mode_go_together(named: dict[str, Any]) -> None:
    """An upsert without keys, keys without an upsert, and one name where names belong."""
    with pytest.raises(ConfigError, match="keys"):
        Postgres(AWAY, "t", **named)


def test_a_sink_goes_to_other_processes_whole() -> None:
    """As commands take it."""
    sink = Postgres(AWAY, "t", mode=Mode.UPSERT, keys=["k"])
    assert pickle.loads(pickle.dumps(sink)) == sink


@pytest.mark.integration
def test_a_name_may_have_any_letters_and_a_schema(postgres: Any, tmp_path: Path) -> None:
    """Names are quoted: capitals, blanks and quotes are letters as others."""
    postgres.ask('CREATE SCHEMA IF NOT EXISTS "Sales"')
    table = f'{postgres.new_name()} "It\'s"'
    quoted = table.replace('"', '""')
    writing = Writing(tmp_path, postgres, f"Sales.{table}")
    writing.publish(0, pa.table({'a "b"; %s': [1]}))
    assert postgres.ask(f'SELECT * FROM "Sales"."{quoted}"') == [(1,)]  # noqa: S608 - a name of ours
    assert writing.publisher().version("nobody") is None
