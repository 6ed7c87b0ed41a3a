"""Sends requests to other brokers on the inter-broker listener, with the errors of the Kafka protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.network.errors import NetworkError, UnsupportedRequest

if TYPE_CHECKING:
    from ottla.metadata.image import Endpoint
    from ottla.network.node_channel import NodeChannels
    from ottla.protocol.message import Message


class Peers(Protocol):
    """The other brokers of the cluster."""

    def ask(self, node_id: int, request: Message, *, timeout_s: float, least_version: int = 0) -> Completion[Message]:
        """Send a request; completes with the response.

        Fails with KafkaError: BROKER_NOT_AVAILABLE (no address is known), UNSUPPORTED_VERSION, or NETWORK_EXCEPTION
        (the broker may have executed the request).
        """
        ...


class PeerChannels:
    """`Peers` with one connection to each broker. `endpoint(node_id)` is the address of a broker that is alive."""

    def __init__(self, channels: NodeChannels, endpoint: Callable[[int], Endpoint | None]) -> None:
        self._channels = channels
        self._endpoint = endpoint

    def ask(self, node_id: int, request: Message, *, timeout_s: float, least_version: int = 0) -> Completion[Message]:
        """Send a request: see `Peers`."""
        answer: Completion[Message] = Completion()
        endpoint = self._endpoint(node_id)
        if endpoint is None:
            answer.fail(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {node_id} is not available"))
            return answer
        channel = self._channels.to(node_id, endpoint.host, endpoint.port)

        def finish(done: Completion[Message]) -> None:
            if isinstance(done.error, NetworkError):
                is_old = isinstance(done.error, UnsupportedRequest)
                code = ErrorCode.UNSUPPORTED_VERSION if is_old else ErrorCode.NETWORK_EXCEPTION
                answer.fail(KafkaError(code, str(done.error)))
            else:
                answer.complete_with(done.result)

        channel.send(request, timeout_s=timeout_s, least_version=least_version).on_done(finish)
        return answer

    def retain(self, node_ids: Collection[int]) -> None:
        """Close the connections to all other brokers; their requests fail with NETWORK_EXCEPTION."""
        self._channels.retain(node_ids)

    async def aclose(self, timeout_s: float) -> None:
        """Close all connections, and wait until their sockets are closed."""
        await self._channels.aclose(timeout_s)
