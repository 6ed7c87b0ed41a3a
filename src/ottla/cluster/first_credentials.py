"""SCRAM credentials of a new cluster, from `--add-scram` of the format command. KIP-900.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=bob,iterations=8192,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Y2k=",saltedpassword="mT0yyUUxnlJaC9..."]

Values may be in double quotes. The salt and the salted password are in base64. As in Kafka, a value has no comma.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.controller.scram import credential_record
from ottla.log.storage import StorageError
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSION_NAMES, SCRAM_FROM
from ottla.protocol.metadata_records import UserScramCredentialRecord
from ottla.security import scram

SALT_BYTES: Final = 24
_KEYS: Final = frozenset({"name", "password", "salt", "iterations", "saltedpassword"})


def first_credentials(
    arguments: Sequence[str], levels: Mapping[str, int], random_bytes: Callable[[int], bytes]
) -> list[UserScramCredentialRecord]:
    """Return a record for each argument. Raises StorageError, whose message has no secret."""
    if arguments and levels.get(METADATA_VERSION, 0) < SCRAM_FROM:
        name = METADATA_VERSION_NAMES[SCRAM_FROM]
        raise StorageError(f"SCRAM is only supported in metadata.version {name} or later.")
    return [_record(argument.strip(), random_bytes) for argument in arguments]


def _record(argument: str, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    mechanism, equals, text = argument.partition("=")
    if not equals:
        raise StorageError("Failed to find equals sign in SCRAM argument")
    if mechanism not in scram.NUMBERS:
        raise StorageError(f"The add-scram mechanism {mechanism} is not supported.")
    if not text.startswith("["):
        raise StorageError("Expected configuration string to start with [")
    if not text.endswith("]"):
        raise StorageError("Expected configuration string to end with ]")
    values = dict(map(_pair, text[1:-1].split(",")))
    if "name" not in values:
        raise StorageError("You must supply 'name' to add-scram")
    salt = _decoded("salt", values["salt"]) if "salt" in values else None
    iterations = _iterations(mechanism, values.get("iterations"))
    if "password" not in values and "saltedpassword" not in values:
        raise StorageError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if "password" not in values and salt is None:
        raise StorageError("You must supply 'salt' with 'saltedpassword' to add-scram")
    unknown = values.keys() - _KEYS | ({"saltedpassword"} & values.keys() if "password" in values else set())
    if unknown:
        raise StorageError(f"Unknown SCRAM configurations: {', '.join(sorted(unknown))}")
    if salt is None:
        salt = random_bytes(SALT_BYTES)
    if "password" in values:
        salted = scram.salted_password(mechanism, values["password"], salt, iterations)
    else:
        salted = _decoded("saltedpassword", values["saltedpassword"])
    return credential_record(values["name"], mechanism, salted, salt, iterations)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise StorageError("No equals sign found in a SCRAM component of add-scram")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name, value


def _iterations(mechanism: str, text: str | None) -> int:
    if text is None:
        return scram.MIN_ITERATIONS
    try:
        iterations = int(text)
    except ValueError:
        raise StorageError(f"Failed to parse iterations count: {text}") from None
    if iterations < scram.MIN_ITERATIONS:
        limit = f">= {scram.MIN_ITERATIONS}"
    elif iterations > scram.MAX_STORED_ITERATIONS:
        limit = f"<= {scram.MAX_STORED_ITERATIONS}"
    else:
        return iterations
    raise StorageError(f"The 'iterations' value must be {limit} for add-scram using {mechanism}")


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise StorageError(f"Failed to decode given {name}: it is not base64") from None
