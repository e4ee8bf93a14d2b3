"""Connect to a PostgreSQL server: what its errors mean to a job, and what none of them shows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import (
    DatabaseDenied,
    DatabaseNotFound,
    PenstockError,
    SinkUnavailable,
)
from penstock.sinks import Postgres
from tools.postgres_server import PASSWORD

PAIRS = pa.schema([("k", pa.int64()), ("v", pa.string())])
AWAY = f"postgresql://user:{PASSWORD}@127.0.0.1:1/database"


@pytest.mark.fault("F62")
@pytest.mark.parametrize("dsn", [AWAY, f"postgres//user:{PASSWORD}@host", f"host=x password='{PASSWORD}"])
def test_nothing_shows_the_password(dsn: str) -> None:
    """Neither its texts nor the errors of a dsn that cannot be read, or of a server that is away."""
    sink = Postgres(dsn, "sales.orders")
    texts = [repr(sink), sink.describe()]
    for ask in (sink.place, lambda: sink.check(PAIRS)):
        try:
            texts.append(str(ask()))
        except PenstockError as why:
            texts += [str(why), repr(why), str(why.__cause__), str(why.__context__)]
    assert len(texts) > 3
    assert not [text for text in texts if PASSWORD in text]


@pytest.mark.fault("F57")
def test_a_server_that_is_away_pauses_the_stream() -> None:
    """It ends for a retry."""
    with pytest.raises(SinkUnavailable) as caught:
        Postgres(AWAY, "t").check(PAIRS)
    assert caught.value.exit_code == 75


@pytest.mark.integration
@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ({"password": "wrong"}, DatabaseDenied),
        ({"user": "nobody_knows"}, DatabaseDenied),
        ({"database": "nowhere"}, DatabaseNotFound),
    ],
    ids=["password", "user", "database"],
)
def test_what_a_dsn_has_wrong_is_named_before_the_first_batch(
    postgres: Any, dsn: dict[str, str], error: type[Exception]
) -> None:
    """Each ends for a person, with a remedy."""
    with pytest.raises(error) as caught:
        Postgres(postgres.dsn(**dsn), "t").check(PAIRS)
    assert caught.value.exit_code == 78  # type: ignore[attr-defined]
