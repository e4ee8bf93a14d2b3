"""`penstock.sources` has every name that it lists, and imports none before it is used."""

from __future__ import annotations

import pytest

import penstock.sources as package
from penstock.sources.rate import Rate


def test_each_name_is_what_its_module_defines() -> None:
    """In the order of the list, which is that of `dir`."""
    names = sorted(package.__all__)
    assert names == sorted(package._MODULES), "sources/__init__.py lists each name in __all__ and in _MODULES"
    assert dir(package) == names
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert package.Rate is Rate


def test_another_name_is_no_attribute() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match=r"penstock\.sources.*Kafak"):
        package.Kafak  # noqa: B018
