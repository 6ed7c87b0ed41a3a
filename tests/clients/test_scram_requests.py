"""DescribeUserScramCredentials and AlterUserScramCredentials: validation, messages, and what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ottla.protocol.messages import alter_user_scram_credentials as alter
from ottla.protocol.messages import describe_user_scram_credentials as describe
from tests.conftest import RunningBroker

from .support import unique, wait_until
from .test_answers_in_detail import Asking

pytestmark = pytest.mark.both

UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL = 33, 91, 92, 93
SHA_256, SHA_512 = 1, 2
TWICE = (DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
UNKNOWN = (RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


@pytest.fixture
def asking(broker: RunningBroker) -> Iterator[Asking]:
    with Asking(broker.bootstrap) as connection:
        yield connection


@pytest.fixture
def user() -> str:
    """Return the name of a user that does not exist."""
    return unique("user")


def set_(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> alter.ScramCredentialUpsertion:
    return alter.ScramCredentialUpsertion(name, mechanism, iterations, b"salt", b"salted password")


def delete(name: str, mechanism: int = SHA_256) -> alter.ScramCredentialDeletion:
    return alter.ScramCredentialDeletion(name, mechanism)


def altered(
    asking: Asking,
    upsertions: Sequence[alter.ScramCredentialUpsertion] = (),
    deletions: Sequence[alter.ScramCredentialDeletion] = (),
) -> dict[str, tuple[int, str | None]]:
    response: Any = asking.send_message(alter.AlterUserScramCredentialsRequest([*deletions], [*upsertions]), 0)
    assert response.throttle_time_ms == 0
    found = {each.user: (each.error_code, each.error_message) for each in response.results}
    assert len(found) == len(response.results)
    return found


def described(asking: Asking, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The credentials of users as {mechanism: iterations}, or the error and its message."""
    users = None if names is None else [describe.UserName(name) for name in names]
    response: Any = asking.send_message(describe.DescribeUserScramCredentialsRequest(users), 0)
    assert (response.error_code, response.error_message) == (0, "")
    found: dict[str, Any] = {}
    for each in response.results:
        assert each.user not in found
        assert each.error_code or each.error_message == ""
        infos = {info.mechanism: info.iterations for info in each.credential_infos}
        found[each.user] = (each.error_code, each.error_message) if each.error_code else infos
    return found


def comes_to(asking: Asking, user: str, expected: dict[int, int] | None) -> None:
    """A stock broker describes a change a moment after it was answered."""
    wait_until(lambda: described(asking).get(user) == expected, "the credentials are described")


def test_credentials_are_set_and_deleted(asking: Asking, user: str) -> None:
    other = f"{user}-2"
    assert altered(asking, [set_(user), set_(other, SHA_512, 16_384)]) == {user: (0, None), other: (0, None)}
    comes_to(asking, user, {SHA_256: 4096})
    comes_to(asking, other, {SHA_512: 16_384})
    assert altered(asking, [set_(user, SHA_512, 8192)]) == {user: (0, None)}
    comes_to(asking, user, {SHA_256: 4096, SHA_512: 8192})
    assert altered(asking, [set_(user, SHA_256, 5000)]) == {user: (0, None)}
    comes_to(asking, user, {SHA_256: 5000, SHA_512: 8192})
    assert altered(asking, [], [delete(user), delete(other, SHA_512)]) == {user: (0, None), other: (0, None)}
    comes_to(asking, user, {SHA_512: 8192})
    comes_to(asking, other, None)
    assert altered(asking, [], [delete(user, SHA_512)]) == {user: (0, None)}
    comes_to(asking, user, None)


def test_describing_named_users(asking: Asking, user: str) -> None:
    altered(asking, [set_(user)])
    comes_to(asking, user, {SHA_256: 4096})
    text = "Cannot describe SCRAM credentials for the same user twice in a single request: stranger"
    assert described(asking, [user, "stranger", "stranger"]) == {
        user: {SHA_256: 4096},
        "stranger": (DUPLICATE_RESOURCE, text),
    }
    text = "Attempt to describe a user credential that does not exist: stranger"
    assert described(asking, ["stranger"]) == {"stranger": (RESOURCE_NOT_FOUND, text)}
    assert described(asking, [])[user] == {SHA_256: 4096}
    altered(asking, [], [delete(user)])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (set_(""), (UNACCEPTABLE_CREDENTIAL, "Username must not be empty")),
        (set_("u", 3), (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
        (set_("u", 0), (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
        (set_("u", -1), (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
        (set_("", 3), (UNACCEPTABLE_CREDENTIAL, "Username must not be empty")),
        (set_("u", SHA_256, 4095), (UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
        (set_("u", SHA_256, 0), (UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
        (set_("u", SHA_512, 16_385), (UNACCEPTABLE_CREDENTIAL, "Too many iterations")),
        (alter.ScramCredentialUpsertion("u", SHA_256, 4096, b"", b""), (-1, None)),
        (delete(""), (UNACCEPTABLE_CREDENTIAL, "Username must not be empty")),
        (delete("stranger"), UNKNOWN),
        (delete("stranger", 7), (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
    ],
)
def test_invalid_change(asking: Asking, change: Any, expected: tuple[int, str | None]) -> None:
    is_deletion = isinstance(change, alter.ScramCredentialDeletion)
    result = altered(asking, [] if is_deletion else [change], [change] if is_deletion else [])
    assert result == {change.name: expected}
    assert "u" not in described(asking)


def test_user_appears_once_in_a_request(asking: Asking, user: str) -> None:
    other, third = f"{user}-2", f"{user}-3"
    altered(asking, [set_(user)])
    comes_to(asking, user, {SHA_256: 4096})
    assert altered(asking, [set_(user, SHA_512)], [delete(user)]) == {user: TWICE}
    assert altered(asking, [], [delete(user), delete(user)]) == {user: TWICE}
    assert altered(asking, [set_(other), set_(other, SHA_512), set_(other)]) == {other: TWICE}
    assert altered(asking, [set_(third), set_(other)], [delete(other)]) == {third: (0, None), other: UNKNOWN}
    comes_to(asking, third, {SHA_256: 4096})
    found = described(asking)
    assert found[user] == {SHA_256: 4096}
    assert other not in found
    altered(asking, [], [delete(user), delete(third)])


def test_credential_without_salt(asking: Asking, user: str) -> None:
    assert altered(asking, [alter.ScramCredentialUpsertion(user, SHA_256, 4096, b"", b"x")]) == {user: (0, None)}
    comes_to(asking, user, {SHA_256: 4096})
    altered(asking, [], [delete(user)])


def test_empty_request(asking: Asking) -> None:
    assert altered(asking) == {}
