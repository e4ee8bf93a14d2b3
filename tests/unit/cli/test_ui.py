"""`penstock ui` serves the pages on loopback alone, to browsers that mean it."""

from __future__ import annotations

import importlib.util
import re
import signal
import socket

import httpx
import pytest
from cli_runner import Shell
from project_samples import make_project
from typer.testing import CliRunner

from penstock.cli.main import app


@pytest.fixture
def shell(tmp_path):
    """A project to look at."""
    project = Shell(make_project(tmp_path / "project", rows=10))
    yield project
    project.end()


@pytest.mark.slow
def test_the_pages_are_served_on_loopback_until_ctrl_c(shell):
    """Under the names of loopback and no other, so that no page from elsewhere can read them (DNS rebinding)."""
    process = shell.start("ui", "--port", "0")
    line = process.stdout.readline()
    port = int(re.fullmatch(r"Streams of project: http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)\n", line)[1])
    url = f"http://127.0.0.1:{port}/"
    assert "No stream was started yet" in httpx.get(url).text
    for name, code in {
        "localhost": 200,
        f"localhost:{port}": 200,
        "evil.example": 400,
        f"evil.example:{port}": 400,
        "": 400,
    }.items():
        assert httpx.get(url, headers={"Host": name}).status_code == code, name
    assert httpx.post(url).status_code == 405
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=30)[1], process.returncode) == ("", 0)


def test_a_port_that_is_taken_is_named(shell):
    """And how to get another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(app, ["ui", "--port", str(taken.getsockname()[1]), "--project", str(shell.root)])
    assert result.exit_code == 2
    assert "0 takes one that is free" in " ".join(result.stderr.split())


def test_what_is_not_installed_is_named(shell, monkeypatch):
    """With the extra that brings it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["ui", "--project", str(shell.root)])
    assert result.exit_code == 78
    assert "pip install 'penstock[ui]'" in result.stderr


def test_no_project_is_said(tmp_path):
    """Before anything is served."""
    result = CliRunner().invoke(app, ["ui", "--project", str(tmp_path)])
    assert (result.exit_code, "PEN-CNF-001" in result.stderr) == (78, True)
