"""A pattern means files by their paths below the folder, and folders that have none are not listed."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.sources.file.patterns import Pattern, is_hidden

PATHS = ("a.json", "b.csv", "day=1/a.json", "day=1/hour=2/a.json", "other/a.json", "_day=1/a.json")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("**/*", PATHS),
        ("**", PATHS),
        ("*", ("a.json", "b.csv")),
        ("*.json", ("a.json",)),
        ("**/*.json", tuple(path for path in PATHS if path != "b.csv")),
        ("day=*/*.json", ("day=1/a.json",)),
        ("day=*/**/*.json", ("day=1/a.json", "day=1/hour=2/a.json")),
        ("[do]*/?.json", ("day=1/a.json", "other/a.json")),
        ("**/hour=*/**/*", ("day=1/hour=2/a.json",)),
    ],
)
def test_what_a_pattern_means(text: str, meant: tuple[str, ...]) -> None:
    """`*` stays in one name, `**` is any number of folders."""
    pattern = Pattern(text)

    def is_meant(path: str) -> bool:
        *folders, name = path.split("/")
        states = pattern.start
        for folder in folders:
            states = pattern.below(states, folder)
            if not pattern.may_have_files(states):
                return False
        return pattern.is_file(states, name)

    assert tuple(filter(is_meant, PATHS)) == meant


@pytest.mark.parametrize("text", ["", "/a", "a/", "a//b", "../a", "./*"])
def test_a_pattern_stays_below_the_folder(text: str) -> None:
    """Anything else is refused when the source is made."""
    with pytest.raises(ConfigError, match="pattern"):
        Pattern(text)


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("a.json", False), ("_SUCCESS", True), (".a.json.crc", True), ("_delta_log", True), ("_day=1", False),
        ("a.tmp", True), ("a.json._COPYING_", True), ("a.part", True), ("tmp", False), ("part-0", False),
    ],
)  # fmt: skip
def test_names_of_what_is_unfinished(name: str, *, hidden: bool) -> None:
    """As Spark and HDFS name files that are not data yet, or never."""
    assert is_hidden(name) is hidden
