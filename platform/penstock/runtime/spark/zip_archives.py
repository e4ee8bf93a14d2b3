"""Find pyspark as files where Spark would have Python take it from an archive.

Spark puts `pyspark.zip` before all else that a Python worker finds. Python keeps nothing it compiles of an archive, so
each driver's first batch, and each executor's, waited half a second for pyspark to be compiled anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path

__all__ = ["without_archives"]

_ARCHIVE = re.compile(r"(pyspark\.zip|py4j-(?P<version>.+)-src\.zip)")


def without_archives(places: Sequence[str]) -> list[str]:
    """Return where to look for modules, without the archives of Spark's that have the same modules as files.

    The archive of a pyspark that was installed as a package goes where just that package is found without it, the
    archive of py4j where the same version is; neither makes a folder more of the others' than it was. Beside the
    archive of a Spark that was unpacked are its modules: SPARK_HOME/python takes its place. An archive of which nothing
    of this is true stays. The order of all others is kept.
    """
    plain = [place for place in places if not _ARCHIVE.fullmatch(Path(place).name)]
    found: list[str] = []
    for place in places:
        named = _ARCHIVE.fullmatch(Path(place).name)
        if named is None:
            found.append(place)
        elif named["version"]:
            found += [] if _has_py4j(named["version"], plain) else [place]
        else:
            found += _instead_of(Path(place), plain)
    return found


def _instead_of(archive: Path, plain: Sequence[str]) -> list[str]:
    """Return what takes the place of SPARK_HOME/python/lib/pyspark.zip: nothing, a folder, or the archive itself."""
    python = archive.parent.parent
    if (python / "pyspark" / "__init__.py").is_file():
        return [str(python)]
    installed, found = python.parent / "__init__.py", _found("pyspark", plain)
    if found is not None and installed.is_file() and found.samefile(installed):
        return []
    return [str(archive)]


def _has_py4j(version: str, plain: Sequence[str]) -> bool:
    found = _found("py4j", plain)
    if found is None:
        return False
    place = str(found.parent.parent)
    return version in [known.version for known in distributions(name="py4j", path=[place])]


def _found(package: str, places: Sequence[str]) -> Path | None:
    """Return the file that makes a package, from the first of these places that has it."""
    spec = PathFinder.find_spec(package, list(places))
    return None if spec is None or spec.origin is None else Path(spec.origin)
