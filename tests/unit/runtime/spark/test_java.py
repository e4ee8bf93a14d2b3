"""The Java that Spark would run is judged by what it says."""

from __future__ import annotations

import pytest

from penstock.runtime.spark.java import java_command, java_major, java_trouble

OPENJDK_17 = """openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)
"""


@pytest.mark.parametrize(
    ("printed", "major"),
    [
        pytest.param(OPENJDK_17, 17, id="openjdk 17"),
        pytest.param('java version "1.8.0_392"\nJava(TM) SE Runtime Environment\n', 8, id="oracle 8"),
        pytest.param('openjdk version "11.0.2" 2019-01-15\n', 11, id="openjdk 11"),
        pytest.param('openjdk version "21-ea" 2023-09-19\n', 21, id="early access"),
        pytest.param('openjdk version "25" 2025-09-16\n', 25, id="no minor number"),
        pytest.param(f"Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n{OPENJDK_17}", 17, id="after a line of the launcher"),
        pytest.param('Picked up JAVA_TOOL_OPTIONS: -Da="9"\n' + OPENJDK_17, 17, id="after quotes in that line"),
        pytest.param("Unable to locate a Java Runtime.\n", None, id="the java of macOS that is none"),
        pytest.param('openjdk version "unknown"\n', None, id="no number"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(printed, major):
    """Old and new schemes, early versions and lines of the launcher are understood; what is none is None."""
    assert java_major(printed) == major


def test_java_home_goes_before_the_path(tmp_path):
    """Spark runs JAVA_HOME's java where it is set, so that is the one judged, and a wrong one is not passed over."""
    home, on_path = tmp_path / "home", tmp_path / "path"
    for java in (home / "bin" / "java", on_path / "java"):
        java.parent.mkdir(parents=True)
        java.touch(mode=0o755)
    assert java_command({"JAVA_HOME": str(home), "PATH": str(on_path)}) == str(home / "bin" / "java")
    assert java_command({"JAVA_HOME": "", "PATH": str(on_path)}) == str(on_path / "java")
    assert java_command({"JAVA_HOME": str(tmp_path), "PATH": str(on_path)}) is None
    assert java_command({"PATH": str(home)}) is None


@pytest.mark.parametrize(
    ("command", "printed", "home", "expected"),
    [
        pytest.param("java", OPENJDK_17, None, None, id="new enough"),
        pytest.param(None, "", None, "PATH has none", id="missing"),
        pytest.param(None, "", "/opt/jdk", "JAVA_HOME=/opt/jdk has none", id="JAVA_HOME without java"),
        pytest.param("java", 'openjdk version "11.0.2"', None, "java is Java 11", id="too old"),
        pytest.param("java", "???", None, "does not say its version", id="not understood"),
    ],
)
def test_a_java_that_will_not_do_is_named_with_what_to_install(command, printed, home, expected):
    """The trouble is one line: what is needed, what was found, what to install."""
    trouble = java_trouble(command, printed, home)
    if expected is None:
        assert trouble is None
    else:
        assert expected in trouble
        assert "openjdk-17-jre-headless" in trouble
        assert "\n" not in trouble
