"""The object of a function that Spark could not pickle."""

from __future__ import annotations

import functools
import pickle
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.serializers import CloudPickleSerializer

from ottla.streams.pickling import reason_of, without_traces

LOCK = threading.Lock()


class Client:
    def __init__(self) -> None:
        self.connections = {"first": threading.Lock()}

    def fetch(self, _: Any) -> None: ...


def with_global(value: Any) -> Any:
    with LOCK:
        return value


def with_closure() -> Callable[[Any], Any]:
    client = Client()

    def fetch(value: Any) -> Any:
        return client.fetch(value)

    def outer(value: Any) -> Any:
        return fetch(value)

    return outer


class Odd:
    def __reduce__(self) -> Any:
        raise pickle.PicklingError("an odd object")


ODD = Odd()


def odd(_: Any) -> Any:
    return ODD


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            with_global,
            (
                r"^the function 'with_global' \(test_pickling\.py, line \d+\) cannot be sent to Spark's workers: its "
                r"variable 'LOCK' is of type lock: Could not serialize object: TypeError: cannot pickle "
                r"'_thread\.lock' object\. Create such an object in the function, or in a module"
            ),
        ),
        (with_closure(), r"function 'with_closure.<locals>.fetch' .* variable 'client.connections.first' is of type"),
        (functools.partial(with_global), r"the function 'with_global' .* variable 'LOCK'"),
        (Client().fetch, r"a function cannot be .* variable '0.self.connections.first' is of type lock"),
        (odd, r"its variable 'ODD' is of type Odd: an odd object"),
    ],
)
def test_function_and_variable_are_named(function: Any, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    module: Any = sys.modules[__name__]
    register, unregister = cloudpickle.register_pickle_by_value, cloudpickle.unregister_pickle_by_value
    register(module)  # type: ignore[no-untyped-call]  # as a program's modules are
    try:
        with without_traces(), pytest.raises(pickle.PickleError) as raised:
            CloudPickleSerializer().dumps((function, None))  # type: ignore[no-untyped-call]
        said = reason_of(raised.value)
    finally:
        unregister(module)  # type: ignore[no-untyped-call]
    assert re.search(reason, said), said
    assert capfd.readouterr().err == ""
