"""Checks of the helpers' arguments: errors that suggest the correct name, raised at the caller's line.

`checked` is a class decorator. An unknown keyword argument of a public method raises a TypeError with the most similar
name, and errors that a test can cause are raised without the plugin's frames.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from types import FunctionType
from typing import Any, TypeVar

from ottla.common.errors import KafkaError
from ottla.config import TOPIC_SETTINGS
from ottla.config.synonyms import TOPIC_SYNONYMS
from ottla.testing.base import BrokerError
from ottla.testing.waiting import NotInTime

C = TypeVar("C", bound=type)
TAKES_MORE = 0x08
"""The flag of code objects with `**keywords` (CO_VARKEYWORDS)."""
EXPECTED = (KafkaError, BrokerError, NotInTime, ValueError)


def checked(cls: C) -> C:
    """Check the keyword arguments of all public methods."""
    for name, function in list(vars(cls).items()):
        if isinstance(function, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _checked(function))
    return cls


def _checked(function: FunctionType) -> Callable[..., Any]:
    code = function.__code__
    known = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    takes_more = bool(code.co_flags & TAKES_MORE)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        __tracebackhide__ = True
        if not takes_more:
            check(function.__name__, keywords, known)
        try:
            return function(*arguments, **keywords)
        except EXPECTED as error:
            if calls_back:
                raise
            # The traceback contains only frames of the broker's thread and of the call to it.
            raise error.with_traceback(None)  # noqa: B904 - it is the same exception

    calls_back = "predicate" in known
    return call


def check(helper: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for the first unknown name, with the most similar known one."""
    __tracebackhide__ = True
    names = list(known)
    for name in given:
        if name not in names:
            raise TypeError(f"{helper}(): there is no argument {name!r}{_meant(name, names)}")


def check_topic_configs(configs: Iterable[str], arguments: Iterable[str]) -> None:
    """Check the topic configs among the keywords of `topic()`: Kafka's names, with underscores or dots."""
    __tracebackhide__ = True
    unknown = next((name for name in configs if name.replace("_", ".") not in TOPIC_SETTINGS), None)
    if unknown is None:
        return
    if similar := _meant(unknown, list(arguments)):
        raise TypeError(f"topic(): there is no argument {unknown!r}{similar}")
    broker_setting = unknown.replace("_", ".")
    for config, rows in TOPIC_SYNONYMS.items():
        if any(row.name == broker_setting for row in rows):
            similar = f": the topic config is {_spelt(config, unknown)!r}"
    similar = similar or _meant(unknown, [_spelt(config, unknown) for config in TOPIC_SETTINGS])
    raise TypeError(f"topic(): there is no argument or topic config {unknown!r}{similar}")


def _spelt(config: str, like: str) -> str:
    return config if "." in like else config.replace(".", "_")


def _meant(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f": did you mean {close[0]!r}?" if close else ""
