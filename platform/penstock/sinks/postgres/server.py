"""Connect to PostgreSQL, and say what its errors mean to a job; no text of an error holds the dsn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    ConfigError,
    DatabaseDenied,
    DatabaseNotFound,
    PenstockError,
    SinkBusy,
    SinkRefused,
    SinkSchemaMismatch,
    SinkUnavailable,
)

if TYPE_CHECKING:
    import psycopg

__all__ = ["connect", "named_errors", "place_of", "settings_of"]

_SESSION = "-c lock_timeout=10s -c idle_in_transaction_session_timeout=60s -c TimeZone=UTC -c DateStyle=ISO"
"""A driver that hangs keeps no lock for longer than a minute, and nobody waits for it without end."""
_DEFAULTS = {"connect_timeout": "10", "keepalives_idle": "30", "tcp_user_timeout": "60000"}
_DENIED = ("28", "42501")
_NOT_FOUND = ("3D", "3F", "42P01")
_BUSY = ("40", "53", "55P03", "57014", "25P03")
_MISMATCH = ("42703", "42804", "42846")


def settings_of(dsn: str) -> dict[str, Any]:
    """Return what a dsn says, as libpq reads it.

    Raises ConfigError where psycopg is missing or the dsn cannot be read; the message does not repeat it.
    """
    try:
        import psycopg
    except ModuleNotFoundError as why:
        raise ConfigError("a Postgres sink needs the package psycopg: pip install penstock[postgres]") from why
    try:
        return dict(psycopg.conninfo.conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        wrong = True  # the error repeats a part of the dsn, so it is no cause of the next
    assert wrong
    raise ConfigError("the dsn of a Postgres sink is no connection string, as in postgresql://user@host:5432/database")


def place_of(dsn: str) -> str:
    """Return server and database, without user and password."""
    said = settings_of(dsn)
    where = said.get("service") or said.get("host") or said.get("hostaddr") or "localhost"
    return f"postgresql://{where}:{said.get('port', 5432)}/{said.get('dbname') or said.get('user') or ''}"


def connect(dsn: str) -> psycopg.Connection[Any]:
    """Return a new connection, which begins a transaction with its first statement.

    Raises SinkUnavailable where the server does not answer, DatabaseDenied and DatabaseNotFound.
    """
    said = settings_of(dsn)
    import psycopg

    options = f"{said.get('options', '')} {_SESSION}".strip()
    with named_errors(place_of(dsn)):
        connection = psycopg.connect(
            **{**_DEFAULTS, "application_name": "penstock", **said, "options": options}, client_encoding="UTF8"
        )
        connection.prepare_threshold = None  # a pooler may give each transaction another session
        return connection


@contextmanager
def named_errors(where: str) -> Iterator[None]:
    """Raise the errors of the server as those of a sink."""
    import psycopg

    try:
        yield
    except psycopg.Error as why:
        raise _meant(why, where) from why


def _meant(why: psycopg.Error, where: str) -> PenstockError:
    """Return what an error means; a connection that ends without a reason leaves open what it has committed."""
    import psycopg

    state = why.sqlstate or ""
    text = (why.diag.message_primary or str(why) or type(why).__name__).strip().splitlines()[0]
    if not state:  # libpq gives no code for what the server says before a session begins
        state = _said_at_the_door(str(why))
    if state.startswith(_DENIED):
        return DatabaseDenied(f"the server rejects the user: {text}", where=where)
    if state.startswith(_NOT_FOUND):
        return DatabaseNotFound(text, where=where)
    if state.startswith(_BUSY):
        return SinkBusy(f"the server cannot take the batch yet: {text}", where=where, retry_after=1.0)
    if state.startswith(_MISMATCH):
        return SinkSchemaMismatch(text, where=where)
    if state.startswith(("08", "57", "58", "25006", "XX")) or (not state and isinstance(why, psycopg.OperationalError)):
        return SinkUnavailable(f"the server does not answer: {text}", where=where)
    return SinkRefused(f"the server refuses: {text} ({state or type(why).__name__})", where=where)


def _said_at_the_door(text: str) -> str:
    if "authentication failed" in text or "no pg_hba.conf entry" in text or "no password supplied" in text:
        return "28000"
    if "FATAL" in text and "does not exist" in text:
        return "28000" if "role " in text else "3D000"
    if "permission denied for database" in text:
        return "42501"
    return "53300" if "too many clients" in text or "remaining connection slots" in text else ""
