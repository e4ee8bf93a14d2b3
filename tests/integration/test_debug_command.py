"""`penstock run --debug` has the tasks of the run check what functions promise (SEMANTICS 3.3, 4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Shell
from project_samples import JOB, make_project

pytestmark = pytest.mark.timeout(900)

FORGETFUL = (
    JOB.replace("Tumbling(minutes(1))", "Sliding(minutes(6), every=minutes(1))")
    .replace("import Tumbling", "import Sliding")
    .replace('agg.sum("v")', "TOTAL")
    .replace(
        "def build",
        """def forget_nothing(total, _):
    return total


TOTAL = agg.custom(
    zero=0, add=int.__add__, merge=int.__add__, subtract=forget_nothing, result=int, input="v", state="n long",
    output="long",
)


def build""",
    )
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A project whose aggregate has a subtract that is none."""
    project = Shell(make_project(tmp_path / "project", job=FORGETFUL))
    yield project
    project.end()


@pytest.mark.sample(seconds=25)
def test_a_run_with_debug_stops_at_an_inverse_that_is_none_and_one_without_does_not(shell: Shell) -> None:
    """3.3: the option reaches the tasks; nothing is committed of the batch, which a run without it computes again."""
    code, _, err = shell.run("run", "orders", "--debug")
    assert (code, "PEN-OPR-029" in err, "subtract(merge(a, b), b)" in err) == (78, True, True), err
    code, _, err = shell.run("run", "orders")
    assert code == 0, err
