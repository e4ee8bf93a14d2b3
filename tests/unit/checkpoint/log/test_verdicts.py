"""A Commit lists a verdict for each unit in few bytes, and gives back what was put in (SEMANTICS 2.10, 11)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.verdicts import packed, unpacked


def verdict(unit: int | None, *, check: str = "c", rows: int = 1, failed: bool = False) -> dict[str, Any]:
    """Return a verdict as a batch decides it."""
    results = [{"rule": "r", "severity": "critical", "success": False}] if failed else []
    status, action = ("failed", "drop") if failed else ("passed", "publish")
    return {"check": check, "unit": unit, "action": action, "status": status, "rows": rows, "results": results}


VERDICT = st.builds(
    verdict,
    st.none() | st.integers(-3, 9).map(lambda n: n * 1_000_000),
    check=st.sampled_from("ab"),
    rows=st.integers(0, 3),
    failed=st.booleans(),
)


@given(st.lists(VERDICT), st.integers(-5, 5), st.integers(1, 30))
def test_verdicts_come_back_as_they_were(some: list[dict[str, Any]], first: int, count: int) -> None:
    """11.1: each unit with its rows, in order, whatever stands between and however units follow one another."""
    verdicts = [*some, *(verdict(first + 7 * n, rows=n) for n in range(count)), *some]
    before = json.dumps(verdicts)
    written = json.loads(json.dumps(packed(verdicts)))
    assert unpacked(written) == verdicts
    assert json.dumps(verdicts) == before


def test_two_thousand_windows_that_passed_are_some_kilobytes() -> None:
    """P10: a Commit of them had 182 KB."""
    verdicts = [verdict(1_000_000 * n, rows=12) for n in range(2_000)]
    commit = Commit.model_construct(verdicts=verdicts)
    written = commit.model_dump_json(include={"verdicts"})
    assert len(written) < 8_000
    assert unpacked(json.loads(written)["verdicts"]) == verdicts


def test_verdicts_of_older_commits_are_read() -> None:
    """DESIGN 5: what was written one by one stays so."""
    verdicts = [verdict(1), verdict(None), verdict(2, failed=True)]
    assert unpacked(verdicts) == verdicts
