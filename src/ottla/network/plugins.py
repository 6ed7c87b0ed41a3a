"""Loads Python objects that settings name, in place of Kafka's Java classes, and calls them in threads.

A name is an entry point of the group `ottla.security`, or `module:attribute`.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError

GROUP: Final = "ottla.security"
# How long a function of a plugin may take.
TIMEOUT_S: Final = 30.0


def load(setting: str, name: str) -> Any:
    """Return the object that `name`, the value of `setting`, stands for. Raises KafkaError (INVALID_CONFIG)."""
    try:
        for entry in entry_points(group=GROUP, name=name):
            return entry.load()
        module, colon, attribute = name.partition(":")
        if not colon:
            problem = f"it is not an entry point of the group {GROUP} and not of the form module:attribute"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{setting}={name}: {problem}")
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except KafkaError:
        raise
    except Exception as error:  # foreign code may raise anything
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{setting}={name} cannot be loaded: {error}") from error
    return found


def call_in_thread(function: Callable[..., Any], *arguments: object) -> Completion[Any]:
    """Call a function that may block; the completion fails with its exception, or with TimeoutError."""
    called: Completion[Any] = Completion()
    loop = asyncio.get_running_loop()

    def finish(done: asyncio.Future[Any]) -> None:
        deadline.cancel()
        error = TimeoutError() if done.cancelled() else done.exception()
        if isinstance(error, Exception):
            called.fail(error)
        elif error is None:
            called.complete(done.result())
        else:
            raise error

    deadline = loop.call_later(TIMEOUT_S, lambda: called.fail(TimeoutError(f"no result within {TIMEOUT_S:g} s")))
    loop.run_in_executor(None, function, *arguments).add_done_callback(finish)
    return called


def failure(error: Exception) -> str:
    """Describe the exception of a plugin without its message, which may contain a secret."""
    return str(error) if isinstance(error, TimeoutError) else f"it raised {type(error).__name__}"
