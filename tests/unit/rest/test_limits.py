"""Admission of requests and of the bytes of their bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ottla.rest.limits import Body, Limits
from ottla.rest.settings import read_settings
from ottla.web.errors import HttpError

ANN, BOB = b"ann", b"bob"


def limits(**settings: object) -> Limits:
    return Limits(read_settings({name.replace("_", "."): value for name, value in settings.items()}))


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_user_at_its_limit_gets_429_and_others_do_not() -> None:
    admission = limits(requests_per_user_max=2)
    admission.enter(ANN)
    admission.enter(ANN)
    with pytest.raises(HttpError) as raised:
        admission.enter(ANN)
    assert (raised.value.status, raised.value.error_code) == (429, 42901)
    assert raised.value.headers["Retry-After"]
    admission.enter(BOB)
    admission.leave(ANN)
    admission.enter(ANN)


def test_proxy_at_its_limit_answers_503() -> None:
    admission = limits(requests_max=1)
    admission.enter(ANN)
    with pytest.raises(HttpError) as raised:
        admission.enter(BOB)
    assert raised.value.status == 503
    admission.leave(ANN)
    assert not admission.requests
    admission.enter(BOB)


def test_bytes_of_bodies_count_until_release() -> None:
    admission = limits(requests_max_bytes=10)
    first, second = Body(admission), Body(admission)
    assert asyncio.run(first.read(chunks(b"abc", b"def"))) == b"abcdef"
    with pytest.raises(HttpError) as raised:
        asyncio.run(second.read(chunks(b"12", b"345")))
    assert raised.value.status == 503
    second.release()
    first.release()
    assert admission.bytes == 0


def test_body_that_does_not_arrive_in_time_is_408() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.Event().wait()

    body = Body(limits(request_timeout_ms=20))
    with pytest.raises(HttpError) as raised:
        asyncio.run(asyncio.wait_for(body.read(endless()), 20))
    assert raised.value.status == 408
