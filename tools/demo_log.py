"""Tell what the log of the demo's job says: which batches there are, what they counted, and where it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.log.entries import Commit, Offsets, Release, Takeover
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local import LocalStore

__all__ = ["LogStory", "read_story"]

_PARTS = {
    "source": ("read", ("quarantined", "passed")),
    "deduplicate": ("rows", ("late", "emitted", "duplicates")),
    "filter": ("rows", ("kept", "filtered")),
    "window": ("rows", ("counted", "late", "in_no_window")),
    "check": ("in", ("published", "dropped", "quarantined", "held")),
}
"""What must add up (SEMANTICS 2.10): the whole, and the parts that it is the sum of."""


@dataclass(frozen=True, kw_only=True)
class LogStory:
    """Hold what a log says. `accounting` sums the rows of all batches by kind of step, `verdicts` counts windows.

    `ids` are the ids of the Commits in their order, `drivers` how many Takeovers there are.
    """

    ids: tuple[int, ...]
    drivers: int
    accounting: dict[str, dict[str, int]]
    verdicts: dict[str, int]
    last: str
    finished: bool

    @property
    def batches(self) -> int:
        """Return how many batches are committed."""
        return len(self.ids)

    @property
    def id_range(self) -> str:
        """Return the ids in words: from, to, and whether one is missing or stands twice."""
        if not self.ids:
            return "none"
        whole = self.ids == tuple(range(self.ids[0], self.ids[-1] + 1))
        return f"{self.ids[0]} to {self.ids[-1]}, {'without a gap' if whole else 'WITH GAPS'}"

    def problems(self, batches: int, *, drivers: int) -> Iterator[str]:
        """Yield what is wrong with the log: gaps, batches that are missing, sums that do not hold."""
        if self.ids != tuple(range(batches)):
            yield f"the log holds commits {list(self.ids)} and should hold 0 to {batches - 1}"
        if self.drivers != drivers:
            yield f"{self.drivers} drivers owned the log and not {drivers}"
        if not self.finished:
            yield f"the log ends with {self.last}"
        for kind, (whole, parts) in _PARTS.items():
            counts = self.accounting[kind]
            if counts.get(whole, 0) != sum(counts.get(part, 0) for part in parts):
                yield f"the rows of {kind} do not add up: {counts}"

    def sums(self) -> Iterator[str]:
        """Yield one line a kind of step that the job has: the whole and its parts."""
        for kind, (whole, parts) in _PARTS.items():
            counts = self.accounting[kind]
            if not counts:
                continue
            summands = " + ".join(f"{counts.get(part, 0):,} {part.replace('_', ' ')}" for part in parts)
            yield f"{kind}: {counts.get(whole, 0):,} = {summands}"
        yield f"of the counted, {self.accounting['window'].get('partly_late', 0):,} were late for some windows only"


def read_story(folder: Path) -> LogStory:
    """Read a job's log from its first slot to its last; of a job that keeps fewer commits, what is there."""
    log = Log(LocalStore(folder))
    entries = [entry for _, entry in log.entries_back(log.find_tail())][::-1]
    commits = [entry for entry in entries if isinstance(entry, Commit)]
    accounting: dict[str, Counter[str]] = {kind: Counter() for kind in _PARTS}
    verdicts: Counter[str] = Counter(passed=0, failed=0, noted=0)
    for commit in commits:
        for name, counts in commit.accounting.items():
            accounting[name.partition(":")[0]].update(counts)
        for verdict in commit.verdicts:
            verdicts[str(verdict["status"])] += 1
            verdicts["noted"] += _noted(verdict)
    return LogStory(
        ids=tuple(commit.batch for commit in commits),
        drivers=sum(isinstance(entry, Takeover) for entry in entries),
        accounting={kind: dict(counts) for kind, counts in accounting.items()},
        verdicts=dict(verdicts),
        last=_told(entries[-1]) if entries else "nothing",
        finished=bool(entries) and isinstance(entries[-1], Release) and entries[-1].reason == "finished",
    )


def _noted(verdict: Mapping[str, object]) -> bool:
    """Return whether a rule that decides nothing failed."""
    results = verdict["results"]
    assert isinstance(results, list)
    return any(not result["success"] and result["severity"] != "critical" for result in results)


def _told(entry: object) -> str:
    match entry:
        case Offsets(batch=batch):
            return f"the offsets of batch {batch}, which has no commit"
        case Commit(batch=batch):
            return f"the commit of batch {batch}"
        case Takeover(epoch=epoch):
            return f"the takeover of driver {epoch}"
        case Release(reason=reason):
            return f"a release: {reason}"
    return f"a {type(entry).__name__}"
