"""`tools/check_layers.py`: imports point downwards (DESIGN 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_layers import (
    ROOT,
    SOURCE,
    circle,
    circles,
    folder_graph,
    imports_of,
    module_name,
    modules_imported,
    wrong_imports,
    wrong_specs,
)

FOLDERS = frozenset(
    {"__init__", "errors", "windows", "rates", "graph", "checkpoint", "time", "state", "sources", "sinks"}
    | {"operators", "quality", "runtime", "cli", "airflow", "supervise", "testing"}
)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        pytest.param("penstock.graph.job", "from penstock.errors import JobError", id="down one"),
        pytest.param("penstock.cli.main", "from penstock.graph.job import Job", id="down many"),
        pytest.param("penstock.graph.job", "from penstock.graph.nodes import Node", id="own folder"),
        pytest.param("penstock.graph.job", "from .nodes import Node", id="own folder, relative"),
        pytest.param("penstock.graph.__init__", "from .job import Job", id="relative in a package"),
        pytest.param("penstock.graph.job", "from ..errors import JobError", id="relative, down"),
        pytest.param("penstock.runtime.driver", "from penstock import errors", id="a module of the package"),
        pytest.param("penstock.operators.windows", "from penstock import Job", id="a name of the facade"),
        pytest.param("penstock.__init__", "from penstock.graph.job import Job", id="facade of the graph"),
        pytest.param("penstock.testing.harness", "from penstock.cli.main import app", id="the test kit"),
        pytest.param("penstock.errors", "import json, os.path", id="others are no concern"),
        pytest.param("penstock.errors", "import penstockish.cli", id="nor one with a similar name"),
    ],
)
def test_what_points_downwards_is_allowed(module, line):
    """Lower ranks, the own folder and everything outside the package may be imported."""
    assert wrong_imports(module, line, FOLDERS) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        pytest.param("penstock.errors", "from penstock import Job", id="errors from the facade"),
        pytest.param("penstock.graph.job", "from penstock.checkpoint.log import Log", id="up one"),
        pytest.param("penstock.graph.job", "from ..checkpoint import log", id="up, relative"),
        pytest.param("penstock.graph.job", "import penstock.runtime.driver as d", id="up many"),
        pytest.param("penstock.graph.job", "from penstock import rates", id="up, a front of another folder"),
        pytest.param("penstock.windows", "from penstock.time import watermark", id="from a facade"),
        pytest.param("penstock.sinks.delta", "from penstock.sources.replay import Replay", id="same rank"),
        pytest.param("penstock.operators.a", "from penstock.quality.compiler import Gate", id="same rank, higher"),
        pytest.param("penstock.cli.main", "from penstock.testing import Harness", id="the test kit is for tests"),
        pytest.param("penstock.graph.job", "def f():\n    import penstock.runtime", id="inside a function"),
        pytest.param(
            "penstock.graph.job",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import penstock.runtime",
            id="for types only",
        ),
    ],
)
def test_what_points_up_or_sideways_is_named_with_its_line(module, line):
    """The message names the module, the line and the target."""
    (problem,) = wrong_imports(module, line, FOLDERS)
    number = line.count("\n") + 1
    assert problem.startswith(f"{module}:{number}: ")
    assert "may not import penstock" in problem


def test_a_folder_without_a_place_in_the_table_is_named():
    """A new folder gets a rank before it gets modules; otherwise nothing would check it."""
    assert "has no place in the table" in wrong_imports("penstock.extras.a", "", FOLDERS | {"extras"})[0]
    assert (
        "has no place in the table" in wrong_imports("penstock.cli.a", "import penstock.extras", {"cli", "extras"})[0]
    )


def test_relative_imports_are_resolved_from_the_package_of_the_module():
    """One dot is the own package, two the one above; a package's own file counts as inside it."""
    text = "from . import a\nfrom .b import c\nfrom .. import d\nfrom ..e.f import g\n"
    for module in ("penstock.graph.job", "penstock.graph.__init__"):
        imported = [(each.line, each.target) for each in imports_of(text, module)]
        assert imported == [(1, "penstock.graph"), (2, "penstock.graph.b"), (3, "penstock.d"), (4, "penstock.e.f")]


def test_the_name_of_a_module_follows_its_path():
    """The source root is no part of a name."""
    assert module_name(SOURCE / "penstock" / "graph" / "job.py", SOURCE) == "penstock.graph.job"
    assert SOURCE.parent == ROOT


