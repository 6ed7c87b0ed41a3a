"""The credentials in the header `Authorization` of a request: `Basic` (RFC 7617) or `Bearer` (RFC 6750).

A header that is missing or broken has no credentials; the caller decides whether the request may continue without.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from starlette.datastructures import Headers


@dataclass(frozen=True, slots=True)
class Basic:
    """A user and a password. The password is not in the representation, which may be logged."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token."""

    token: str = field(repr=False)


Credentials: TypeAlias = Basic | Bearer


def credentials_of(headers: Headers) -> Credentials | None:
    """Return the credentials of a request; None without a valid header."""
    header = headers.get("authorization")
    if header is None:
        return None
    scheme, _, value = header.strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return Bearer(value) if value else None
    return _basic(value) if scheme.lower() == "basic" else None


def _basic(value: str) -> Basic | None:
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    user, separator, password = text.partition(":")
    return Basic(user, password) if separator and user else None
