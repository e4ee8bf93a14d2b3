"""Jars are those of the list of digests, or it is said which are not."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.runtime.spark import jars
from tools.jars import HDFS, SPARK, main

DIGEST = "0" * 64
OTHER = "f" * 64


def test_digests_are_read_in_the_format_of_sha256sum():
    """A digest, two blanks, a name; blank lines and comments are passed over."""
    assert jars.read_digests(f"# why\n\n{DIGEST}  a.jar\n{OTHER}  b.jar\n") == {"a.jar": DIGEST, "b.jar": OTHER}


@pytest.mark.parametrize("line", ["a.jar", f"{DIGEST} a.jar", "00  a.jar", f"{DIGEST}  ", f"{DIGEST}  b.jar"])
def test_a_line_that_is_no_digest_is_refused_with_its_number(line):
    """A damaged list must not quietly want less; a name twice is damage as well."""
    with pytest.raises(ValueError, match="line 2"):
        jars.read_digests(f"{OTHER}  b.jar\n{line}\n")


@pytest.mark.parametrize(
    ("digests", "expected"),
    [
        pytest.param({"a.jar": DIGEST}, [], id="all there and right"),
        pytest.param({}, ["a.jar is missing"], id="missing"),
        pytest.param({"a.jar": OTHER}, ["a.jar is wrong"], id="wrong"),
        pytest.param({"a.jar": DIGEST, "b.jar": OTHER}, ["b.jar is extra"], id="extra"),
        pytest.param({"b.jar": OTHER}, ["a.jar is missing", "b.jar is extra"], id="another version"),
    ],
)
def test_missing_wrong_and_extra_jars_are_named(digests, expected):
    """Each difference is a sentence that begins with the jar."""
    differences = jars.differences({"a.jar": DIGEST}, digests)
    assert [re.match(r"\S+ is \w+", line).group() for line in differences] == expected


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project that wants one jar, and a `fetch` that counts and brings it."""
    content = b"jar"
    folder, fetched = tmp_path / ".jars", []
    (tmp_path / "jars.sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  a.jar\n")

    def fetch(wanted):
        fetched.append(1)
        (wanted.folder / "a.jar").write_bytes(content)

    monkeypatch.setattr(jars, "fetch", fetch)
    return jars.Jars(folder, tmp_path / "ivy.xml", tmp_path / "jars.sha256"), fetched


def test_jars_are_fetched_once(project):
    """What is missing is fetched; when all is right a second run asks nobody."""
    wanted, fetched = project
    assert not jars.are_there(wanted)
    assert jars.ensure(wanted) == []
    assert jars.ensure(wanted) == []
    assert jars.are_there(wanted)
    assert len(fetched) == 1


def test_a_damaged_jar_is_fetched_again(project):
    """A jar with other bytes is replaced, not used."""
    wanted, fetched = project
    assert jars.ensure(wanted) == []
    (wanted.folder / "a.jar").write_bytes(b"damaged")
    assert not jars.are_there(wanted)
    assert jars.ensure(wanted) == []
    assert len(fetched) == 2


def test_an_extra_jar_is_an_error_in_a_clone(project, capsys, monkeypatch):
    """A jar that nobody listed would end up on the class path."""
    wanted, _ = project
    monkeypatch.setattr("tools.jars.ROOT", wanted.folder.parent)
    monkeypatch.setattr("tools.jars.FOLDER", wanted.folder)
    monkeypatch.setattr("tools.jars.SPARK", wanted)
    assert main() == 0
    (wanted.folder / "b.jar").write_bytes(b"?")
    assert main() == 1
    assert "b.jar is extra" in capsys.readouterr().err


def test_what_ivy_said_is_shown_when_a_jar_is_still_missing(project, monkeypatch):
    """Without a network the reason is in the message, below the jar's name."""
    monkeypatch.setattr(jars, "fetch", lambda wanted: "UNRESOLVED DEPENDENCIES")
    assert jars.ensure(project[0]) == ["a.jar is missing", "Ivy said:\nUNRESOLVED DEPENDENCIES"]


def test_one_process_at_a_time_fetches(project):
    """Two workers of one test run find the folder empty at the same time, and one of them fetches."""
    wanted, fetched = project
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: jars.ensure(wanted), range(2))) == [[], []]
    assert len(fetched) == 1


@pytest.mark.parametrize("wanted", [SPARK, HDFS], ids=["spark", "hdfs"])
def test_every_jar_of_the_ivy_file_has_a_digest(wanted):
    """What asks Ivy and the list of digests name the same jars and versions."""
    asked = set(re.findall(r'name="([^"]+)" rev="([^"]+)"', wanted.ivy_file.read_text()))
    assert {f"{name}-{revision}.jar" for name, revision in asked} == wanted.wanted().keys()
