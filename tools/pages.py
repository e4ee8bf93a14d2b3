"""Write the pages of docs/ that programs make, or show them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_REFERENCE = re.compile(r"\s+\((?:(?:SEMANTICS|DESIGN|FAULTS|API|F\d)[^()]*|\d+\.\d+)\)")


def without_references(text: str) -> str:
    """Return a docstring without its references to the specification, such as `(F31)` or `(2.4)`."""
    return _REFERENCE.sub("", text)


def write_or_print(page: Path, text: str) -> int:
    """Write a page where the command says `--write`, else print it; the exit code is 0."""
    if sys.argv[1:] == ["--write"]:
        page.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0
