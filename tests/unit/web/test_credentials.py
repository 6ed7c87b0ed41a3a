"""Credentials of requests, and JSON of responses."""

from __future__ import annotations

import base64

import pytest
from starlette.datastructures import Headers

from ottla.web.credentials import Basic, Bearer, Credentials, credentials_of
from ottla.web.responses import json_bytes


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "credentials"),
    [
        (basic("ann:secret:with:colons"), Basic("ann", "secret:with:colons")),
        (basic("jürgen:ü").replace("Basic", "bAsIc"), Basic("jürgen", "ü")),
        (basic("ann:"), Basic("ann", "")),
        (basic("ann"), None),
        (basic(":secret"), None),
        ("Basic ???", None),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), None),
        ("Bearer abc.def", Bearer("abc.def")),
        ("Bearer ", None),
        ("Digest username=ann", None),
        ("", None),
    ],
)
def test_credentials_of_a_request(header: str, credentials: Credentials | None) -> None:
    assert credentials_of(Headers({"Authorization": header})) == credentials


def test_secrets_are_not_in_the_representation() -> None:
    assert "secret" not in f"{Basic('ann', 'secret')} {Bearer('secret')}"


def test_json_with_a_lone_surrogate_can_be_sent() -> None:
    assert json_bytes({"é": "\ud800"}) == b'{"\\u00e9":"\\ud800"}'
    assert json_bytes({"é": 1}) == '{"é":1}'.encode()
