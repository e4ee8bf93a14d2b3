"""Write docs/troubleshooting.md from the errors themselves, so that the page cannot fall behind.

python -m tools.error_page            # print it
python -m tools.error_page --write    # put it in place
"""

from __future__ import annotations

import inspect
import sys
from itertools import groupby
from pathlib import Path

from penstock import errors
from tools.pages import without_references, write_or_print

# ruff: noqa: E501 - a sentence of the page is a line

PAGE = Path(__file__).resolve().parents[1] / "docs" / "troubleshooting.md"

HEAD = """# Troubleshooting by error code

Every error that Penstock raises on purpose has a stable code, says what happened and where, and ends with what to do.
Search this page for the code in a message, here `PEN-JOB-009`:

```
PEN-JOB-009 there is no job 'flight': there is 'flights'
  where: jobs
  do: {remedy}
```

The exit code tells a supervisor whether a retry may help: 75 that it may, 77 that another driver holds the job, 78 that a person is needed.

| codes | area |
|---|---|
{areas}

This page is written by `python -m tools.error_page --write`; a test compares it with the errors.
"""

AREAS = {
    "JOB": "Jobs",
    "CNF": "Configuration",
    "ENV": "The machine",
    "CKP": "Checkpoints",
    "STA": "State",
    "SRC": "Sources",
    "OPR": "Computing a batch",
    "SNK": "Sinks",
    "QLT": "Quality gates",
    "RAT": "Rates",
    "SUP": "Commands to streams",
}


def leaves() -> list[type[errors.PenstockError]]:
    """Return the errors that can be raised, by code."""
    classes = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.PenstockError) and kind is not errors.PenstockError
    ]
    return sorted(classes, key=lambda kind: kind.code)


def area_of(kind: type[errors.PenstockError]) -> str:
    """Return the area in an error's code."""
    return kind.code.split("-")[1]


def meaning(kind: type[errors.PenstockError]) -> str:
    """Return the first line of an error's own docstring, for users."""
    return without_references(str(vars(kind)["__doc__"]).strip().splitlines()[0])


def render() -> str:
    """Return the page."""
    areas = "\n".join(
        f"| `PEN-{area}-…` | [{name}](#{name.lower().replace(' ', '-')}) |" for area, name in AREAS.items()
    )
    lines = [HEAD.format(remedy=errors.JobNotFound.remedy, areas=areas)]
    for area, group in groupby(sorted(leaves(), key=lambda k: (list(AREAS).index(area_of(k)), k.code)), key=area_of):
        lines += [f"## {AREAS[area]}", "| code | what happened | what to do | exit |", "|---|---|---|---|"]
        lines += [f"| `{k.code}` {k.__name__} | {meaning(k)} | {k.remedy} | {k.exit_code} |" for k in group]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(write_or_print(PAGE, render()))
