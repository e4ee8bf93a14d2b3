"""`tools/check_prose.py`: idioms, long sentences and chains of clauses are counted, and counts only shrink."""

from __future__ import annotations

import tomllib

import pytest

from tools import check_prose
from tools.check_prose import (
    IDIOMS,
    compare,
    is_prose,
    lowered,
    main,
    plain,
    problems_in,
    problems_of,
    sentences,
    write_baseline,
)


@pytest.mark.parametrize(
    ("sentence", "idiom"),
    [
        ("The job goes on from batch 3.", "goes on"),
        ("Files that can be gone back to.", "gone back"),
        ("The next batch stands on it.", "stands"),
        ("The damage is told by file.", "told"),
        ("Whoever owns the log appends.", "Whoever"),
        ("The state is written anew.", "anew"),
        ("What is put out has a time.", "put out"),
        ("It is put aside and counted.", "put aside"),
        ("The key is let go.", "let go"),
        ("Late rows are handed over.", "handed over"),
        ("The code of now is compared.", "code of now"),
        ("The row comes again.", "comes again"),
        ("The index is made again.", "made again"),
        ("The batch is run again.", "is run again"),
        ("The windows behind it close.", "behind it"),
        ("A release that is asked for.", "is asked for"),
    ],
)
def test_an_idiom_is_found_with_the_term_to_use(sentence, idiom):
    """The field has words for these, and people search for them."""
    (problem,) = problems_of(sentence.rstrip("."))
    assert problem.startswith(f"'{idiom}': ")
    assert problem.split(": ", 1)[1] in IDIOMS.values()


@pytest.mark.parametrize(
    "sentence",
    [
        "A second supervisor stands by.",
        "X stands for a value.",
        "Airflow runs behind a proxy.",
        "The watermark is behind the clock.",
        "A position is derived from the file.",
        "Undergo onwards backgo on.",
        "A month ago one batch failed.",
    ],
)
def test_plain_words_are_left_alone(sentence):
    """A pattern ends where the words do not mean the idiom."""
    assert problems_of(sentence) == []


def test_a_sentence_has_at_most_thirty_words():
    """Words are what has a letter or a digit: a dash is none, and code is one."""
    thirty = " ".join(["word"] * 29)
    assert problems_of(f"{thirty} word") == []
    assert problems_of(f"{thirty} -- word") == []
    assert problems_of(f"{thirty} word word") == ["31 words"]
    assert problems_of(plain(f"{thirty} `penstock run JOB --from batch=1`")) == []


@pytest.mark.parametrize(
    ("sentence", "problems"),
    [
        ("One: two", []),
        ("One: two; three", ["two colons or semicolons"]),
        ("One; two; three", ["two colons or semicolons"]),
        ("At 10:30:15 of a::b", []),
    ],
)
def test_a_sentence_has_at_most_one_joint(sentence, problems):
    """What chains three clauses is a list, or three sentences; times and paths are no joints."""
    assert problems_of(sentence) == problems


def test_sentences_end_where_another_begins():
    """Not in a number, a file name or an abbreviation."""
    assert sentences("One of 1.5 in a.md. Two, e.g. this?  `X` is three.\nFour") == [
        "One of 1.5 in a.md.",
        "Two, e.g. this?",
        "`X` is three.",
        "Four",
    ]


PAGE = """# It goes on
Exit 0. A line
goes on.

```
goes on: here; there;
```
- first; item
- second; item: goes on

| a; b | c: d |
|---|---|
| told | `told` |
<!-- goes on -->
[told](goes-on.md) ![anew](x.png)
"""


def test_of_a_page_prose_is_read_and_no_code():
    """A heading, a paragraph, an item and a cell are each by themselves; the line is where it begins."""
    assert [problem.split(": ")[:2] for problem in problems_in("a.md", PAGE)] == [
        ["a.md:1", "'goes on'"],
        ["a.md:2", "'goes on'"],
        ["a.md:9", "'goes on'"],
        ["a.md:9", "two colons or semicolons"],
        ["a.md:13", "'told'"],
        ["a.md:15", "'told'"],
        ["a.md:15", "'anew'"],
    ]


MODULE = '''"""Told.

Fine.
"""
from penstock.errors import JobError
from elsewhere import Told

LIMIT = 3
"""Anew."""
NAME = "goes on"


class Leaf(JobError):
    """Fine."""

    remedy = "Whoever."


def act(a):
    """Fine.

    Args:
        first: One; two.
        second: One: two; three.
    """
    option(a, help="Put out.")
    Told("goes on")
    raise JobError(f"{a} goes on", where="goes on")
'''


