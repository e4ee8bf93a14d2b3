"""A restore takes the rows of later batches out of a folder, once, whatever dies meanwhile (SEMANTICS 10.1)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CannotTruncate, ManifestDamaged
from penstock.sinks.base import Target
from penstock.sinks.files import manifest as module
from penstock.sinks.files.folders import LocalOutput
from penstock.sinks.files.manifest import BatchFile, Manifest, key_of, published_files
from penstock.sinks.files.truncation import find_version, put_back, truncated
from penstock.testing.examples import examples

APP, OTHER = "uuid/out", "uuid/other"


class Memory(LocalOutput):
    """A folder in the memory of the process, which dies after some calls that change it."""

    def __init__(self) -> None:
        super().__init__("/out")
        self.__dict__.update(files={}, left=10**9)

    def _live(self) -> dict[str, bytes]:
        if self.__dict__["left"] <= 0:
            raise KeyboardInterrupt
        self.__dict__["left"] -= 1
        return self.__dict__["files"]  # type: ignore[no-any-return]

    def create(self, path: str, data: bytes | memoryview) -> bool:
        files = self._live()
        is_free = path not in files
        files.setdefault(path, bytes(data))
        return is_free

    def read(self, path: str) -> bytes | None:
        return self.__dict__["files"].get(path)  # type: ignore[no-any-return]

    def names(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        found = [name.removeprefix(prefix) for name in self.__dict__["files"] if name.startswith(prefix)]
        return sorted({name.split("/")[0] for name in found})

    def delete(self, path: str) -> None:
        self._live().pop(path, None)


def publish(folder: Memory, batch: int, app: str = APP) -> None:
    """Publish a batch of one row, as the publisher does."""
    name = f"{batch:012d}-{key_of(app)}.jsonl"
    folder.create(name, b"{}")
    manifest = Manifest(folder, app)
    manifest.add(batch, [BatchFile(path=name, rows=1, size=2, sha256="x")])
    manifest.fold(manifest.recent())


def shown(folder: Memory) -> list[tuple[int, str]]:
    """Return batches and apps by the manifest, which a listing agrees with."""
    files = published_files(folder)
    assert sorted(file.path for file in files) == [f"/out/{name}" for name in folder.names("") if name != "_penstock"]
    return [(file.batch, file.app) for file in files]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 12), st.integers(-1, 12), st.integers(0, 20), st.integers(2, 4))
def test_a_restore_takes_later_batches_back_once_whatever_dies(batches: int, last: int, calls: int, fold: int) -> None:
    """Folded or not: of this app those after the target, and the releases of batches that the target had not."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "FOLD", fold)
        patched.setattr(module, "KEEP", 1)
        folder, held = Memory(), f"{APP}/held/{batches - 1}"
        for batch in range(batches):
            publish(folder, batch)
        publish(folder, batches - 1, held)
        publish(folder, 3, OTHER)
        target = Target(app=APP, batch=None if last < 0 else last, slot=5)
        version = find_version(folder, target)
        kept = [(batch, APP) for batch in range(batches) if batch <= last]
        has_held = batches - 1 <= last
        assert (version is None) == has_held
        if version is None:
            return
        folder.__dict__["left"] = calls
        with suppress(KeyboardInterrupt):
            put_back(folder, target, slot=9, newest=batches - 1)
        folder.__dict__["left"] = 10**9
        put_back(folder, target, slot=9, newest=batches - 1)
        assert not put_back(folder, target, slot=9, newest=batches - 1)
        assert sorted(shown(folder)) == sorted([*kept, (3, OTHER)])
        assert (truncated(folder, APP), truncated(folder, OTHER)) == (9, None)
        publish(folder, batches)
        assert (batches, APP) in shown(folder)
        assert max(Manifest(folder, APP).recent()) == batches, "no id is used a second time"


def test_a_restore_to_rows_that_were_deleted_is_refused() -> None:
    """A batch that another restore took back since has no files; one from after it can be shown again."""
    folder = Memory()
    for batch in range(4):
        publish(folder, batch)
    put_back(folder, Target(app=APP, batch=1, slot=3), slot=9, newest=3)
    publish(folder, 4)
    publish(folder, 5)
    with pytest.raises(CannotTruncate, match="has taken batch 2 back"):
        find_version(folder, Target(app=APP, batch=3, slot=7))
    assert find_version(folder, Target(app=APP, batch=4, slot=12)) == 4
    put_back(folder, Target(app=APP, batch=4, slot=12), slot=20, newest=5)
    assert [batch for batch, _ in shown(folder)] == [0, 1, 4]


def test_a_restore_to_a_release_that_was_deleted_is_refused() -> None:
    """A batch of which all rows were held has no files but those of its release."""
    folder = Memory()
    publish(folder, 0)
    publish(folder, 1, f"{APP}/held/1")
    put_back(folder, Target(app=APP, batch=0, slot=3), slot=9, newest=1)
    publish(folder, 2)
    with pytest.raises(CannotTruncate, match="has taken batch 1 back"):
        find_version(folder, Target(app=APP, batch=1, slot=7))
    assert find_version(folder, Target(app=APP, batch=0, slot=3)) == 0


def test_a_later_driver_is_never_undone() -> None:
    """Its batch is higher than any that the log knew."""
    folder = Memory()
    publish(folder, 0)
    publish(folder, 7)
    with pytest.raises(CannotTruncate, match="batch 7 already"):
        put_back(folder, Target(app=APP, batch=0, slot=3), slot=9, newest=3)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    """It decides which rows there are."""
    folder = LocalOutput(str(tmp_path))
    Manifest(folder, APP).add(0, [])
    folder.create(f"_penstock/batches/{key_of(APP)}/truncated/000000000009", b"torn")
    with pytest.raises(ManifestDamaged, match="truncated/000000000009"):
        truncated(folder, APP)
