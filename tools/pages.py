"""Write the pages of docs/ that programs make, or show them."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_print(page: Path, text: str) -> int:
    """Write a page where the command says `--write`, else print it; the exit code is 0."""
    if sys.argv[1:] == ["--write"]:
        page.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0
