"""docs/airflow.md starts Airflow as the demo and the tests do: on loopback, without examples, its files private."""

from __future__ import annotations

import re
from pathlib import Path

from tools.standalone import _PARTS, Standalone

PAGE = Path(__file__).resolve().parents[2] / "docs" / "airflow.md"


def test_the_page_starts_the_parts_that_the_tests_see_listening_on_loopback_alone(tmp_path):
    """Another flag, or `airflow standalone`, would open ports to the network (review 17.11)."""
    block = re.search(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    started = re.findall(r"^airflow ([a-z-]+) ?(.*?) &$", block, re.MULTILINE)
    assert dict(started) == {part: " ".join(words) for part, words in _PARTS.items()}
    assert block.index("umask 077") < block.index("airflow db migrate") < block.index("airflow api-server")
    tested = Standalone(tmp_path, tmp_path, env={})._env
    exported = dict(re.findall(r"export (AIRFLOW__\w+)=(\S+)", block))
    for name in ("AIRFLOW__API__HOST", "AIRFLOW__CORE__LOAD_EXAMPLES", "AIRFLOW__CORE__PARALLELISM"):
        assert exported[name] == tested[name]
