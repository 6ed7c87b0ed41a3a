"""Delegation tokens at the controller: KIP-48, KIP-373."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from ottla.common.errors import ErrorCode
from ottla.controller import ControllerSettings
from ottla.controller.delegation_tokens import LATEST_MS, MOST_DELETED, TOKENS_FROM
from ottla.controller.state import TokenSettings
from ottla.protocol import metadata_records as m
from ottla.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.security.delegation_token import SecretKey

from .support import Cluster

ALICE, BOB, EVE = "User:alice", "User:bob", "User:eve"
NOW = 1_700_000_000_000
HOUR = 3_600_000
SECRET = "only-nodes-know"


def cluster(secret: str | None = SECRET, max_lifetime_ms: int = 10 * HOUR, expiry_time_ms: int = 2 * HOUR) -> Cluster:
    key = None if secret is None else SecretKey(secret)
    return Cluster(settings=ControllerSettings(tokens=TokenSettings(key, max_lifetime_ms, expiry_time_ms)))


def create(
    world: Cluster, requester: str = ALICE, now_ms: int = NOW, *, renewers: tuple[str, ...] = (), owner: str = "",
    max_lifetime_ms: int = -1,
) -> CreateDelegationTokenResponse:  # fmt: skip
    kind, _, name = owner.partition(":")
    request = CreateDelegationTokenRequest(
        kind or None,
        name or None,
        [CreatableRenewers(*each.split(":")) for each in renewers],
        max_lifetime_ms,
    )
    return world.do(world.controller.create_delegation_token(request, requester, now_ms))


def renew(
    world: Cluster, token_hmac: bytes, principal: str = ALICE, now_ms: int = NOW, period_ms: int = -1
) -> tuple[int, int]:
    request = RenewDelegationTokenRequest(token_hmac, period_ms)
    response = world.do(world.controller.renew_delegation_token(request, principal, now_ms))
    return response.error_code, response.expiry_timestamp_ms


def expire(
    world: Cluster, token_hmac: bytes, principal: str = ALICE, now_ms: int = NOW, period_ms: int = -1
) -> tuple[int, int]:
    request = ExpireDelegationTokenRequest(token_hmac, period_ms)
    response = world.do(world.controller.expire_delegation_token(request, principal, now_ms))
    return response.error_code, response.expiry_timestamp_ms


def test_created_token_has_kafkas_hmac_and_the_configured_times() -> None:
    world = cluster()
    created = create(world, renewers=(BOB,))
    assert (created.error_code, created.principal_type, created.principal_name) == (0, "User", "alice")
    assert (created.issue_timestamp_ms, created.expiry_timestamp_ms) == (NOW, NOW + 2 * HOUR)
    assert created.max_timestamp_ms == NOW + 10 * HOUR
    assert created.hmac == hmac.new(SECRET.encode(), created.token_id.encode(), hashlib.sha512).digest()
    [record] = world.controller.image.delegation_tokens.values()
    assert record == m.DelegationTokenRecord(
        ALICE, ALICE, [BOB], NOW, NOW + 10 * HOUR, NOW + 2 * HOUR, created.token_id
    )


def test_token_for_another_owner_belongs_to_the_owner() -> None:
    world = cluster()
    created = create(world, requester=BOB, owner=ALICE)
    assert (created.principal_name, created.token_requester_principal_name) == ("alice", "bob")
    assert renew(world, created.hmac, BOB) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert renew(world, created.hmac, ALICE)[0] == 0


@pytest.mark.parametrize(
    ("asked_ms", "lifetime_ms"), [(HOUR, HOUR), (0, 10 * HOUR), (-1, 10 * HOUR), (2**62, 10 * HOUR)]
)
def test_lifetime_is_at_most_the_configured_one(asked_ms: int, lifetime_ms: int) -> None:
    created = create(cluster(), max_lifetime_ms=asked_ms)
    assert created.max_timestamp_ms == NOW + lifetime_ms
    assert created.expiry_timestamp_ms == NOW + min(lifetime_ms, 2 * HOUR)


def test_times_never_exceed_a_long() -> None:
    world = cluster(max_lifetime_ms=LATEST_MS, expiry_time_ms=LATEST_MS)
    created = create(world)
    assert created.max_timestamp_ms == created.expiry_timestamp_ms == LATEST_MS
    assert renew(world, created.hmac) == (0, LATEST_MS)


def test_tokens_are_disabled_without_a_secret_key() -> None:
    world = cluster(secret=None)
    created = create(world)
    assert (created.error_code, created.token_id, created.hmac) == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "", b"")
    assert renew(world, b"x") == expire(world, b"x") == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, 0)
    assert world.do(world.controller.delete_expired_tokens(NOW)) is False


def test_tokens_need_a_metadata_version_with_their_records() -> None:
    world = cluster()
    world.controller.replay(
        [m.FeatureLevelRecord(name="metadata.version", feature_level=TOKENS_FROM - 1)], world.offset, 1
    )
    assert create(world).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("wrong", [{"renewers": ("Group:admins",)}, {"owner": ":alice"}])
def test_principals_of_other_types_are_refused(wrong: dict[str, object]) -> None:
    world = cluster()
    assert create(world, **wrong).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE  # type: ignore[arg-type]
    assert not world.controller.image.delegation_tokens


def test_owner_and_renewers_move_the_expiry_up_to_the_end_of_the_lifetime() -> None:
    world = cluster()
    token = create(world, renewers=(BOB,)).hmac
    assert renew(world, token, ALICE, NOW + HOUR) == (0, NOW + 3 * HOUR)
    assert renew(world, token, BOB, NOW + HOUR, period_ms=HOUR // 2) == (0, NOW + HOUR + HOUR // 2)
    for hour in range(1, 10):
        assert renew(world, token, BOB, NOW + hour * HOUR) == (0, NOW + min(hour + 2, 10) * HOUR)
    assert renew(world, token, BOB, NOW + 10 * HOUR + 1) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)


def test_stranger_neither_renews_nor_expires_a_token() -> None:
    world = cluster()
    token = create(world, renewers=(BOB,)).hmac
    before = world.controller.image.delegation_tokens
    assert renew(world, token, EVE) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert expire(world, token, EVE) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert world.controller.image.delegation_tokens is before


@pytest.mark.parametrize("guess", [b"", b"x" * 64, b"x" * 1_000])
def test_unknown_hmac_is_not_found(guess: bytes) -> None:
    world = cluster()
    create(world)
    assert renew(world, guess) == expire(world, guess) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_expired_token_is_not_renewed_but_can_be_deleted() -> None:
    world = cluster()
    token = create(world).hmac
    late = NOW + 2 * HOUR + 1
    assert renew(world, token, now_ms=late) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert expire(world, token, now_ms=late, period_ms=HOUR) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert expire(world, token, now_ms=late) == (0, late)
    assert not world.controller.image.delegation_tokens
    assert expire(world, token, now_ms=late) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_expiry_can_be_set_later_and_earlier_within_the_lifetime() -> None:
    world = cluster()
    token = create(world, renewers=(BOB,)).hmac
    assert expire(world, token, period_ms=5 * HOUR) == (0, NOW + 5 * HOUR)
    assert expire(world, token, BOB, period_ms=0) == (0, NOW)
    assert expire(world, token, period_ms=100 * HOUR) == (0, NOW + 10 * HOUR)


def test_only_expired_tokens_are_deleted() -> None:
    world = cluster()
    short, long = create(world, max_lifetime_ms=HOUR), create(world)
    assert world.do(world.controller.delete_expired_tokens(NOW + HOUR)) is False
    assert len(world.controller.image.delegation_tokens) == 2
    assert world.do(world.controller.delete_expired_tokens(NOW + HOUR + 1)) is False
    assert [*world.controller.image.delegation_tokens] == [long.token_id]
    assert renew(world, short.hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert renew(world, long.hmac)[0] == 0


def test_many_expired_tokens_are_deleted_in_several_operations() -> None:
    world = cluster()
    tokens = [
        m.DelegationTokenRecord(ALICE, ALICE, [], NOW, NOW, NOW, f"token-{number}")
        for number in range(MOST_DELETED + 1)
    ]
    world.controller.replay(tokens, world.offset, 1)
    assert world.do(world.controller.delete_expired_tokens(NOW + 1)) is True
    assert len(world.controller.image.delegation_tokens) == 1
    assert world.do(world.controller.delete_expired_tokens(NOW + 1)) is False
    assert not world.controller.image.delegation_tokens


def test_no_text_of_the_settings_contains_the_secret() -> None:
    settings = ControllerSettings(tokens=TokenSettings(SecretKey(SECRET)))
    assert SECRET not in f"{settings!r} {settings} {SecretKey(SECRET)!r} {vars(type(settings))}"