def test_the_mark_of_an_item_is_no_part_of_a_sentence():
    """A number that ends a sentence is."""
    (problem,) = problems_in("a.md", "1. " + "word " * 30 + "1. Next")
    assert problem.endswith("word 1.")


def test_code_in_a_docstring_is_no_prose():
    """A block, indented, behind a blank line and a line that ends with a colon; entries of a section are prose."""
    text = """A sink:

        class Table:
            a: int; b: str

    It does it anew.

    Args:
        name: What is told.
    """
    read = [words for _, words in check_prose.paragraphs_of_docstring(text)]
    assert read == ["A sink:", "It does it anew.", "What is told."]
    of_a_module = "A sink:\n\n    class Table: ...\n\nAnew.\n"
    assert [words for _, words in check_prose.paragraphs_of_docstring(of_a_module)] == ["A sink:", "Anew."]


def test_of_a_module_what_people_read_is_read():
    """Docstrings, remedies, `help=`, and strings given to Penstock's errors; no other string."""
    problems = [problem.split(": ") for problem in problems_in("a.py", MODULE)]
    assert [[where, what] for where, what, *_ in sorted(problems, key=lambda p: int(p[0].split(":")[1]))] == [
        ["a.py:1", "'Told'"],
        ["a.py:9", "'Anew'"],
        ["a.py:16", "'Whoever'"],
        ["a.py:24", "two colons or semicolons"],
        ["a.py:26", "'Put out'"],
        ["a.py:28", "'goes on'"],
        ["a.py:28", "'goes on'"],
    ]


def test_of_an_example_of_help_only_the_comment_is_read():
    """What one types is no prose; each comment is a sentence of its own."""
    text = 'def run():\n    """Run.\n\n    \\b\n    Examples:\n      run a: b; c  go on\n      run told\n\n    It is told.\n    """\n'
    assert [problem.split(": ")[:2] for problem in problems_in("a.py", text)] == [
        ["a.py:6", "'go on'"],
        ["a.py:9", "'told'"],
    ]


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("README.md", True),
        ("docs/operators/state.md", True),
        ("docs/compatibility.md", True),
        ("docs/api.md", False),
        ("docs/decisions/0001-one-lock.md", False),
        ("platform/penstock/agg.py", True),
        ("platform/penstock/ui/static/penstock.js", False),
        ("tools/check_prose.py", False),
    ],
)
def test_which_files_are_read(name, is_read):
    """Pages and the package; no page twice, and no decision, which is not rewritten."""
    assert is_prose(name) is is_read


def test_a_count_may_only_shrink():
    """Above it is a problem, below it the count must follow, and a file without one has zero."""
    allowed = {"better.md": 5, "gone.md": 1, "same.md": 2, "worse.md": 3}
    counts = {"better.md": 4, "new.md": 1, "same.md": 2, "worse.md": 4}
    assert [problem.split(":")[0] for problem in compare(counts, allowed)] == [
        "better.md",
        "gone.md",
        "new.md",
        "worse.md",
    ]
    assert lowered(counts, allowed) == {"better.md": 4, "same.md": 2, "worse.md": 3}
    assert tomllib.loads(write_baseline(allowed)) == allowed


def test_the_command_lowers_counts_and_never_raises_one(tmp_path, monkeypatch, capsys):
    """`--lower` is what one runs after a rewrite; a file that became worse still fails."""
    (tmp_path / "README.md").write_text("It goes on.\n")
    baseline = tmp_path / "prose.toml"
    monkeypatch.setattr(check_prose, "ROOT", tmp_path)
    monkeypatch.setattr(check_prose, "BASELINE", baseline)
    monkeypatch.setattr(check_prose, "tracked", lambda _: ["README.md", "setup.sh"])
    baseline.write_text(write_baseline({"README.md": 2}))
    assert main([]) == 1
    assert main(["--lower"]) == 0
    assert tomllib.loads(baseline.read_text()) == {"README.md": 1}
    (tmp_path / "README.md").write_text("It goes on, told anew.\n")
    assert main(["--lower"]) == 1
    assert "3 problems, 1 allowed" in capsys.readouterr().err
    assert main(["README.md"]) == 0
    assert "README.md:1: 'goes on': resume, continue: It goes on, told anew." in capsys.readouterr().out
