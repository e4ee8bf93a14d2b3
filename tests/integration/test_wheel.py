"""Penstock as a library: the wheel in an empty environment, in a folder that is no clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.doc_blocks import python_blocks

ROOT = Path(__file__).resolve().parents[2]
UV = str(Path(sys.executable).with_name("uv"))

pytestmark = [pytest.mark.timeout(900), pytest.mark.sample(seconds=200)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` of an environment that holds the wheel, what it needs, and pytest."""
    sources = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "platform", sources / "platform", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    made = tmp_path_factory.mktemp("made")
    run(
        UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(made), str(sources)
    )
    (wheel,) = made.glob("*.whl")
    run(UV, "venv", "--python", sys.executable, str(made / "env"))
    python = str(made / "env" / "bin" / "python")
    lock = str(ROOT / "requirements" / "all.txt")
    run(UV, "pip", "install", "--python", python, "--constraint", lock, f"{wheel}[quality]", "pytest")
    return made / "env" / "bin"


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a program that knows nothing of the clone, and return what it printed."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT")
    around = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=cwd, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout


def test_a_project_that_init_has_made_runs_and_passes_its_test(environment: Path, tmp_path: Path) -> None:
    """As the command's last lines say: doctor, explain, run, pytest."""
    penstock, python = str(environment / "penstock"), str(environment / "python")
    run(penstock, "init", "clicks", cwd=tmp_path)
    doctor = run(penstock, "doctor", cwd=tmp_path)
    assert "not ok" not in doctor
    assert "3 of delta-spark fetched into" in doctor
    assert "clicks_per_minute" in run(penstock, "explain", "clicks", cwd=tmp_path)
    run(penstock, "run", "clicks", cwd=tmp_path)
    rows = "from deltalake import DeltaTable; print(DeltaTable('tables/clicks/per_minute').to_pyarrow_table().num_rows)"
    assert run(python, "-c", rows, cwd=tmp_path) == "5\n"
    assert "1 passed" in run(python, "-m", "pytest", "-q", "tests", cwd=tmp_path)


def test_the_job_of_the_readme_runs(environment: Path, tmp_path: Path) -> None:
    """In a folder with nothing but it."""
    code = [block.code for block in python_blocks((ROOT / "README.md").read_text()) if block.runs]
    (tmp_path / "readme.py").write_text("\n".join(code))
    run(str(environment / "python"), "readme.py", cwd=tmp_path)
    assert (tmp_path / "checkpoints" / "flights" / "log").is_dir()
