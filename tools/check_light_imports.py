"""Check that what a DAG file or a command line imports does not pull in pyspark, airflow or great_expectations.

The process of a receiver starts again whenever it has died, so it does without more.

Run as `python -m tools.check_light_imports`; each module is imported by an interpreter of its own.
Those three cost seconds (FACTS 6), at every parse of a DAG and every `penstock --help`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.report import report

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("pyspark", "airflow", "great_expectations")
LIGHT = (
    "penstock",
    "penstock.graph",
    "penstock.windows",
    "penstock.triggers",
    "penstock.evictors",
    "penstock.checkpoint",
    "penstock.state",
    "penstock.sources",
    "penstock.sinks",
    "penstock.quality",
    "penstock.cli.main",
)
OF_RECEIVERS = ("penstock.receivers.process", "penstock.sources.http_source", "penstock.sources.socket_source")
"""What the process of a receiver imports, which holds senders up until it has started again."""
HEAVY_FOR_RECEIVERS = ("asyncio", "deltalake", "pandas", "pydantic", "structlog")
PROBE = ROOT / "tools" / "import_probe.py"


@dataclass(frozen=True, slots=True)
class Probe:
    """What one import in a fresh interpreter did: how long it took, what it loaded, or why it failed."""

    module: str
    ms: float
    modules: frozenset[str]
    error: str | None = None


def judge(probe: Probe) -> str | None:
    """Say what is wrong with one import; None when it is light."""
    if probe.error is not None:
        return f"{probe.module}: cannot be imported: {probe.error}"
    named = (*HEAVY, *HEAVY_FOR_RECEIVERS) if probe.module in OF_RECEIVERS else HEAVY
    heavy = [name for name in named if name in probe.modules]
    return f"{probe.module}: imports {', '.join(heavy)}; import it where it is used" if heavy else None


def probe(module: str, root: Path) -> Probe:
    """Import a module in a fresh interpreter that sees the source root and the project's own folders."""
    environ = {**os.environ, "PYTHONPATH": f"{root / 'platform'}{os.pathsep}{root}"}
    command = [sys.executable, str(PROBE), module]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environ, cwd=root, stdin=subprocess.DEVNULL
    )
    if ran.returncode != 0 or not ran.stdout.strip():
        return Probe(module, 0.0, frozenset(), error=(ran.stderr.strip().splitlines() or ["it ends the process"])[-1])
    answer = json.loads(ran.stdout.splitlines()[-1])
    return Probe(module, answer["ms"], frozenset(answer["modules"]))


def job_modules(root: Path) -> list[str]:
    """Name the modules of jobs/."""
    return [f"jobs.{path.stem}" for path in sorted((root / "jobs").glob("*.py")) if path.stem != "__init__"]


def main() -> int:
    """Import each module and judge it."""
    probes = [probe(module, ROOT) for module in (*LIGHT, *OF_RECEIVERS, *job_modules(ROOT))]
    print("light imports, ms:", ", ".join(f"{each.module} {each.ms:.0f}" for each in probes))
    problems = [problem for each in probes if (problem := judge(each)) is not None]
    return report("light imports", problems, checked=f"{len(probes)} modules")


if __name__ == "__main__":
    sys.exit(main())
