"""The cluster of workers as the herder sees it: `Membership` on a group, a store and internal requests.

The leader claims the writes to the topic of configurations after each rebalance. A write that fails loses the claim;
the worker then joins the group again, and claims only if it still leads: a leader that was paused must not fence its
successor. `check_leader` raises until that is done. The leader also distributes the session key with which all workers
sign internal requests, and deletes the statuses of deleted connectors.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import orjson

from ottla.clients.errors import ClientError
from ottla.clients.network import Cluster
from ottla.clients.network_settings import read_network_settings
from ottla.clients.options import COMMON_OPTIONS, read_options
from ottla.connect.cluster import signature
from ottla.connect.cluster.member import GroupMember
from ottla.connect.cluster.protocol import Work
from ottla.connect.cluster.settings import ClusterSettings
from ottla.connect.cluster.store import KafkaStore
from ottla.connect.cluster.values import SessionKey
from ottla.connect.errors import ConnectError, NotLeaderError, RebalanceNeededError, RetriableError
from ottla.connect.peers import Peers
from ottla.connect.runtime import Assignment, TaskId, WorkListener

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 90.0
_RETRY_S: Final = 1.0
_LATER: Final = (403, 409, 503)
"""Answers of a leader that knows another key, rebalances or starts."""
_NOT_LEADER: Final = "Only the leader may do this"


class GroupMembership:
    """Implements `Membership`. Belongs to one event loop."""

    def __init__(self, settings: ClusterSettings, store: KafkaStore, url: str, now_ms: Callable[[], int]) -> None:
        """`url`: the address of this worker's REST API, as other workers reach it."""
        self._settings = settings
        self._store = store
        self._now_ms = now_ms
        self._cluster = Cluster(read_network_settings(read_options(COMMON_OPTIONS, settings.clients)))
        self._member = GroupMember(self._cluster, settings.group, url, _Configurations(store), self._led)
        self._leading: asyncio.Task[None] | None = None
        store.writer.lost = lambda: self._member.rejoin("the right to write configurations was lost")
        self._peers = Peers(_ANSWER_S, settings.tls)
        self._running: asyncio.Task[None] | None = None

    def start(self, listener: WorkListener) -> asyncio.Task[None]:
        """Join the group; the returned task ends only with an error."""
        self._member.listener = listener
        self._running = asyncio.create_task(self._member.run(), name="membership of the Connect group")
        return self._running

    async def joined(self) -> None:
        """Wait for the first assignment."""
        await self._member.joined.wait()

    async def close(self) -> None:
        """Leave the group. The herder has stopped the work before, or stops it now."""
        tasks = [task for task in (self._running, self._leading) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._member.leave()
        await self._peers.close()
        await self._cluster.close()

    # -- Membership ---------------------------------------------------------------------------------------------

    @property
    def worker_id(self) -> str:
        return urlsplit(self._member.url).netloc

    @property
    def assignment(self) -> Assignment | None:
        return self._member.assignment

    def check_leader(self) -> None:
        assignment = self._member.assignment
        if assignment is None:
            raise NotLeaderError(_NOT_LEADER, None)
        if not assignment.is_leader:
            raise NotLeaderError(_NOT_LEADER, assignment.leader_url or None)
        if not self._store.writer.may_lead:
            self._member.rejoin("this worker leads without the right to write configurations")
            raise RebalanceNeededError("This worker leads, and does not have the right to write configurations yet")

    def owner_url(self, work: str | TaskId) -> str | None:
        for url, owned in self._member.owners.items():
            if work in owned.tasks if isinstance(work, TaskId) else work in owned.connectors:
                return url
        return None

    def rejoin(self, reason: str) -> None:
        self._member.rejoin(reason)

    async def ask_leader(self, method: str, path: str, body: object = None) -> None:
        """See `Membership`. Raises RetriableError if the request may succeed later."""
        assignment = self._member.assignment
        if assignment is None or not assignment.leader_url:
            raise RetriableError("The leader of the group is unknown at this moment")
        data = b"" if body is None else orjson.dumps(body)
        headers = {"Content-Type": "application/json"}
        key = self._store.session_key
        if self._settings.keys.signs:
            if key is None:
                raise RetriableError("The leader of the group has not distributed a session key yet")
            headers |= signature.sign(data, key, self._settings.keys.algorithm)
        url = assignment.leader_url.rstrip("/") + path
        try:
            answer = await self._peers.request(method, url, data, headers)
        except RetriableError as error:
            raise RetriableError(f"{method} {path}: the leader {url} does not answer: {error}") from error
        if answer.status >= 400:
            kind = RetriableError if answer.status in _LATER else ConnectError
            raise kind(f"{method} {path}: the leader answered {answer.status}: {_message(answer.body)}")

    def check_signature(self, body: bytes, headers: Mapping[str, str]) -> None:
        if self._settings.keys.signs:
            signature.check(body, headers, self._store.session_key, self._settings.keys.accepted)

    # -- leading ------------------------------------------------------------------------------------------------

    async def _led(self, is_leader: bool) -> None:
        """Begin, go on or end to lead."""
        if is_leader:
            await self._claim()
            self._store.delete_leftovers()
            if self._leading is None:
                self._leading = asyncio.create_task(self._lead(), name="lead the Connect group")
            return
        leading, self._leading = self._leading, None
        if leading is not None:
            leading.cancel()
            await asyncio.wait([leading])
        await self._store.writer.release()

    async def _claim(self) -> None:
        try:
            await self._store.writer.claim()
            await self._store.refresh()
        except ConnectError as error:
            logger.warning("Cannot write configurations yet: %s", error)
            reason = "this worker leads without the right to write configurations"
            asyncio.get_running_loop().call_later(_RETRY_S, self._member.rejoin, reason)

    async def _lead(self) -> None:
        """Replace the session key in time."""
        while True:
            await asyncio.sleep(await self._key_expires_s())

    async def _key_expires_s(self) -> float:
        """Write a session key if there is no usable one. Returns the seconds until the next one is due."""
        keys, key = self._settings.keys, self._store.session_key
        if not keys.signs:
            return keys.ttl_ms / 1000 + _ANSWER_S
        left_ms = -1 if key is None else key.created_ms + keys.ttl_ms - self._now_ms()
        usable = key is not None and key.algorithm == keys.key_algorithm and len(key.key) == keys.key_bytes
        if usable and left_ms > 0:
            return left_ms / 1000
        try:
            await self._store.put_session_key(
                SessionKey(secrets.token_bytes(keys.key_bytes), keys.key_algorithm, self._now_ms())
            )
        except (ConnectError, ClientError) as error:
            logger.warning("Cannot distribute a session key yet: %s", error)
            return _RETRY_S
        return max(_RETRY_S, keys.ttl_ms / 1000)


class _Configurations:
    """The store, as a member of the group sees it."""

    def __init__(self, store: KafkaStore) -> None:
        self._store = store

    @property
    def offset(self) -> int:
        return self._store.offset

    def work(self) -> Work:
        names = self._store.connectors()
        tasks = {TaskId(name, each) for name in names for each in range(len(self._store.task_configs(name)))}
        return Work(frozenset(names), frozenset(tasks))

    async def refresh(self) -> None:
        await self._store.refresh()

    async def flush(self) -> None:
        await self._store.flush()


def _message(body: bytes) -> str:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")[:200]
    return str(fields.get("message", "")) if isinstance(fields, dict) else ""
