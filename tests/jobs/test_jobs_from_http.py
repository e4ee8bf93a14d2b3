"""A job drops the requests that a sender repeats, through deaths of its receiver and of its driver (SEMANTICS 9, F47)."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pushing import until

from penstock import Job, hours, minutes
from penstock.errors import CannotListen, JobError
from penstock.receivers.block_log import BEGINNING
from penstock.runtime.driver.retention import Retention
from penstock.runtime.process import receiving
from penstock.sinks import MemorySink
from penstock.sources import Http
from penstock.testing import Crashed, Harness
from tools.waiting import free_port

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOKEN = "sixteen letters."  # noqa: S105 - of this test


def job_on(port: int) -> Job:
    """Return a job that takes rows on a port, and drops those that are sent again."""
    job = Job("pushed", partitions=2)
    source = Http(port=port, token=TOKEN, schema="k long, at timestamp", with_columns=["_request", "_row"])
    rows = job.source("rows", source, event_time="at", max_out_of_order=minutes(1))
    rows.deduplicate("once", by=["_request", "_row"], within=hours(1)).write("out", MemorySink())
    return job


def post(port: int, request: int, *, repeated: int = 2) -> None:
    """Post two rows as one request until it was answered with 200 so many times, always with the same id."""
    lines = [{"k": 2 * request + row, "at": "1970-01-01T00:00:01Z"} for row in range(2)]
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/x-ndjson",
        "X-Request-Id": f"request-{request}",
    }

    def answered() -> bool:
        with suppress(OSError), closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("POST", "/", "\n".join(map(json.dumps, lines)), headers)
            return connection.getresponse().status == 200
        return False

    for _ in range(repeated):
        until(answered)


def test_a_port_that_is_taken_ends_the_run_before_its_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its source; and the next run receives, when the port is free."""
    monkeypatch.setattr(receiving, "_ENDING", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = rf"PEN-SRC-040 no receiver can listen on 127.0.0.1:{port}: Address already in use \(source 'rows'\)"
        with pytest.raises(CannotListen, match=taken), Harness(job_on(port), tmp_path / "root"):
            raise AssertionError
    with Harness(job_on(port), tmp_path / "root") as harness:
        with pytest.raises(JobError, match="no batch was committed yet"):
            harness.commit()
        post(port, 0)
        harness.run()
        assert len(harness.output()["out"]) == 2


@pytest.mark.fault("F01", "F47")
def test_a_request_that_is_repeated_is_in_the_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after its first rows were read; after SIGKILL of the receiver; and after another driver's start."""
    monkeypatch.setattr(Retention, "_sweep_blocks", lambda _: 0)  # all are counted in the end
    port = free_port()
    with Harness(job_on(port), tmp_path / "root") as harness:
        for request in range(3):
            post(port, request)
        harness.run()
        os.kill(until(harness._running().receivers.pids)[0], signal.SIGKILL)
        for request in range(1, 5):
            post(port, request)
        harness.run()
        for request in range(2, 6):
            post(port, request)
        assert len(harness.output()["out"]) == 10
        harness.crash_after("Compute")
        with pytest.raises(Crashed):
            harness.batch()
        harness.restart()
        for request in range(6):
            post(port, request, repeated=1)
        harness.run()
        log = harness._running().engine.readers["rows"].log("0")
        kept = sum(block.rows for _, block in log.follow(BEGINNING))
        assert sorted(row["k"] for row in harness.output()["out"]) == [*range(12)]
        assert kept >= 2 * (6 + 8 + 8 + 6)
        assert harness.commit().totals["deduplicate:once"]["duplicates"] == kept - 12
