"""Check what no linter looks at: a package where none may be, hosts of registries, paths of one machine, long modules.

Run as `python -m tools.check_tree`; looks at the files git tracks, and at new ones it does not ignore.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.report import report

ROOT = Path(__file__).resolve().parents[1]
LONG_MODULE = 300
TOO_LONG_MODULE = 400
TOO_LONG_TEST = 600
# With an __init__.py that folder shadows the standard library's module, and `import pyspark` dies (FACTS 5).
FORBIDDEN_FILES = ("platform/__init__.py",)
# Other people's files, as their project has published them (docs/decisions/0069).
_UPLOT = "platform/penstock/ui/static/uplot/"
VENDORED = {
    f"{_UPLOT}LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    f"{_UPLOT}uPlot-1.6.32.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    f"{_UPLOT}uPlot-1.6.32.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
}
# With gaps, because this file is checked as well.
_HOSTS = "pypi .org|python hosted.org|repo .maven|repo1 .maven|maven .org|registry .npmjs|deb .debian.org"
HOST = re.compile(_HOSTS.replace(" ", "").replace(".", r"\."))
MACHINE_PATH = re.compile(r"(?:^|[^\w.}>])/(?:work|root|farm|home|Users)(?=[/\s\"'`,;:)]|$)")


def problems_in(name: str, text: str) -> Iterator[str]:
    """Yield the lines of one file that name a registry's host or a path that only one machine has."""
    for number, line in enumerate(text.splitlines(), start=1):
        if HOST.search(line):
            yield f"{name}:{number}: names the host of a package registry"
        if MACHINE_PATH.search(line):
            yield f"{name}:{number}: names a path that only one machine has"


def forbidden(names: Sequence[str]) -> list[str]:
    """Say which files are there and must not be."""
    return [f"{name}: must not exist, it shadows the standard library" for name in names if name in FORBIDDEN_FILES]


def vendored(name: str, content: bytes) -> str | None:
    """Say what is wrong with a file that is somebody else's: it is not as they published it, or nobody noted it."""
    if not name.startswith(_UPLOT):
        return None
    digest = hashlib.sha256(content).hexdigest()
    return None if VENDORED.get(name) == digest else f"{name}: not the published file, its sha256 is {digest}"


def length_of(name: str, text: str) -> tuple[str | None, str | None]:
    """Judge the length of a Python module: (warning, error), at most one of them set."""
    lines = text.count("\n")
    if not name.endswith(".py") or lines <= LONG_MODULE:
        return None, None
    most = TOO_LONG_TEST if name.startswith("tests/") else TOO_LONG_MODULE
    if lines <= most:
        return f"{name}: {lines} lines; over {LONG_MODULE}, look for two nouns in it", None
    return None, f"{name}: {lines} lines; over {most}, split it along its nouns"


def tracked(root: Path) -> list[str]:
    """List the files of the working tree that are tracked, or new and not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (root / name).is_file())


def main() -> int:
    """Check every file."""
    names = tracked(ROOT)
    long: list[str] = []
    problems = forbidden(names)
    problems += [f"{name}: is not there, though it is noted" for name in VENDORED if name not in names]
    for name in names:
        content = (ROOT / name).read_bytes()
        foreign = vendored(name, content)
        if foreign:
            problems.append(foreign)
        if b"\0" in content:  # not text
            continue
        text = content.decode(errors="replace")
        problems.extend(problems_in(name, text))
        warning, error = length_of(name, text)
        if warning:
            long.append(warning)
        if error:
            problems.append(error)
    for warning in long if "--long" in sys.argv[1:] else ():
        print(f"warning: {warning}")
    print(f"warning: {len(long)} modules have over {LONG_MODULE} lines; python -m tools.check_tree --long lists them")
    return report("tree", problems, checked=f"{len(names)} files")


if __name__ == "__main__":
    sys.exit(main())
