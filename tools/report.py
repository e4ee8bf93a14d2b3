"""Print what a checker found, and turn it into an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def report(checker: str, problems: Sequence[str], *, checked: str) -> int:
    """Print each problem to stderr, or one line that all is well; 1 with problems, otherwise 0."""
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"{checker}: {len(problems)} to mend", file=sys.stderr)
        return 1
    print(f"{checker}: {checked}, all well")
    return 0
