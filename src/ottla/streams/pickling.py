"""Why a function of a program cannot be pickled, which Spark does to send it to the workers."""

from __future__ import annotations

import functools
import inspect
import pickle
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import cloudpickle, serializers, util

_DEEPEST: Final = 8
"""How far the search for the object follows variables and attributes."""


@contextmanager
def without_traces() -> Iterator[None]:
    """Let pyspark not print the traceback of an exception that it raises as PicklingError."""
    before = util.print_exec
    util.print_exec = lambda stream: None  # noqa: ARG005 - pyspark's parameter
    try:
        yield
    finally:
        util.print_exec = before


def reason_of(error: pickle.PickleError) -> str:
    """Return which object cannot be pickled, of which function, and what to do."""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    function, path, found = _find(_pickled(error))
    whose = "a function" if function is None else f"the function {function.__qualname__!r} ({_place(function)})"
    what = f"its variable {'.'.join(path)!r} is of type {type(found).__qualname__}: " if path else ""
    advice = "Create such an object in the function, or in a module that the workers import."
    return f"{whose} cannot be sent to Spark's workers: {what}{said}. {advice}"


def _pickled(error: BaseException) -> object:
    """Return what pyspark was about to pickle."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is serializers.CloudPickleSerializer.dumps.__code__:
            return trace.tb_frame.f_locals["obj"]
        trace = trace.tb_next
    return None


def _find(root: object) -> tuple[types.FunctionType | None, list[str], object]:
    """Return the innermost function with an object that cannot be pickled, the way to it by names, and the object."""
    function: types.FunctionType | None = None
    path: list[str] = []
    found = root
    for _ in range(_DEEPEST):
        if isinstance(found, types.FunctionType):
            function, path = found, []
        inner = next(((name, each) for name, each in _parts(found) if not _is_picklable(each)), None)
        if inner is None:
            break
        path, found = [*path, inner[0]], inner[1]
    if isinstance(found, types.FunctionType):
        function, path = found, []
    return function, path, found


def _parts(given: object) -> Iterator[tuple[str, object]]:
    """Yield the objects that are pickled with one, with their names."""
    if isinstance(given, types.FunctionType):
        used = inspect.getclosurevars(given)
        yield from (*used.nonlocals.items(), *used.globals.items())
        yield from ((f"default {number}", each) for number, each in enumerate(given.__defaults__ or ()))
    elif isinstance(given, types.MethodType):
        yield from (("self", given.__self__), (given.__name__, given.__func__))
    elif isinstance(given, functools.partial):
        yield from (("func", given.func), ("args", given.args), ("keywords", given.keywords))
    elif isinstance(given, Mapping):
        yield from ((str(name), each) for name, each in given.items())
    elif isinstance(given, (list, tuple)):
        yield from ((str(number), each) for number, each in enumerate(given))
    else:
        yield from getattr(given, "__dict__", {}).items()


def _is_picklable(given: object) -> bool:
    dumps: Any = cloudpickle.dumps
    try:
        dumps(given)
    except Exception:  # noqa: BLE001 - any exception means that it is not
        return False
    return True


def _place(function: types.FunctionType) -> str:
    code = function.__code__
    return f"{Path(code.co_filename).name}, line {code.co_firstlineno}"
