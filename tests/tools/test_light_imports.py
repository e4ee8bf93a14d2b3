"""`tools/check_light_imports.py`: heavy packages are not loaded by light modules."""

from __future__ import annotations

from tools.check_light_imports import Probe, job_modules, judge, probe


def project(root, **modules):
    """Write modules into a source root and an empty folder of jobs."""
    (root / "platform").mkdir()
    (root / "jobs").mkdir()
    for name, text in modules.items():
        (root / "platform" / f"{name}.py").write_text(text)


def test_a_module_that_loads_a_heavy_package_is_named_with_it(tmp_path):
    """Also when it does so by way of another module; parts of a package count as the package."""
    project(tmp_path, heavy="import other", other="import pyspark.sql", pyspark="")
    (tmp_path / "platform" / "pyspark.py").unlink()
    package = tmp_path / "platform" / "pyspark"
    (package / "sql").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sql" / "__init__.py").write_text("")
    assert judge(probe("heavy", tmp_path)) == "heavy: imports pyspark; import it where it is used"


def test_a_module_that_loads_it_inside_a_function_is_light(tmp_path):
    """That is how it is meant to be done; and the import was timed."""
    project(tmp_path, light="def f():\n    import pyspark\n")
    answer = probe("light", tmp_path)
    assert judge(answer) is None
    assert answer.ms > 0


def test_a_module_that_cannot_be_imported_is_no_light_module(tmp_path):
    """A missing module, one that fails or ends the process, and a folder without modules are named with the reason."""
    project(tmp_path, broken="1 / 0", ends="raise SystemExit(0)")
    (tmp_path / "platform" / "empty").mkdir()
    assert "ModuleNotFoundError" in judge(probe("missing", tmp_path))
    assert "ZeroDivisionError" in judge(probe("broken", tmp_path))
    assert "it ends the process" in judge(probe("ends", tmp_path))
    assert "nothing was imported" in judge(probe("empty", tmp_path))


def test_what_is_printed_while_importing_does_not_hide_the_answer(tmp_path):
    """The last line is the probe's."""
    project(tmp_path, noisy="print('hello')")
    assert judge(probe("noisy", tmp_path)) is None


def test_all_heavy_packages_are_named():
    """One line tells everything that is wrong with a module."""
    heavy = frozenset({"pyspark", "airflow", "great_expectations", "json"})
    assert judge(Probe("a", 1.0, heavy)) == (
        "a: imports pyspark, airflow, great_expectations; import it where it is used"
    )


def test_the_process_of_a_receiver_does_without_more():
    """Its senders wait for its start."""
    loaded = frozenset({"structlog", "pydantic", "json"})
    assert judge(Probe("penstock.receivers.process", 1.0, loaded)) == (
        "penstock.receivers.process: imports pydantic, structlog; import it where it is used"
    )
    assert judge(Probe("penstock.sources", 1.0, loaded)) is None


def test_the_modules_of_jobs_are_found(tmp_path):
    """Every job is checked, without a list that someone has to keep."""
    project(tmp_path)
    for name in ("b.py", "a.py", "__init__.py", "notes.md"):
        (tmp_path / "jobs" / name).write_text("")
    assert job_modules(tmp_path) == ["jobs.a", "jobs.b"]
