"""`tools/check_tree.py`: what no linter looks at."""

from __future__ import annotations

import subprocess

import pytest

from tools.check_tree import ROOT, VENDORED, forbidden, length_of, problems_in, tracked, vendored


@pytest.mark.parametrize("host", ["py" + "pi.org", "files.python" + "hosted.org", "repo1.ma" + "ven.org"])
def test_the_host_of_a_registry_is_found(host):
    """Which registry is asked is the configuration of a machine, not of the project."""
    assert list(problems_in("a.txt", f"fine\nhttps://{host}/simple\n")) == [
        "a.txt:2: names the host of a package registry"
    ]


@pytest.mark.parametrize("name", ["work", "root", "home", "Users"])
@pytest.mark.parametrize("template", ["/{}/me/file", "see /{}", "'/{}'", "a:/{}/b", "cd /{}; ls"])
def test_the_path_of_one_machine_is_found(name, template):
    """It would mean nothing to anybody else."""
    assert list(problems_in("a.py", template.format(name))) == ["a.py:1: names a path that only one machine has"]


@pytest.mark.parametrize("name", ["work", "root", "home", "Users"])
@pytest.mark.parametrize("template", ["<{}>/<job>/log", "docs/{}/page", "{{a}}/{}/b", "/{}ers", "./{}/x", "a.b/{}/c"])
def test_other_paths_are_left_alone(name, template):
    """Relative paths, names in brackets and longer names are no machine's."""
    assert list(problems_in("a.py", template.format(name))) == []


def test_a_package_file_in_the_source_root_is_found():
    """`platform/` is a source root only: as a package it hides the standard library's module."""
    assert len(forbidden(["platform/__init__.py", "platform/penstock/__init__.py"])) == 1


@pytest.mark.parametrize(
    ("name", "lines", "warns", "fails"),
    [
        ("a.py", 300, False, False),
        ("a.py", 301, True, False),
        ("a.py", 400, True, False),
        ("tests/a.py", 600, True, False),
        ("tests/a.py", 601, False, True),
        ("a.py", 401, False, True),
        ("a.md", 401, False, False),
    ],
)
def test_a_long_module_is_warned_of_and_a_longer_one_refused(name, lines, warns, fails):
    """Over 300 lines is a hint, over 400 an error; other files may be long."""
    warning, error = length_of(name, "x\n" * lines)
    assert (warning is not None, error is not None) == (warns, fails)


def test_files_are_those_that_git_tracks_and_new_ones_but_none_ignored(tmp_path):
    """A file is checked before it is added, and one that was removed does not trip the checker."""
    for name in ("tracked.txt", "gone.txt", "new.txt", "ignored.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / ".gitignore").write_text("ignored.txt\n")
    for arguments in (["init", "-q"], ["add", "tracked.txt", "gone.txt"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    (tmp_path / "gone.txt").unlink()
    assert tracked(tmp_path) == [".gitignore", "new.txt", "tracked.txt"]


def test_other_peoples_files_are_as_they_published_them():
    """One changed byte, and a file beside them that nobody has noted, are found."""
    for name in VENDORED:
        content = (ROOT / name).read_bytes()
        assert vendored(name, content) is None
        assert "not the published file" in vendored(name, content + b" ")
        assert "not the published file" in vendored(f"{name}.map", content)
    assert vendored("platform/penstock/ui/static/penstock.js", b"ours") is None
