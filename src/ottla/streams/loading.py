"""The pipelines of a Python file."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from ottla.streams.declarations import Pipeline
from ottla.streams.errors import StreamsError


def find_neighbours(path: Path) -> None:
    """Let this process and the workers of a later session on this machine find modules beside a file.

    Raises StreamsError if the file does not exist.
    """
    if not path.is_file():
        raise StreamsError(f"There is no file {str(path)!r}")
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (directory, os.environ.get("PYTHONPATH"))))


def load_pipelines(path: Path, names: Sequence[str] = ()) -> list[Pipeline]:
    """Import a file and return its pipelines: all, or those with these names. Raises StreamsError."""
    find_neighbours(path)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise StreamsError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    _pickle_by_value(module)
    return choose(pipelines_of(module), names, path.name)


def pipelines_of(module: ModuleType) -> list[Pipeline]:
    """Return the pipelines that a module declares, in its order."""
    found = {id(each): each for each in vars(module).values() if isinstance(each, Pipeline)}
    return list(found.values())


def choose(pipelines: Sequence[Pipeline], names: Sequence[str], place: str) -> list[Pipeline]:
    """Return the pipelines of these names; all without names. Raises StreamsError."""
    by_name = {each.name: each for each in pipelines}
    if not by_name:
        raise StreamsError(f"{place} has no pipeline: decorate a function with @pipeline")
    if len(by_name) < len(pipelines):
        doubled = next(each.name for each in pipelines if by_name[each.name] is not each)
        raise StreamsError(f"{place} has two pipelines {doubled!r}: give one another name, @pipeline(name=...)")
    for name in names:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(by_name)}"
            raise StreamsError(f"{place} has no pipeline {name!r}; {hint}")
    return [by_name[name] for name in dict.fromkeys(names)] if names else list(pipelines)


def _pickle_by_value(module: ModuleType) -> None:
    """Send the functions of a module to the workers themselves: on other machines they cannot import it."""
    from pyspark import cloudpickle

    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    register(module)
