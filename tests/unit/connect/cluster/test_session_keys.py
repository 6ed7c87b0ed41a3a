"""When the leader of a group replaces the key with which workers sign internal requests (KIP-507)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ottla.clients.errors import DeliveryTimedOut
from ottla.connect.cluster import signature
from ottla.connect.cluster.membership import GroupMembership
from ottla.connect.cluster.settings import ClusterSettings
from ottla.connect.cluster.values import SessionKey
from ottla.connect.errors import SignatureError

NOW_MS = 10_000_000
HOUR_MS = 3_600_000
SETTINGS = ClusterSettings.read(
    {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "config.storage.topic": "c", "status.storage.topic": "s"}
)
OLD = SessionKey(b"o" * 32, "HmacSHA256", NOW_MS - HOUR_MS + 60_000)


class Writer:
    async def claim(self) -> None:
        pass

    async def release(self) -> None:
        pass


class Store:
    """The last key, in place of a topic."""

    def __init__(self, key: SessionKey | None) -> None:
        self.session_key = key
        self.writer = Writer()
        self.fails = False

    async def refresh(self) -> None:
        pass

    def delete_leftovers(self) -> None:
        pass

    async def put_session_key(self, key: SessionKey) -> None:
        if self.fails:
            raise DeliveryTimedOut("no broker")
        self.session_key = key


def due_s(store: Store, now_ms: int = NOW_MS, settings: ClusterSettings = SETTINGS) -> float:
    """Have a leader look at the key. Returns when it looks again."""

    async def run() -> float:
        given: Any = store
        membership = GroupMembership(settings, given, "http://127.0.0.1:1", lambda: now_ms)
        try:
            return await membership._key_expires_s()
        finally:
            await membership._peers.close()
            await membership._cluster.close()

    return asyncio.run(run())


def test_key_stays_until_it_expires_and_is_replaced_then() -> None:
    store = Store(OLD)
    assert due_s(store) == 60.0
    assert store.session_key == OLD
    assert due_s(store, NOW_MS + 60_000) == HOUR_MS / 1000
    new = store.session_key
    assert new is not None
    assert (new.created_ms, new.algorithm, len(new.key)) == (NOW_MS + 60_000, "HmacSHA256", 32)
    assert new.key != OLD.key
    # A worker that has not read the new key yet is refused with 403, and sends its request again.
    headers = {name.lower(): value for name, value in signature.sign(b"body", OLD, "HmacSHA256").items()}
    with pytest.raises(SignatureError) as caught:
        signature.check(b"body", headers, new, ("HmacSHA256",))
    assert caught.value.status == 403


@pytest.mark.parametrize("key", [None, OLD._replace(algorithm="HmacSHA1"), OLD._replace(key=b"short")])
def test_key_of_other_settings_is_replaced_at_once(key: SessionKey | None) -> None:
    store = Store(key)
    due_s(store)
    assert store.session_key is not None
    assert store.session_key.created_ms == NOW_MS


def test_key_that_cannot_be_written_is_tried_again_soon() -> None:
    store = Store(None)
    store.fails = True
    assert due_s(store) == 1.0


def test_group_without_signatures_has_no_key() -> None:
    store = Store(None)
    due_s(store, settings=replace(SETTINGS, keys=replace(SETTINGS.keys, signs=False)))
    assert store.session_key is None
