"""Sends the core's requests to other nodes, and reports their outcome to it as events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ottla.common.errors import ErrorCode
from ottla.network.errors import NetworkError, UnsupportedRequest
from ottla.raft import messages as m
from ottla.raft import wire_requests, wire_responses
from ottla.raft.events import Disconnected, Event, Failed, Responded, Send
from ottla.raft.wire_responses import InvalidResponseError

if TYPE_CHECKING:
    from ottla.cluster.quorum.transport import QuorumTransport
    from ottla.common.completion import Completion
    from ottla.protocol.message import Message
    from ottla.raft import QuorumConfig

logger = logging.getLogger(__name__)

Post: TypeAlias = "Callable[[Event, Message | None], None]"
"""Reports an event, with the response that it is about."""

UNKNOWN_EPOCH = -1
# With the pauses of the core these take some 2 seconds; rules are loaded much faster.
DENIALS_BEFORE_LOG = 8


class Sender:
    """The requests of one replica. Without a transport, every request fails."""

    def __init__(
        self,
        transport: QuorumTransport | None,
        config: QuorumConfig,
        post: Post,
        on_strangers: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_strangers(problem)` is called when most of the configured controllers belong to another cluster."""
        self._transport = transport
        self._config = config
        self._post = post
        self._on_strangers = on_strangers
        self._strangers: set[tuple[str, int]] = set()
        self._denying: dict[int, int] = {}

    def start(self) -> None:
        """Allow `send`."""
        if self._transport is not None:
            self._transport.start(lambda node_id: self._post(Disconnected(node_id), None))

    def close(self) -> None:
        """Close the connections."""
        if self._transport is not None:
            self._transport.close()

    def send(self, effect: Send) -> None:
        """Execute the effect."""
        if self._transport is None:
            self._post(Failed(effect.request_id), None)
            return
        request = effect.request
        sent = self._transport.send(
            effect.to,
            wire_requests.encode(request),
            least_version=wire_requests.lowest_version(request),
            timeout_s=self._config.request_timeout_ms / 1000,
        )
        sent.on_done(lambda done: self._answered(effect, done))

    def _answered(self, effect: Send, done: Completion[Message]) -> None:
        try:
            message = done.result()
            response = wire_responses.decode(message, self._config.listener)
        except UnsupportedRequest as error:
            logger.debug("Node %d lacks a version: %s", effect.to.node_id, error)
            if isinstance(effect.request, m.VoteRequest):
                refused = m.VoteResponse(ErrorCode.UNSUPPORTED_VERSION, UNKNOWN_EPOCH)
                self._post(Responded(effect.request_id, refused), None)
            else:
                self._post(Failed(effect.request_id), None)
        except (NetworkError, InvalidResponseError, ValueError) as error:
            logger.debug("A request of the quorum to node %d failed: %s", effect.to.node_id, error)
            self._post(Failed(effect.request_id), None)
        else:
            self._post(Responded(effect.request_id, response), message)
            self._check_cluster(effect, response)
            self._check_right(effect, response)

    def _check_right(self, effect: Send, response: m.Response) -> None:
        """Log that a node denies this one the right, unless it is only loading its rules."""
        node_id = effect.to.node_id
        if response.error is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._denying.pop(node_id, None)
            return
        denials = self._denying[node_id] = self._denying.get(node_id, 0) + 1
        if denials == DENIALS_BEFORE_LOG:
            logger.error(
                "The controller %d at %s:%d refuses the requests of this node (CLUSTER_AUTHORIZATION_FAILED): add the"
                " principal of this node to super.users there, or allow it ClusterAction on the cluster",
                node_id,
                effect.to.host,
                effect.to.port,
            )

    def _check_cluster(self, effect: Send, response: m.Response) -> None:
        """Log once that a node belongs to another cluster."""
        place = (effect.to.host, effect.to.port)
        if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID and place not in self._strangers:
            self._strangers.add(place)
            logger.error(
                "The controller at %s:%d belongs to another cluster than this node (%s): check"
                " controller.quorum.bootstrap.servers, controller.quorum.voters and the cluster ids in meta.properties",
                *place,
                self._config.cluster_id,
            )
            if len(self._strangers) > len(self._config.bootstrap) // 2:
                self._on_strangers(
                    f"Most of the controllers belong to another cluster than this node ({self._config.cluster_id})"
                )
