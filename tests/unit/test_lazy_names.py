"""Modules whose names are imported on first use show them to `dir`, `import *` and completion."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
LAZY = sorted(
    ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCES.rglob("*.pyi")
)
# Each line has modules of one layer. Imports each of them first, in a child of a process that has imported the layers
# below, which cannot import this layer (import-linter).
IMPORT_EACH = """
import importlib, os, sys, traceback
for line in sys.stdin:
    for name in line.split():
        if (child := os.fork()) == 0:
            try:
                importlib.import_module(name)
            except BaseException:
                print(f"{name} cannot be imported first:", file=sys.stderr)
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(1)
    for name in line.split():
        importlib.import_module(name)
"""


def lazy_packages_by_layer() -> list[str]:
    """The modules of packages with lazy names, from the lowest layer. Spark and streams need optional packages."""
    contract = tomllib.loads((SOURCES.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    lazy = {name.split(".")[1] for name in LAZY} - {"spark", "streams"}
    layers = []
    for layer in reversed(contract["layers"]):
        files = [path for name in lazy & {*layer.split(" | ")} for path in (SOURCES / "ottla" / name).rglob("*.py")]
        names = {".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__") for path in files}
        layers.append(" ".join(sorted(name for name in names if not name.endswith("__main__"))))
    return layers


def test_lazy_modules_are_found() -> None:
    assert {"ottla.clients", "ottla.clients.admin", "ottla.coordination.late", "ottla.streams"} <= set(LAZY)


@pytest.mark.parametrize("name", LAZY)
def test_names_are_listed_and_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) <= set(dir(module))
    for public in module.__all__:
        assert getattr(module, public) is not None
        assert public in vars(module), "the second use costs no import"
    assert list(module.__all__) == sorted(module.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = module.Nothing


@pytest.mark.parametrize("name", LAZY)
def test_submodule_hides_no_name(name: str) -> None:
    """The import of a submodule sets it in its package, over a function with the same name."""
    module = importlib.import_module(name)
    for public in module.__all__:
        if f"{name}.{public}" in sys.modules:
            assert getattr(module, public) is not sys.modules[f"{name}.{public}"]


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.pyi")), ids=lambda path: path.parent.name)
def test_stub_declares_what_type_checkers_export(path: Path) -> None:
    """They export `from module import Name as Name`, but no other alias."""
    for node in ast.parse(path.read_text()).body:
        assert isinstance(node, ast.ImportFrom)
        assert [(each.name, 0) for each in node.names] == [(each.asname, node.level) for each in node.names]


def test_module_without_a_declared_name_is_an_import_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_example.py").write_text(
        "from ottla.common.lazy import lazy_names\n__getattr__, __dir__, __all__ = lazy_names(__name__)\n"
    )
    (tmp_path / "lazy_example.pyi").write_text("from json import Nothing as Nothing\nfrom json import loads as loads\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("lazy_example")
    assert module.loads("1") == 1
    with pytest.raises(ImportError, match="json cannot be imported: module 'json' has no attribute 'Nothing'"):
        _ = module.Nothing


def test_star_import_brings_the_clients() -> None:
    names: dict[str, object] = {}
    exec("from ottla.clients import *", names)
    assert {"Producer", "Consumer", "Admin", "ClientError", "Problem", "ProducerConfig"} <= set(names)


def test_classes_can_be_pickled() -> None:
    clients = importlib.import_module("ottla.clients")
    for name in ("Producer", "TopicPartition", "BrokerError", "AcknowledgeType"):
        value = getattr(clients, name)
        assert pickle.loads(pickle.dumps(value)) is value


@pytest.mark.parametrize("package", ["clients", "clients.admin", "clients.consumer", "streams", "testing"])
def test_importing_the_package_imports_none_of_its_modules(package: str) -> None:
    program = f"import sys, ottla.{package}; print([m for m in sys.modules if m.startswith('ottla.{package}.')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.long
def test_each_module_can_be_imported_first() -> None:
    """A lazy import hides circular imports, until one of their modules is the first."""
    layers = lazy_packages_by_layer()
    assert sum(len(layer.split()) for layer in layers) > 200
    command = [sys.executable, "-c", IMPORT_EACH]
    ran = subprocess.run(command, input="\n".join(layers), capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
