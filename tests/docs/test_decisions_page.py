"""The list of decisions leads to each of them."""

import re
from pathlib import Path

DECISIONS = Path("docs/decisions")


def test_the_list_names_each_decision_once_in_order() -> None:
    """CONTRIBUTING: two branches that add a decision each add a row; what unites them must not double any."""
    listed = [
        int(number) for number in re.findall(r"^\| \[(\d+)\]\(", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    ]
    assert listed == sorted(int(file.name[:4]) for file in DECISIONS.glob("[0-9]*.md"))
