"""Say what the state of a Commit takes, as its manifests tell it, and whether all of it is there."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.checkpoint.log.entries import Commit, ManifestRef
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import CheckpointCorrupt, StateMissing
from penstock.state.manifest import Manifest
from penstock.state.manifest import ManifestRef as StateRef

__all__ = ["StepState", "StoredState", "StoredStates"]


@dataclass(frozen=True, slots=True)
class StepState:
    """Hold what the state of one step takes.

    `rows` are those that its files hold: more than the keys, because what was superseded or removed counts until files
    are merged, and indexes count too. `size` is in bytes.
    """

    rows: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """Hold what the state of one Commit takes, by step; `trouble` is why it cannot be restored, None where it can."""

    steps: dict[str, StepState]
    trouble: str | None

    @property
    def rows(self) -> int:
        """Return the rows that its files hold, of all steps."""
        return sum(step.rows for step in self.steps.values())

    @property
    def size(self) -> int:
        """Return its bytes; what several Commits share counts in each."""
        return sum(step.size for step in self.steps.values())

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        steps = {name: {"stored_rows": step.rows, "bytes": step.size} for name, step in self.steps.items()}
        return {"stored_rows": self.rows, "bytes": self.size, "steps": steps}


class StoredStates:
    """Look at the states of several Commits, which share most of their files; `folder` is the job's checkpoint."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder
        self._manifests: dict[CheckpointFolder, Manifest | str] = {}
        self._is_there = (folder / "state").presence()

    def of(self, commit: Commit) -> StoredState:
        """Return what the state of a Commit takes. What cannot be read counts nothing, and is the trouble."""
        steps: dict[str, StepState] = {}
        trouble: str | None = None
        for step, refs in commit.state.items():
            state = StepState()
            for partition, ref in refs.items():
                place = self._folder / "state" / step / partition
                manifest = self._manifest(place / ref.path, ref)
                if isinstance(manifest, str):
                    trouble = trouble or manifest
                    continue
                state = StepState(state.rows + manifest.rows, state.size + manifest.size)
                gone = next((name for name in manifest.files() if not self._is_there(place / name)), None)
                if gone is not None:
                    trouble = trouble or f"{self._named(place / gone)} is gone"
            steps[step] = state
        return StoredState(steps=steps, trouble=trouble)

    def _manifest(self, path: CheckpointFolder, ref: ManifestRef) -> Manifest | str:
        """Return a manifest, or what is wrong with it."""
        if path not in self._manifests:
            try:
                self._manifests[path] = Manifest.read(path, StateRef(ref.path, ref.size, ref.checksum))
            except StateMissing:
                self._manifests[path] = f"{self._named(path)} is gone"
            except CheckpointCorrupt:
                self._manifests[path] = f"{self._named(path)} is damaged"
        return self._manifests[path]

    def _named(self, path: CheckpointFolder) -> str:
        return path.relative_to(self._folder).as_posix()
