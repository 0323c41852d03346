"""Packages that are hidden from a test, as if they were not installed."""

import sys

import pytest


class HiddenPackage:
    """Finder that makes a package look as if it were not installed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise for the hidden package; leave other packages to the next finder."""
        if name == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a package until the end of the test, also if it was imported before."""
    monkeypatch.setattr(sys, "meta_path", [HiddenPackage(name), *sys.meta_path])
    monkeypatch.delitem(sys.modules, name, raising=False)
