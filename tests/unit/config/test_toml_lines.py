"""The line of each key of a TOML file is found, however the file is laid out (F66)."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.toml_reader import KeyPath, key_lines

SAMPLE = '''# a comment with [brackets] and key = "value"
top = 1

[ a . "b c" ]  # spaces and a quoted part
text = """
not = a key
[nor.a.table] \\""" still text"""
'literal.key' = \'\'\'
also = not a key\'\'\'
dotted . inner.deep = [  # an array over lines
    "x # no comment", { hidden = 1 },
    [1, 2],
]
inline = { one = 1, two = { three = "}" } }
at = 1979-05-27 07:32:00

[[many]]
x = 1
[[many]]
x = 2
y = ""
'''


def test_keys_of_every_form_have_the_line_they_are_first_named_on():
    """Comments, strings, arrays and inline tables do not lead the scan astray; nothing inside an array is a key."""
    assert key_lines(SAMPLE) == {
        ("top",): 2,
        ("a",): 4,
        ("a", "b c"): 4,
        ("a", "b c", "text"): 5,
        ("a", "b c", "literal.key"): 8,
        ("a", "b c", "dotted"): 10,
        ("a", "b c", "dotted", "inner"): 10,
        ("a", "b c", "dotted", "inner", "deep"): 10,
        ("a", "b c", "inline"): 14,
        ("a", "b c", "inline", "one"): 14,
        ("a", "b c", "inline", "two"): 14,
        ("a", "b c", "inline", "two", "three"): 14,
        ("a", "b c", "at"): 15,
        ("many",): 17,
        ("many", "x"): 18,
        ("many", "y"): 21,
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a = """x""""\nb = 1', 2),
        ('a = """x"""""\nb = 1', 2),
        ("a = '''x''''\nb = 1", 2),
        ('a = ""\nb = 1', 2),
        ('a = """"""\nb = 1', 2),
        ('a = "\\\\"\nb = 1', 2),
        ('a = "\\""\nb = 1', 2),
        ("a = 'C:\\'\nb = 1", 2),
        ("a = []\r\nb = 1\r\n", 2),
        ("a = [[], [\n], '']\nb = 1", 3),
        ("a = {}\nb = 1", 2),
    ],
)
def test_the_end_of_a_value_is_found(text, line):
    """A string ends where TOML says, with up to two quotes of its own before the closing three."""
    assert "b" in tomllib.loads(text)
    assert key_lines(text)["b",] == line


BARE = st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True)
KEY = BARE | st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)
SCALAR = st.integers(-99, 99) | st.booleans() | st.text(alphabet='ab"\\#[]{}=,.\n ', max_size=12)
VALUE = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
TABLE: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(KEY, VALUE, max_size=4), lambda inner: st.dictionaries(KEY, VALUE | inner, max_size=4), max_leaves=8
)


@settings(max_examples=examples(24))
@given(table=TABLE, data=st.data())
def test_every_key_of_a_random_file_is_found_on_its_line(table, data):
    """Whatever mixture of headers, inline tables, quotes, blank lines and comments a file is written with."""
    writer = Writer(data)
    writer.table((), table)
    text = "\n".join(writer.lines) + "\n"
    assert tomllib.loads(text) == table
    assert key_lines(text) == writer.expected


class Writer:
    """Write TOML in a random layout and note the line of each key."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.lines: list[str] = []
        self.expected: dict[KeyPath, int] = {}
        self.inside = 0

    def table(self, path: KeyPath, table: dict[str, Any]) -> None:
        below = {}
        for name, value in table.items():
            if isinstance(value, dict) and self.data.draw(st.booleans()):
                below[name] = value
                continue
            self.put(f"{self.key(name)} = {self.value((*path, name), value, len(self.lines) + 1)}")
        for name, value in below.items():
            inner = (*path, name)
            for length in range(1, len(inner) + 1):
                self.expected.setdefault(inner[:length], self.next_line())
            self.put(f"[{'.'.join(self.key(part) for part in inner)}]")
            self.table(inner, value)

    def next_line(self) -> int:
        if self.data.draw(st.booleans()):
            self.lines.append('# x = 1 " [a]')
        return len(self.lines) + 1

    def put(self, text: str) -> None:
        self.lines.extend(text.split("\n"))

    def key(self, name: str) -> str:
        if (
            name
            and name.replace("_", "a").replace("-", "a").isalnum()
            and name.isascii()
            and self.data.draw(st.booleans())
        ):
            return name
        return json.dumps(name, ensure_ascii=False)

    def value(self, path: KeyPath, value: Any, line: int) -> str:
        self.expected.setdefault(path, line)
        if isinstance(value, dict):
            self.inside += 1
            parts = [f"{self.key(n)} = {self.value((*path, n), v, line)}" for n, v in value.items()]
            self.inside -= 1
            return "{" + ", ".join(parts) + "}"
        return self.plain(value)

    def plain(self, value: Any) -> str:
        if isinstance(value, list):
            # Inside an inline table an array keeps to the line, or the keys after it would be on later ones.
            gap = self.data.draw(st.sampled_from(["", " ", "\n", " # ] \n"][: 2 if self.inside else 4]))
            return "[" + gap + f",{gap}".join(self.plain(v) for v in value) + gap + "]"
        if isinstance(value, bool):
            return str(value).lower()
        return json.dumps(value) if isinstance(value, str) else str(value)
