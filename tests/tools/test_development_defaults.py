"""What is made for development opens nothing, and has no password that anybody knows (F67)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tools.standalone import Standalone

pytestmark = pytest.mark.fault("F67")
ROOT = Path(__file__).resolve().parents[2]


def test_the_container_has_no_port_and_no_network():
    """Nobody outside can reach what runs in it."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert services
    for service in services.values():
        assert service["network_mode"] == "none"
        assert not {"ports", "expose", "privileged"} & set(service)
        assert service["cap_drop"] == ["ALL"]


@pytest.mark.slow
def test_what_the_container_is_said_to_run_needs_no_network_and_no_server():
    """Its image has what `make setup` makes and nothing else; a command that fetches would fail in it (issue 17, finding 20)."""
    compose = (ROOT / "docker-compose.yml").read_text()
    targets = [
        target or "demo" for target in re.findall(r"#\s+docker compose run --rm penstock(?: make (\w+))?\s", compose)
    ]
    assert targets
    image = (ROOT / "Dockerfile").read_text()
    assert "make setup" in image
    assert 'CMD ["make", "demo"]' in image
    for target in [*targets, "test"]:
        does = subprocess.run(
            ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
        )
        assert ("tools.jars" in does.stdout) == (target == "test"), target


def test_the_airflow_of_the_demo_is_on_loopback_with_a_password_of_its_own(tmp_path):
    """Two have two."""
    first, second = (Standalone(tmp_path / name, tmp_path, env={}) for name in "ab")
    assert first._env["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert first.url.startswith("http://127.0.0.1:")
    assert len(first.password) >= 16
    assert first.password != second.password


def test_no_file_that_is_committed_binds_every_interface():
    """But where it is said not to."""
    every_interface = re.compile(r"0\.0\.0\.0|\[::\]:")
    folders = ("platform", "tools", "dags", "conf", "jobs", "docker-compose.yml", "Dockerfile", "Makefile")
    files = [p for name in folders for p in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))]
    texts = [p for p in files if p.suffix in (".py", ".toml", ".yml", ".json", "") and p.is_file()]
    assert len(texts) > 200
    assert [p.name for p in texts if every_interface.search(p.read_text(errors="ignore"))] == []
