"""Packages whose names are imported on first use show them to `dir`, `import *` and completion."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

PACKAGES = ["ottla.clients", "ottla.testing", "ottla.spark", "ottla.streams"]


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_listed_and_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert list(module.__all__) == sorted(module.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = module.Nothing


def test_star_import_brings_the_clients() -> None:
    names: dict[str, object] = {}
    exec("from ottla.clients import *", names)
    assert {"Producer", "Consumer", "Admin", "ClientError", "Problem", "ProducerConfig"} <= set(names)


def test_importing_the_package_imports_no_client() -> None:
    program = "import sys, ottla.clients; print([m for m in sys.modules if m.startswith('ottla.clients.')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
