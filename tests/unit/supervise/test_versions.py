"""Copies of the code that streams run: named by content, whole or not there at all."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.supervise.versions import Versions


@pytest.fixture
def project(tmp_path):
    """Return a project with a job in a subfolder and a configuration."""
    write(
        tmp_path / "project", {"jobs/flights.py": "a = 1", "jobs/lib/deep/help.py": "b = 2", "conf/penstock.toml": ""}
    )
    return tmp_path / "project"


@pytest.fixture
def versions(tmp_path, project):
    return Versions(tmp_path / "root" / "_versions", project)


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def files(folder):
    """Return the files below a folder with their texts."""
    return {p.relative_to(folder).as_posix(): p.read_text("utf-8") for p in folder.rglob("*") if p.is_file()}


def names(versions):
    return sorted(path.name for path in versions.folder("").iterdir())


def test_a_version_is_a_whole_copy(versions):
    """With all subfolders of jobs and conf, and nothing else of the project."""
    write(versions._project, {"README.md": "x", "checkpoints/log": "x"})
    assert files(versions.folder(versions.take())) == {
        "jobs/flights.py": "a = 1", "jobs/lib/deep/help.py": "b = 2", "conf/penstock.toml": "",
    }  # fmt: skip


def test_the_same_content_has_the_same_name(versions, project, tmp_path):
    """Also when it was saved again, and in another place; it is there once."""
    first = versions.take()
    os.utime(project / "jobs" / "flights.py", (1, 1))
    assert versions.take() == first
    assert names(versions) == [first]
    shutil.copytree(project, tmp_path / "elsewhere")
    assert Versions(tmp_path / "others", tmp_path / "elsewhere").take() == first
    assert (len(first), int(first, 16) >= 0) == (12, True)


@pytest.mark.parametrize(
    "edit",
    [
        {"jobs/flights.py": "a = 2"},
        {"jobs/lib/deep/help.py": "b = 3"},
        {"conf/penstock.toml": "# said"},
        {"jobs/new.py": ""},
        {"jobs/lib/__init__.py": ""},
    ],
    ids=["job", "module below", "configuration", "new file", "new empty file"],
)
def test_an_edit_gives_another_name(versions, project, edit):
    """The version from before is left as it was, and taking the edit back gives its name again."""
    first = versions.take()
    was = files(versions.folder(first))
    before = files(project)
    write(project, edit)
    second = versions.take()
    assert second != first
    assert files(versions.folder(second)) == before | edit
    assert files(versions.folder(first)) == was
    shutil.rmtree(project)
    write(project, before)
    assert versions.take() == first


def test_a_file_that_is_renamed_or_removed_gives_another_name(versions, project):
    """Though no text has changed; two files that swap their texts are another version too."""
    taken = [versions.take()]
    (project / "jobs" / "flights.py").rename(project / "jobs" / "planes.py")
    taken.append(versions.take())
    write(project, {"jobs/planes.py": "b = 2", "jobs/lib/deep/help.py": "a = 1"})
    taken.append(versions.take())
    (project / "jobs" / "planes.py").unlink()
    taken.append(versions.take())
    assert len(set(taken)) == 4


@pytest.mark.parametrize(
    "name",
    ["jobs/__pycache__/flights.pyc", "jobs/lib/__pycache__/x.pyc", "jobs/.flights.py.swp", "conf/.git/HEAD"],
)
def test_what_python_and_editors_leave_does_not_count(versions, project, name):
    """It is neither copied nor in the name."""
    first = versions.take()
    before = files(versions.folder(first))
    write(project, {name: "x"})
    assert versions.take() == first
    write(project, {"jobs/flights.py": "a = 2"})
    assert files(versions.folder(versions.take())).keys() == before.keys()


@pytest.mark.parametrize("part", ["jobs", "conf"])
def test_a_project_may_lack_one_of_the_two(versions, project, part):
    """What is there is copied."""
    shutil.rmtree(project / part)
    assert {name.split("/")[0] for name in files(versions.folder(versions.take()))} == {"jobs", "conf"} - {part}


def test_a_project_without_either_is_refused(versions, project):
    """As an OSError, which the supervisor tells, and nothing is left."""
    shutil.rmtree(project)
    with pytest.raises(OSError, match=r"\.new-"):
        versions.take()
    assert names(versions) == []


def test_versions_are_their_users_alone(versions):
    """The folder they are in is made with mode 0700."""
    versions.take()
    assert versions.folder("").stat().st_mode & 0o777 == 0o700


def test_those_who_take_at_once_get_the_same_whole_copy(versions, project):
    """Two supervisors, or two streams of one: one copy is there in the end."""
    for edit in range(20):
        write(project, {"jobs/flights.py": f"a = {edit}"})
        start = threading.Barrier(2)

        def take(_, start=start):
            mine = Versions(versions.folder(""), project)
            start.wait()
            return mine.take()

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(take, range(2))
        assert first == second
        assert files(versions.folder(first)) == files(project)
    assert len(names(versions)) == 20
    assert not [name for name in names(versions) if name.startswith(".")]


def test_a_file_that_changes_while_it_is_copied_gives_the_name_of_what_was_copied(versions, project, monkeypatch):
    """The copy is what runs, so its content is its name."""
    copytree = shutil.copytree

    def edited(*words, **more):
        write(project, {"jobs/flights.py": "a = 3"})
        return copytree(*words, **more)

    monkeypatch.setattr(shutil, "copytree", edited)
    name = versions.take()
    monkeypatch.undo()
    assert files(versions.folder(name))["jobs/flights.py"] == "a = 3"
    assert versions.take() == name


def test_nothing_half_copied_is_left_when_copying_fails(versions, project, monkeypatch):
    """The error comes through, and what was there before is as it was."""
    first = versions.take()
    write(project, {"jobs/flights.py": "a = 2"})
    copytree, copied = shutil.copytree, []

    def full(source, *words, **more):
        if source == project / "conf":
            raise OSError(errno.ENOSPC, "No space left on device")
        copied.append(source)
        return copytree(source, *words, **more)

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="No space left"):
        versions.take()
    assert copied[0] == project / "jobs"
    assert names(versions) == [first]


def test_a_file_that_cannot_be_copied_is_an_error_and_leaves_nothing(versions, project):
    """A pipe is no code; nobody waits for what comes out of it."""
    first = versions.take()
    os.mkfifo(project / "jobs" / "pipe")
    with pytest.raises(OSError, match="named pipe"):
        versions.take()
    assert names(versions) == [first]


def test_a_link_that_leads_nowhere_is_an_error_and_leaves_nothing(versions, project):
    """As a file that may not be read would be."""
    (project / "jobs" / "gone.py").symlink_to("nowhere.py")
    with pytest.raises(OSError, match="nowhere|gone"):
        versions.take()
    assert names(versions) == []


def test_what_a_link_leads_to_is_copied(versions, project, tmp_path):
    """An edit behind it does not reach the copy."""
    write(tmp_path, {"shared.py": "c = 1"})
    (project / "jobs" / "shared.py").symlink_to(tmp_path / "shared.py")
    name = versions.take()
    write(tmp_path, {"shared.py": "c = 2"})
    assert files(versions.folder(name))["jobs/shared.py"] == "c = 1"
    assert versions.take() != name


def made(versions, project, count):
    """Take so many versions, each an hour younger than the one before; return their names, oldest first."""
    taken = []
    for edit in range(count):
        write(project, {"jobs/flights.py": f"a = {edit}"})
        taken.append(versions.take())
        os.utime(versions.folder(taken[-1]), (3_600 * edit, 3_600 * edit))
    return taken


def test_pruning_keeps_those_in_use_and_the_newest_ten(versions, project):
    """What is in use stays however old it is, and takes the place of none; a name that is not there changes nothing."""
    taken = made(versions, project, 15)
    versions.prune([taken[0], taken[3], "gone", ""])
    assert names(versions) == sorted([taken[0], taken[3], *taken[5:]])
    assert files(versions.folder(taken[0]))["jobs/flights.py"] == "a = 0"


def test_a_version_that_is_taken_again_is_new_again(versions, project):
    """Who goes back to old code does not lose it to the next prune."""
    taken = made(versions, project, 12)
    write(project, {"jobs/flights.py": "a = 0"})
    assert versions.take() == taken[0]
    versions.prune([])
    assert names(versions) == sorted([taken[0], *taken[3:]])


@pytest.mark.parametrize("count", [0, 1, 10])
def test_pruning_few_versions_deletes_none(versions, project, count):
    """Also where no version was ever taken."""
    taken = made(versions, project, count)
    versions.prune([])
    assert [name for name in taken if not versions.folder(name).is_dir()] == []


def test_what_a_killed_supervisor_left_takes_no_versions_place(versions, project):
    """The newest ten are ten versions."""
    taken = made(versions, project, 10)
    write(versions.folder(".new-0123456789abcdef"), {"jobs/flights.py": ""})
    versions.prune([])
    assert [name for name in taken if not versions.folder(name).is_dir()] == []