def test_a_module_that_is_named_in_a_string_is_imported():
    """As `importlib.import_module` takes it; words that only begin like one are none."""
    (problem,) = wrong_imports("penstock.graph.job", 'import_module("penstock.runtime.driver.loop")', FOLDERS)
    assert "may not import penstock.runtime.driver.loop" in problem
    assert wrong_imports("penstock.graph.job", '"penstock.runtime of a sentence"', FOLDERS) == []


def test_only_the_front_of_the_package_may_offer_what_is_above_it():
    """It gives `penstock.state` its `read`, which reads whole jobs; the front of a folder offers what is below it."""
    line = "from penstock.runtime.inspect.state_table import read"
    assert wrong_imports("penstock.__init__", line, FOLDERS) == []
    (problem,) = wrong_imports("penstock.state.__init__", line, FOLDERS)
    assert "may not import penstock.runtime" in problem
    (problem,) = wrong_imports("penstock.sources.a", "from penstock.state import State", FOLDERS)
    assert "may not import penstock.state" in problem


def test_what_is_imported_from_a_folder_is_the_module_in_it():
    """Where the name is one; otherwise the folder's own front."""
    known = {"penstock.a", "penstock.a.b", "penstock.a.c"}
    assert modules_imported("from penstock.a import b", "penstock.a.c", known) == {"penstock.a.b"}
    assert modules_imported("from penstock.a import Name", "penstock.a.c", known) == {"penstock.a"}
    assert modules_imported("import json\nfrom penstock.a.b import c", "penstock.a.c", known) == {"penstock.a.b"}


def test_a_circle_is_named():
    """Of modules, and of folders where no module is in one."""
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) is None
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}).split(" -> ")) == {"a", "b", "c"}
    modules = {"p.a.x": {"p.b.y"}, "p.b.y": set(), "p.b.z": {"p.a.w"}, "p.a.w": set()}
    assert circle(modules) is None
    assert circle(folder_graph(modules, {"p", "p.a", "p.b"})) is not None
    inside = {"p.a.x": {"p.a.in.y"}, "p.a.in.y": {"p.a.w"}, "p.a.w": set()}
    assert circle(folder_graph(inside, {"p", "p.a", "p.a.in"})) is None


@pytest.mark.slow
def test_penstock_has_no_circle():
    """Neither for types nor inside functions."""
    assert circles(SOURCE) == []


def test_a_spec_names_one_operator_that_can_be_bound(tmp_path: Path) -> None:
    """That string is no import: the operator stands above its spec. What is wrong with it is told all the same."""
    assert wrong_imports("penstock.graph.specs.a", 'operator = "penstock.operators.a"', FOLDERS) == []
    assert wrong_imports("penstock.graph.a", 'operator = "penstock.operators.a"', FOLDERS)
    assert wrong_imports("penstock.graph.specs.a", '"penstock.runtime.a"', FOLDERS)
    specs, operators = tmp_path / "penstock" / "graph" / "specs", tmp_path / "penstock" / "operators"
    specs.mkdir(parents=True)
    operators.mkdir()
    (specs / "__init__.py").write_text("")
    (operators / "right.py").write_text("def bind_side(): ...\ndef bind(): ...\n")
    (operators / "half.py").write_text("def bind(): ...\n")
    named = {"right": '"penstock.operators.right"', "half": '"penstock.operators.half"', "none": "1"}
    named |= {"misspelt": '"penstock.operators.rigth"', "apart": '"penstock.operators.right"'}
    for name, text in named.items():
        (specs / f"{name}.py").write_text(f"operator = {text}\n")
    registered = "".join(f"from penstock.graph.specs.{name} import A\n" for name in named if name != "apart")
    (specs.parent / "keyed.py").write_text(registered)
    apart, *others = wrong_specs(tmp_path)
    assert apart.startswith("penstock.graph.specs.apart: penstock.graph.keyed does not import it; ")
    assert others == [
        "penstock.graph.specs.half: penstock.operators.half does not define bind_side",
        "penstock.graph.specs.misspelt: penstock.operators.rigth, the module of its operator, is not there",
        "penstock.graph.specs.none: names 0 modules of operators, not one: "
        'write `operator: ClassVar[str] = "penstock.operators.NAME"`',
    ]
    assert list(wrong_specs(SOURCE)) == []
