"""Count what a program can see of bad prose: idioms for which the field has terms, long sentences, chains of clauses.

Run as `python -m tools.check_prose`. It reads README, CONTRIBUTING and docs/, the docstrings of platform/, `--help`
texts, and strings that errors are raised with. `tools/prose.toml` has the count of each file that is not at zero.
A file above its count fails, and a file below it fails until the count is lowered, so counts only shrink.

python -m tools.check_prose docs/start.md    # list what is counted in some files
python -m tools.check_prose --lower          # lower the counts of files that have become better
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.check_tree import tracked
from tools.report import report

ROOT = Path(__file__).resolve().parents[1]
BASELINE = ROOT / "tools" / "prose.toml"
MOST_WORDS = 30
# Programs make these from docstrings and errors, which are read themselves.
GENERATED = ("docs/api.md", "docs/troubleshooting.md")
DECISIONS = "docs/decisions/"

_FORMS_OF_BE = r"(?:is|are|was|were|be|been|being)"
IDIOMS = {
    r"go(?:es|ne|ing)? back\b|went back\b": "restore, rewind",
    r"go(?:es|ne|ing)? on\b|went on\b": "resume, continue",
    r"(?:stands|stood)\b(?! by\b| for\b)|stand(?:ing)? on\b": "is, applies, is based on",
    r"told\b": "reported, logged",
    r"whoever\b|who(?:so)?ever\b": "name the agent",
    r"anew\b": "again, from the start",
    r"put(?:s|ting)? out\b": "emit",
    r"(?:put|set)s? aside\b": "quarantine",
    r"let(?:s|ting)? go\b": "drop, release, expire",
    r"hand(?:s|ed) over\b": "side output",
    r"(?:code|step|job|state|one|those|that) of (?:now|before)\b": "current, previous",
    r"com(?:e|es|ing) again\b": "is read or published a second time",
    r"(?:made|done|begun) again\b": "rebuilt, re-run, restarted",
    r"(?:is|are|was|were) run again\b": "re-run",
    r"behind (?:it|them|this|that|the|a|an|each|every|all|what|which|one|any)\b(?! clock| proxy| now| last batch)": (
        "after, downstream of"
    ),
    rf"{_FORMS_OF_BE} \w+(?:ed|wn|ne|ept|ade|aid) (?:for|from|on|of|at|with|to|in)(?=[.,;:)]|$)": "active voice",
}
_IDIOM = re.compile("|".join(rf"(?P<i{number}>\b(?:{idiom}))" for number, idiom in enumerate(IDIOMS)), re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"”]?\s+(?=[A-Z0-9`\"(*])|(?<=[a-z`)][.!?])$")
_WORD = re.compile(r"\S*\w\S*")
_JOINT = re.compile(r"[:;](?=\s|$)")
_SECTION = re.compile(r"(?:Args|Returns|Raises|Yields|Attributes|Examples?|Notes?):")
_ENTRY = re.compile(r"^\*{0,2}[\w.]+(?: \([^)]*\))?: ")
_ITEM = re.compile(r"^(?:[-*]|\d+\.) ")


def plain(text: str) -> str:
    """Return text without Markdown's marks: code becomes the one word `X`, a link its text, an image its text."""
    text = re.sub(r"``[^`]+``|`[^`]+`", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\*\*|(?<!\w)[_*](?=\w)|(?<=\w)[_*](?!\w)", "", text)


def sentences(paragraph: str) -> list[str]:
    """Split one paragraph of plain text into its sentences."""
    return [part.strip() for part in _SENTENCE_END.split(" ".join(paragraph.split())) if part.strip()]


def problems_of(sentence: str) -> list[str]:
    """Say what is wrong with one sentence."""
    problems = [
        f"'{match[0]}': {list(IDIOMS.values())[int(str(match.lastgroup)[1:])]}" for match in _IDIOM.finditer(sentence)
    ]
    words = len(_WORD.findall(sentence))
    if words > MOST_WORDS:
        problems.append(f"{words} words")
    if len(_JOINT.findall(sentence)) > 1:
        problems.append("two colons or semicolons")
    return problems


def paragraphs_of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each paragraph, heading, item of a list and cell of a table; code is left out."""
    fenced, start, lines = False, 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        bare = line.strip()
        fence = bare.startswith("```")
        alone = fence or fenced or not bare or bare.startswith(("#", "|", "<!--"))
        if lines and (alone or _ITEM.match(bare)):
            yield start, " ".join(lines)
            lines = []
        if fence:
            fenced = not fenced
        elif bare.startswith("|") and not fenced:
            cells = re.split(r"(?<!\\)\|", bare.strip("|"))
            yield from ((number, cell) for cell in cells if _WORD.search(cell))
        elif bare.startswith("#") and not fenced:
            yield number, bare.lstrip("# ")
        elif not alone:
            start = start if lines else number
            lines.append(_ITEM.sub("", bare, count=1))


def paragraphs_of_docstring(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line within the docstring, text) of each paragraph, each entry of a section and each item of a list.

    Code is left out: a block, indented deeper than the text, after a blank line and a line that ends with a colon.
    So are commands in examples of `--help`, after a line with a backspace: their comments are a paragraph each.
    """
    written = [*text.splitlines(), ""]
    margin = min((len(line) - len(line.lstrip()) for line in written[1:] if line.strip()), default=0)
    code, examples, start, lines = False, False, 0, list[str]()
    for number, line in enumerate(written):
        bare = line.strip()
        examples = bare == "\b" or (examples and bool(bare))
        if examples:
            yield from ((number, comment) for comment in re.split(r"\s{2,}", bare)[1:])
            continue
        if bare and (deep := line.startswith(" " * (margin + 4)) and number > 0) != code:
            before = written[max(0, number - 2) : number]
            code = deep and len(before) > 1 and not before[1].strip() and before[0].endswith(":")
        if code:
            continue
        entry = _ENTRY.match(bare) if line.startswith("        ") else None
        if lines and (not bare or entry or _SECTION.fullmatch(bare) or _ITEM.match(bare)):
            yield start, " ".join(lines)
            lines = []
        if bare and not _SECTION.fullmatch(bare):
            start = start if lines else number
            lines.append(_ENTRY.sub("", bare, count=1) if entry else _ITEM.sub("", bare, count=1))


def _written(node: ast.expr) -> str | None:
    """Return the text of a string or f-string, what is filled in as `X`; None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
        case _:
            return None


def paragraphs_of_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of what people read of a module: docstrings, texts of errors, remedies, `help=`."""
    tree = ast.parse(text)
    errors = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock.errors")
        for name in node.names
    }
    for node in ast.walk(tree):
        shown: list[ast.expr] = []
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                yield from ((node.lineno + line, words) for line, words in paragraphs_of_docstring(docstring))
            case ast.Assign(targets=[ast.Name(id="remedy")], value=value):
                shown = [value]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in errors:
                shown = [*args, *(keyword.value for keyword in keywords)]
            case ast.Call(keywords=keywords):
                texts = [(k.value, _written(k.value)) for k in keywords if k.arg == "help"]
                for value, shown_as in texts:
                    paragraphs = paragraphs_of_docstring(shown_as or "")
                    yield from ((value.lineno + line, words) for line, words in paragraphs)
        yield from ((value.lineno, written) for value in shown if (written := _written(value)))


