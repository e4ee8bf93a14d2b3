"""Find pyspark as files where Spark would have Python take it from an archive.

Spark puts `pyspark.zip` before all other places of modules. Python keeps no compiled code of an archive, so each
driver's first batch, and each executor's, waited half a second for the compilation of pyspark.
"""

from __future__ import annotations

import filecmp
import re
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path

__all__ = ["without_archives"]

_ARCHIVE = re.compile(r"(pyspark\.zip|py4j-(?P<version>.+)-src\.zip)")


def without_archives(places: Sequence[str]) -> list[str]:
    """Return where to look for modules, without the archives of Spark's that have the same modules as files.

    - The archive of an installed pyspark, or a copy of it, is left out where the other places have just that package.
    - The archive of py4j is left out where the other places have the same version.
    - The archive of an unpacked Spark is replaced by its modules, SPARK_HOME/python.

    Neither removal makes another folder the source of other modules. Every other archive stays, and so does the order.
    """
    plain = [place for place in places if not _ARCHIVE.fullmatch(Path(place).name)]
    kept: list[str] = []
    for place in places:
        named = _ARCHIVE.fullmatch(Path(place).name)
        if named is None:
            kept.append(place)
        elif named["version"]:
            kept += [] if _has_py4j(named["version"], plain) else [place]
        else:
            kept += _instead_of(Path(place), plain)
    return kept


def _instead_of(archive: Path, plain: Sequence[str]) -> list[str]:
    """Return what takes the place of SPARK_HOME/python/lib/pyspark.zip: nothing, a folder, or the archive itself."""
    python = archive.parent.parent
    if (python / "pyspark" / "__init__.py").is_file():
        return [str(python)]
    package = _found("pyspark", plain)
    own = None if package is None else package.parent / "python" / "lib" / archive.name
    if own is not None and own.is_file() and archive.is_file() and filecmp.cmp(own, archive, shallow=False):
        return []
    return [str(archive)]


def _has_py4j(version: str, plain: Sequence[str]) -> bool:
    package = _found("py4j", plain)
    if package is None:
        return False
    place = str(package.parent.parent)
    return version in [known.version for known in distributions(name="py4j", path=[place])]


def _found(package: str, places: Sequence[str]) -> Path | None:
    """Return the file that makes a package, from the first of these places that has it."""
    spec = PathFinder.find_spec(package, list(places))
    return None if spec is None or spec.origin is None else Path(spec.origin)
