"""Find the Python examples in a Markdown page, for the test that runs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

NO_RUN = "<!-- no-run -->"
_OPENING = "```python"
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class Block:
    """One example: its code, the line of the page its code begins on, and whether it is run or only compiled."""

    line: int
    code: str
    runs: bool

    def at_its_line(self) -> str:
        """Put blank lines before the code, so that an error names the line of the page."""
        return "\n" * (self.line - 1) + self.code


def python_blocks(text: str) -> Iterator[Block]:
    """Yield the blocks fenced as python, in order; `<!-- no-run -->` on the last line before a block marks it.

    ValueError names a block that is never closed: the rest of the page would not be run in silence.
    """
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = lines[number]
        if not fence.startswith(_FENCE):
            number += 1
            continue
        end = next((at for at in range(number + 1, len(lines)) if lines[at].rstrip() == _FENCE), None)
        if end is None:
            msg = f"the block that begins on line {number + 1} is not closed"
            raise ValueError(msg)
        if fence.split()[0] == _OPENING:
            before = next((line for line in reversed(lines[:number]) if line.strip()), "")
            code = "\n".join(lines[number + 1 : end]) + "\n"
            yield Block(number + 2, code, runs=before.strip() != NO_RUN)
        number = end + 1
