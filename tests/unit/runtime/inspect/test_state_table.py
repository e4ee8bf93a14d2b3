"""`penstock.state.read` is there for whoever imports Penstock, and costs nothing before it is called (decision 203)."""

from __future__ import annotations

import subprocess
import sys

import pytest
from test_state_rewrite import job_of

from penstock.testing import Harness


def run(program: str, *arguments: str) -> str:
    """Return what a program prints in a Python process of its own."""
    command = [sys.executable, "-c", f"import sys; {program}", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout


@pytest.mark.parametrize("way", ["from penstock.state import read", "import penstock; read = penstock.state.read"])
def test_read_is_there_by_each_import_and_loads_nothing(way: str) -> None:
    """A job that only keeps state does without what reads it."""
    loaded = run(f"{way}; print(read.__module__, *({{'pyarrow', 'numpy', 'pydantic'}} & {{*sys.modules}}))")
    assert loaded.split() == ["penstock.runtime.inspect.state_table"]


def test_neither_spark_nor_the_job_is_needed(tmp_path):
    """As in a notebook, or on a worker of Airflow."""
    with Harness(job_of("sliding", partitions=2), tmp_path) as h:
        h.batch({"rows": [{"k": "a", "t": 3, "v": 4}]})
    rows = run(
        "from penstock.state import read; "
        "print(read(sys.argv[1], 'restored', 'step').num_rows); "
        "assert not {'pyspark', 'airflow'} & set(sys.modules)",
        str(tmp_path),
    )
    assert rows.split() == ["1"]
