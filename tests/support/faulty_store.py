"""Break a store on purpose, at a call chosen by number, so that tests can sweep over every call of a run.

Begin with `Plan(Fault.BEFORE, at=1)` and count up until a run ends with `fired` false: every call has then failed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import StorageFull, StorageUnavailable


class Fault(Enum):
    """What goes wrong, and in which calls it can."""

    BEFORE = "before"
    """Any call: it fails and has changed nothing."""
    AFTER = "after"
    """create, delete: it works, and the acknowledgement is lost (F23)."""
    TORN = "torn"
    """create: half of the bytes appear under the final name, and the call fails (F13)."""
    VANISHED = "vanished"
    """create: it is acknowledged, and no file is there (F24)."""
    DELAYED = "delayed"
    """create: a rival does something first, then the call goes on."""
    FULL = "full"
    """create: no room (F27)."""
    STALE = "stale"
    """list: the newer half is missing and the rest is there twice (F29)."""


class Lasting(Enum):
    """How long a fault lasts."""

    ONCE = "once"
    FROM_THEN_ON = "from then on"


_CALLS = {
    Fault.BEFORE: {"create", "read", "exists", "list", "delete"},
    Fault.AFTER: {"create", "delete"},
    Fault.STALE: {"list"},
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Which fault strikes, at which of the calls it can strike (counted from 1), and how long.

    `error` makes what is raised where a call fails; a crash of the driver is an error that nothing catches.
    `rival(store, path, data)` is what a DELAYED create waits for; by itself it takes the name with other bytes.
    """

    fault: Fault
    at: int
    lasting: Lasting = Lasting.ONCE
    error: Callable[[str], BaseException] = lambda path: StorageUnavailable("the store did not answer", where=path)
    rival: Callable[[CheckpointStore, str, bytes], None] = lambda store, path, _: store.create(path, b"a rival's")


class FaultyStore:
    """A `CheckpointStore` around another, which breaks as planned; without a plan it only counts.

    `calls` is the number of calls so far that the fault could strike, `fired` whether it has struck.
    """

    def __init__(self, inner: CheckpointStore, plan: Plan | None = None) -> None:
        self.inner = inner
        self.plan = plan
        self.calls = 0
        self.fired = False

    @property
    def root(self) -> str:
        """Name the root of the store inside."""
        return self.inner.root

    def create(self, path: str, data: bytes) -> None:
        """Create, or fail as planned."""
        fault = self._strike("create", path)
        if fault is Fault.TORN:
            self.inner.create(path, data[: len(data) // 2])
        elif fault is Fault.FULL:
            raise StorageFull(f"no room for {path}: planned", where=path, path=path)
        elif fault is not Fault.VANISHED or self.inner.exists(path):
            if fault is Fault.DELAYED and self.plan:
                self.plan.rival(self.inner, path, data)
            self.inner.create(path, data)
        self._fail_after(fault, path)

    def read(self, path: str) -> bytes:
        """Read, or fail as planned."""
        self._strike("read", path)
        return self.inner.read(path)

    def exists(self, path: str) -> bool:
        """Ask, or fail as planned."""
        self._strike("exists", path)
        return self.inner.exists(path)

    def list(self, prefix: str) -> list[str]:
        """List, truly or staley."""
        fault = self._strike("list", prefix)
        paths = self.inner.list(prefix)
        return sorted(paths[: len(paths) // 2] * 2) if fault is Fault.STALE else paths

    def delete(self, path: str) -> None:
        """Delete, or fail as planned."""
        fault = self._strike("delete", path)
        self.inner.delete(path)
        self._fail_after(fault, path)

    def janitor(self, grace_seconds: float, now: float) -> int:
        """Remove what writers of the store inside left; never counted."""
        return self.inner.janitor(grace_seconds, now)

    def _strike(self, call: str, path: str) -> Fault | None:
        """Count the call; return the fault that strikes it, raising where that is before any effect."""
        plan = self.plan
        if call not in (_CALLS.get(plan.fault, {"create"}) if plan else _CALLS[Fault.BEFORE]):
            return None
        self.calls += 1
        if plan is None or self.calls < plan.at or (self.calls > plan.at and plan.lasting is Lasting.ONCE):
            return None
        self.fired = True
        if plan.fault is Fault.BEFORE:
            raise plan.error(path)
        return plan.fault

    def _fail_after(self, fault: Fault | None, path: str) -> None:
        if self.plan and fault in {Fault.AFTER, Fault.TORN}:
            raise self.plan.error(path)
