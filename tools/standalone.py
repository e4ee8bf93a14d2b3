"""Run Airflow on loopback for the demo and the tests, and speak to its REST interface.

It is what `airflow standalone` runs, part by part: that command has two of them serve logs to other machines, from
fixed ports of every address. Each part has a session of its own, because what it starts survives a signal to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from penstock.runtime.process.os_processes import kill_session, process_start, session_members
from tools.waiting import free_port

__all__ = ["Standalone", "StandaloneFailed"]

_UP_WITHIN = 240.0
_DYING = 30.0
_TRIES = 5
_PATIENT_DATABASE = 15
"""Seconds that SQLite waits for its lock; its own five are too few for Airflow on a busy machine.

Now and then two requests wait for each other, and all of Airflow for them, until this is over."""
_PATIENT_REQUEST = _PATIENT_DATABASE + 30.0
"""Longer, so that Airflow itself can say that it did not get the lock."""
_PARTS = {
    "api-server": (),
    "scheduler": ("--skip-serve-logs",),
    "dag-processor": (),
    "triggerer": ("--skip-serve-logs",),
}
"""The first is what answers."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StandaloneFailed(Exception):
    """Airflow did not come up, or something in it did not happen in time."""


class Standalone:
    """Airflow with the DAGs of one folder; `home` is emptied of nothing and takes its database and logs.

    It runs as many tasks at once as it has `slots`, and reads each DAG file again after `parse_every` seconds.
    """

    user = "admin"

    def __init__(
        self, home: Path, dags: Path, *, env: Mapping[str, str], slots: int = 4, parse_every: int = 30
    ) -> None:
        self.home = home
        self.slots = slots
        self.port = free_port()
        self.password = secrets.token_urlsafe(12)
        self.url = f"http://127.0.0.1:{self.port}"
        self._env = {**env, **self._settings(dags, parse_every=parse_every)}
        self._processes: list[tuple[subprocess.Popen[bytes], str]] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._http = httpx.Client(base_url=self.url, timeout=_PATIENT_REQUEST)
        self._token: str | None = None

    def __enter__(self) -> Self:
        """Start it, and wait until it answers."""
        self.home.mkdir(parents=True, exist_ok=True)
        passwords = self.home / "simple_auth_manager_passwords.json.generated"
        passwords.write_text(json.dumps({self.user: self.password}))
        try:
            self._make_database()
            for part in _PARTS:
                self.run(part)
            self.until(self._is_up, "Airflow to answer", seconds=_UP_WITHIN)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all of it; a second Ctrl-C does not leave half of it."""
        self.end()

    def end(self) -> None:
        """End every process of Airflow."""
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDING}
        try:
            self._http.close()
            for process, start in self._processes:
                kill_session(process.pid, start, within=_DYING)
                process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, part: str) -> None:
        """Start a part of this Airflow; it ends with the block, with all that it starts."""
        self._start(part, part, *_PARTS[part])

    def members(self) -> list[int]:
        """Return all processes of this Airflow."""
        return [pid for process, _ in self._processes for pid in session_members(process.pid)]

    # --- REST --------------------------------------------------------------------------------
    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request that must succeed, and that may be sent again."""
        return self._content(self.ask(method, path, body), method, path)

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Return the answer to a request that may be sent again, whatever it is.

        It is sent again where Airflow is broken or silent: on SQLite, where two of its parts write at once.
        """
        for _ in range(_TRIES - 1):
            with contextlib.suppress(httpx.HTTPError):
                answer = self._once(method, path, body)
                if not answer.is_server_error:
                    return answer
            time.sleep(1.0)
        return self._once(method, path, body)

    def trigger(self, dag: str, **conf: Any) -> str:
        """Trigger a DAG with what its form would send; return the run."""
        run = f"manual__{secrets.token_hex(8)}"
        path = f"/dags/{dag}/dagRuns"
        answer = self.ask("POST", path, {"dag_run_id": run, "logical_date": None, "conf": conf})
        if answer.status_code != httpx.codes.CONFLICT:  # it landed at a try that was answered with an error
            self._content(answer, "POST", path)
        return run

    def parse(self, dag: str) -> None:
        """Have the file of a DAG read again, ahead of its time; a request that waits already is not made again."""
        token = self.call("GET", f"/dags/{dag}/details")["file_token"]
        answer = self.ask("PUT", f"/parseDagFile/{token}")
        if answer.status_code != httpx.codes.CONFLICT:
            self._content(answer, "PUT", "/parseDagFile")

    def state(self, dag: str, run: str) -> str:
        """Return the state of a run."""
        return str(self.call("GET", f"/dags/{dag}/dagRuns/{run}")["state"])

    def tasks(self, dag: str, run: str) -> dict[str, tuple[str | None, int]]:
        """Return state and try of each task of a run."""
        instances = self.call("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        return {task["task_id"]: (task["state"], task["try_number"]) for task in instances}

    def log(self, dag: str, run: str, task: str, attempt: int = 1, *, place: int = -1) -> str:
        """Return what a try of a task has logged; `place` is that of a mapped one."""
        path = f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/{attempt}?map_index={place}"
        lines = self.call("GET", path)["content"]
        return "\n".join(json.dumps(line) if isinstance(line, dict) else str(line) for line in lines)

    def until(self, holds: Callable[[], bool], what: str, *, seconds: float) -> None:
        """Wait until something holds."""
        ends = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > ends:
                raise StandaloneFailed(f"waited {seconds:g} s for {what}; see the logs in {self.home.name}")
            if self._server is not None and (code := self._server.poll()) is not None:
                raise StandaloneFailed(f"Airflow ended with {code}; see {self.home.name}/api-server.log")
            time.sleep(0.5)

    def has_dag(self, dag: str) -> bool:
        """Return whether a DAG is known; StandaloneFailed where a DAG file cannot be read."""
        errors = self.call("GET", "/importErrors")["import_errors"]
        if errors:
            raise StandaloneFailed(errors[0]["stack_trace"])
        return self.ask("GET", f"/dags/{dag}").is_success

    # --- inside ------------------------------------------------------------------------------
    def _make_database(self) -> None:
        made = self._start("database", "db", "migrate")
        with contextlib.suppress(subprocess.TimeoutExpired):
            made.wait(_UP_WITHIN)
        if made.poll() != 0:
            raise StandaloneFailed(f"Airflow made no database; see {self.home.name}/database.log")

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "airflow", *words],
                cwd=self.home,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append((process, process_start(process.pid)))
        if name == next(iter(_PARTS)):
            self._server = process
        return process

    def _once(self, method: str, path: str, body: Any) -> httpx.Response:
        if self._token is None:
            login = {"username": self.user, "password": self.password}
            self._token = self._http.post("/auth/token", json=login).raise_for_status().json()["access_token"]
        headers = {"Authorization": f"Bearer {self._token}"}
        return self._http.request(method, f"/api/v2{path}", json=body, headers=headers)

    def _content(self, answer: httpx.Response, method: str, path: str) -> Any:
        if answer.is_error:
            raise StandaloneFailed(f"{method} {path} was answered with {answer.status_code}: {answer.text[:2_000]}")
        return answer.json() if answer.content else None

    def _is_up(self) -> bool:
        try:
            return self._http.get("/api/v2/version").is_success
        except httpx.TransportError:
            return False

    def _settings(self, dags: Path, *, parse_every: int) -> dict[str, str]:
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home.resolve()}/airflow.db?timeout={_PATIENT_DATABASE}",
            "AIRFLOW__CORE__PARALLELISM": str(self.slots),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": str(parse_every),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": str(parse_every),
            "AIRFLOW__TRIGGERER__CAPACITY": "10",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        }