def problems_in(name: str, text: str) -> list[str]:
    """Return what is wrong with the prose of one file, each with its line."""
    read = paragraphs_of_python if name.endswith(".py") else paragraphs_of_markdown
    return [
        f"{name}:{line}: {problem}: {sentence}"
        for line, paragraph in read(text)
        for sentence in sentences(plain(paragraph))
        for problem in problems_of(sentence)
    ]


def is_prose(name: str) -> bool:
    """Tell whether a file of the repository is looked at."""
    if name.startswith("platform/"):
        return name.endswith(".py")
    pages = name.startswith("docs/") and not name.startswith(DECISIONS) and name not in GENERATED
    return name in ("README.md", "CONTRIBUTING.md") or (pages and name.endswith(".md"))


def compare(counts: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """Say which files are above their count, and which counts are to be lowered; a file not listed has zero."""
    problems = []
    for name in sorted(counts.keys() | allowed.keys()):
        count, most = counts.get(name, 0), allowed.get(name, 0)
        if count > most:
            problems.append(f"{name}: {count} problems, {most} allowed: python -m tools.check_prose {name}")
        elif count < most:
            problems.append(f"{name}: {count} problems, {most} allowed: python -m tools.check_prose --lower")
    return problems


def lowered(counts: Mapping[str, int], allowed: Mapping[str, int]) -> dict[str, int]:
    """Return the baseline with lower counts where files have become better, and none raised."""
    least = {name: min(most, counts.get(name, 0)) for name, most in allowed.items()}
    return {name: count for name, count in sorted(least.items()) if count}


def write_baseline(allowed: Mapping[str, int]) -> str:
    """Return the baseline as TOML, a line for each file."""
    lines = [f'"{name}" = {count}' for name, count in allowed.items()]
    head = "# What tools/check_prose.py counts, by file. A count may only shrink; a file without one has zero."
    return "\n".join([head, *lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, and compare with the baseline; or list the problems of the files named."""
    parser = argparse.ArgumentParser(prog="check_prose", description="Prose in the words of the field, and short.")
    parser.add_argument("--lower", action="store_true", help="lower the counts of files that have become better")
    parser.add_argument("files", nargs="*", help="list what is counted in these files, and compare nothing")
    options = parser.parse_args(arguments)
    if options.files:
        problems = [problem for name in options.files for problem in problems_in(name, (ROOT / name).read_text())]
        print("\n".join([*problems, f"{len(problems)} problems"]))
        return 0
    counts = {name: len(problems_in(name, (ROOT / name).read_text())) for name in tracked(ROOT) if is_prose(name)}
    allowed = tomllib.loads(BASELINE.read_text())
    if options.lower:
        allowed = lowered(counts, allowed)
        BASELINE.write_text(write_baseline(allowed))
    return report("prose", compare(counts, allowed), checked=f"{len(counts)} files, {sum(counts.values())} problems")


if __name__ == "__main__":
    sys.exit(main())
