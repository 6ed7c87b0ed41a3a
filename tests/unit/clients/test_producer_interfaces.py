"""The blocking and the asyncio producer have the same methods, parameters and defaults."""

from __future__ import annotations

import inspect

import pytest

from ottla.clients.producer import AsyncProducer, Producer

METHODS = ("__init__", "send", "send_batch", "flush", "close")


@pytest.mark.parametrize("name", METHODS)
def test_interfaces_have_the_same_signature(name: str) -> None:
    blocking, asynchronous = (inspect.signature(getattr(kind, name)) for kind in (Producer, AsyncProducer))
    strip = {"callback", "key", "value"}  # the future of its own interface; types of the class
    assert list(blocking.parameters) == list(asynchronous.parameters)
    for parameter, other in zip(blocking.parameters.values(), asynchronous.parameters.values(), strict=True):
        assert parameter.kind == other.kind
        assert parameter.default == other.default
        assert parameter.name in strip or parameter.annotation == other.annotation


def test_interfaces_have_the_same_public_methods() -> None:
    assert [n for n in dir(Producer) if not n.startswith("_")] == [
        n for n in dir(AsyncProducer) if not n.startswith("_")
    ]
