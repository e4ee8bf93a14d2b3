"""Check the subject of a commit message: a scope, one change in the imperative, one line of at most 72 characters.

A hook of pre-commit runs `python -m tools.check_commit_message FILE`; see CONTRIBUTING.md.
`git log --oneline` can be read, and `git bisect` ends at one change, only if all commits keep to it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST = 72
_BY_GIT = re.compile(r"(?:Merge|Revert|fixup!|squash!|amend!) ")
_SUBJECT = re.compile(r"(?P<scope>[a-z][\w./ -]*(?:, [\w./ -]+)*): (?P<change>\S.*)")
_NO_VERB = re.compile(
    r"an?|all|and|another|any|both|each|every|for|from|how|in|its?|more|new|no|not|nothing|now|of|on|one|only|our|some|"
    r"that|the|their|these|they|this|those|what|when|where|which|who|why|with"
)
_VERB_ALL_THE_SAME = re.compile(
    r"(?:emb|f|n|h|s|bl)eed|embed|need|shed|(?:br|p|r|s|st|str|sw|w|fl)ing|\w+ss|bias|focus"
)
_NOT_IMPERATIVE = re.compile(r"\w+(?:ed|ing|[^us]s)")


def subject_of(message: str) -> tuple[str, str]:
    """Return the first line of a message, and the second; comments and what `commit --verbose` shows are left out."""
    kept = message.split("\n# ------------------------ >8", 1)[0]
    lines = [line.rstrip() for line in kept.splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        del lines[0]
    return (*lines[:2], "", "")[0], (*lines[1:2], "")[0]


def problems_of(message: str) -> Iterator[str]:
    """Yield what is wrong with a commit message."""
    subject, second = subject_of(message)
    if _BY_GIT.match(subject):
        return
    if second:
        yield "the subject is one line, followed by an empty one"
    if len(subject) > LONGEST:
        yield f"the subject has {len(subject)} characters, {LONGEST} are allowed: say why in the body"
    parts = _SUBJECT.fullmatch(subject)
    if parts is None:
        yield "the subject begins with a scope in lower case, as in 'sinks: publish a batch once'"
        return
    if ";" in subject:
        yield "the subject names one change: make a commit of each"
    if subject.endswith("."):
        yield "the subject has no full stop"
    word = parts["change"].split()[0].lower().strip("`'\",:")
    inflected = _NOT_IMPERATIVE.fullmatch(word) and not _VERB_ALL_THE_SAME.fullmatch(word)
    if inflected or _NO_VERB.fullmatch(word):
        yield f"the change begins with a verb in the imperative, as in 'add', 'fix' or 'remove', and not with '{word}'"


def main() -> int:
    """Check the message in a file, which git names."""
    problems = list(problems_of(Path(sys.argv[1]).read_text(encoding="utf-8")))
    for problem in problems:
        print(f"commit message: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
