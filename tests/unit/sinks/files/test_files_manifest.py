"""A manifest says once for each batch which files it has, however it was folded, and crashes meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ManifestDamaged
from penstock.sinks.files import manifest as module
from penstock.sinks.files.folders import LocalOutput
from penstock.sinks.files.manifest import BatchFile, Manifest, key_of, published_files

APP, OTHER = "uuid/out", "uuid/other"


class Memory(LocalOutput):
    """A folder in the memory of the process, whose deletions may be cut short."""

    def __init__(self) -> None:
        super().__init__("/out")
        self.__dict__["files"] = {}
        self.__dict__["deletions"] = 10**9

    def create(self, path: str, data: bytes | memoryview) -> bool:
        files: dict[str, bytes] = self.__dict__["files"]
        return files.setdefault(path, bytes(data)) is data or files[path] == bytes(data)

    def read(self, path: str) -> bytes | None:
        return self.__dict__["files"].get(path)  # type: ignore[no-any-return]

    def names(self, path: str) -> list[str]:
        prefix = f"{path}/"
        return sorted(
            {name.removeprefix(prefix).split("/")[0] for name in self.__dict__["files"] if name.startswith(prefix)}
        )

    def delete(self, path: str) -> None:
        self.__dict__["deletions"] -= 1
        if self.__dict__["deletions"] < 0:
            raise KeyboardInterrupt
        self.__dict__["files"].pop(path, None)


def file_of(batch: int) -> BatchFile:
    """Return a file that only this batch has."""
    return BatchFile(path=f"{batch}.parquet", rows=batch + 1, size=10 * batch, sha256=f"{batch:064x}")


def fill(manifest: Manifest, batches: Sequence[int]) -> None:
    """Publish batches, and fold after each."""
    for batch in batches:
        recent = manifest.recent()
        manifest.add(batch, [file_of(batch)])
        manifest.fold([*recent, batch])


def test_a_batch_is_said_once(tmp_path: Path) -> None:
    """Of two publishers one has published it; its files stay."""
    folder = LocalOutput(str(tmp_path))
    one, two = Manifest(folder, APP), Manifest(folder, APP)
    assert one.add(4, [file_of(4)])
    assert not two.add(4, [file_of(5)])
    assert [file.path for file in published_files(folder)] == [f"{tmp_path}/4.parquet"]
    assert (one.recent(), Manifest(folder, OTHER).recent()) == ([4], [])


def test_the_files_of_all_apps_come_by_batch(tmp_path: Path) -> None:
    """Two sinks may share a folder; each file says whose it is."""
    folder = LocalOutput(str(tmp_path))
    for batch, app in ((1, OTHER), (0, APP), (2, APP)):
        Manifest(folder, app).add(batch, [file_of(batch)])
    files = published_files(folder)
    assert [(file.batch, file.app, file.rows) for file in files] == [(0, APP, 1), (1, OTHER, 2), (2, APP, 3)]


def test_an_empty_folder_has_no_files(tmp_path: Path) -> None:
    """Nor has one that is not there."""
    assert published_files(LocalOutput(str(tmp_path / "none"))) == []


def test_old_batches_are_folded_and_the_newest_stay(tmp_path: Path) -> None:
    """A folder keeps few files of batches, and each batch is folded once: the manifest grows with what it names."""
    folder, total = LocalOutput(str(tmp_path)), 2 * module.FOLD + module.KEEP + 3
    manifest = Manifest(folder, APP)
    fill(manifest, range(total))
    names = folder.names(f"_penstock/batches/{key_of(APP)}/folded")
    assert names == ["000000000000-000000000119", "000000000120-000000000239"]
    assert manifest.recent() == list(range(2 * module.FOLD, total))
    assert [file.batch for file in published_files(folder)] == list(range(total))


def test_any_crash_while_folding_loses_and_doubles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a law: batches with gaps, a crash after any deletion, and then more batches."""
    monkeypatch.setattr(module, "FOLD", 4)
    monkeypatch.setattr(module, "KEEP", 2)

    @settings(max_examples=examples(40))
    @given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.integers(0, 12), st.integers(0, 12))
    def law(gaps: list[int], first: int, second: int) -> None:
        batches = [sum(gaps[: n + 1]) for n in range(len(gaps))]
        folder, published = Memory(), []
        for batch in batches:
            manifest = Manifest(folder, APP)
            folder.__dict__["deletions"] = {3: first, 6: second}.get(len(published), 10**9)
            recent = manifest.recent()
            manifest.add(batch, [file_of(batch)])
            published.append(batch)
            try:
                manifest.fold([*recent, batch])
            except KeyboardInterrupt:
                folder.__dict__["deletions"] = 10**9
            assert manifest.recent()[-1] == batch
            assert [file.batch for file in published_files(folder)] == published

    law()


def test_a_batch_that_is_folded_while_it_is_read_is_not_missed(tmp_path: Path) -> None:
    """A reader finds the file of a batch gone, and the batch in the folded file."""

    class Folding(LocalOutput):
        """A folder in which the batches are folded when the first one is read."""

        def read(self, path: str) -> bytes | None:
            manifest = Manifest(LocalOutput(self.root), APP)
            manifest.fold(manifest.recent())
            return super().read(path)

    total = module.FOLD + module.KEEP + 1
    for batch in range(total):
        Manifest(LocalOutput(str(tmp_path)), APP).add(batch, [file_of(batch)])
    assert [file.batch for file in published_files(Folding(str(tmp_path)))] == list(range(total))


@pytest.mark.remedy("PEN-SNK-021")
@pytest.mark.parametrize("damage", [b"", b"{}", b'{"kind":"commit"}\n{}'], ids=["empty", "torn", "other"])
def test_damage_is_named(tmp_path: Path, damage: bytes) -> None:
    """With its place; once the file is restored, or removed, the others are read."""
    folder = LocalOutput(str(tmp_path))
    fill(Manifest(folder, APP), [0, 1])
    path = tmp_path / "_penstock" / "batches" / key_of(APP) / f"{0:012d}"
    before = path.read_bytes()
    path.write_bytes(damage)
    with pytest.raises(ManifestDamaged, match="000000000000"):
        published_files(folder)
    path.write_bytes(before)
    assert [file.batch for file in published_files(folder)] == [0, 1]
    path.unlink()
    assert [file.batch for file in published_files(folder)] == [1]
