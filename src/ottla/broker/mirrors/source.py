"""The connections to the source of a mirror, with the rights and settings of an ordinary client.

Each wait has the deadline of its request. Errors are NetworkError and KafkaError.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ottla.broker import late
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.config.listeners import parse_address
from ottla.network.errors import ConnectFailed, NetworkError, SecuritySettingError
from ottla.network.node_channel import ChannelOptions, NodeChannel
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from ottla.protocol.message import Message

logger = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_S: Final = 10.0
REQUEST_S: Final = 30.0
BACKOFF_MAX_S: Final = 2.0
# Files of certificates are read again for a connection that is opened after this time.
READ_AGAIN_S: Final = 60.0
# Settings of a client's security that a mirror does not have.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "ssl_context": None,
    "ssl_certificate_location": None,
    "ssl_key_location": None,
    "enable_ssl_certificate_verification": True,
    "sasl_oauth_token_provider": None,
    "sasl_oauthbearer_extensions": (),
    "sasl_oauthbearer_token_endpoint_url": None,
}


async def awaited(completion: Completion[T]) -> T:
    """The result of a completion, which always completes: its request has a deadline."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: Completion[T]) -> None:
        if not done.done():
            done.set_result(None)

    completion.on_done(wake)
    await done
    return completion.result()


class Source:
    """The nodes of the source cluster. `nodes` (addresses by id) and `cluster_id` are from the latest metadata."""

    def __init__(self, client_id: str, settings: Mapping[str, Any]) -> None:
        """`settings` are the typed settings of the mirror."""
        self.nodes: dict[int, tuple[str, int]] = {}
        self.cluster_id = ""
        self.fastest_s = math.inf
        """The shortest time until the source returned metadata: at least a round trip."""
        self._client_id = client_id
        self._bootstrap = [parse_address(text) for text in settings["bootstrap.servers"]]
        self._security = _Security(settings)
        self._channels: dict[tuple[str, int], NodeChannel] = {}

    def connect(self, node_id: int, client_id: str) -> NodeChannel | None:
        """A channel of its own to a node; None if its address is unknown."""
        address = self.nodes.get(node_id)
        if address is None:
            return None
        return NodeChannel(*address, client_id=client_id, options=self._security.options())

    async def ask(self, request: Message, node_id: int | None = None, *, least_version: int = 0) -> Any:
        """The response of a node, by default of the first one that answers.

        Raises NetworkError, and KafkaError INVALID_CONFIG if the files of certificates were never readable.
        """
        if node_id is not None and node_id not in self.nodes:
            raise ConnectFailed(f"The source has no node {node_id}")
        addresses = [self.nodes[node_id]] if node_id is not None else [*self.nodes.values(), *self._bootstrap]
        problem: NetworkError = ConnectFailed("The mirror has no bootstrap.servers")
        for address in dict.fromkeys(addresses):
            channel = self._channels.get(address)
            if channel is None:
                channel = NodeChannel(*address, client_id=self._client_id, options=self._security.options())
                self._channels[address] = channel
            try:
                return await awaited(channel.send(request, timeout_s=REQUEST_S, least_version=least_version))
            except NetworkError as error:
                self._channels.pop(address).close()
                problem = error
        raise problem

    async def metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        """The brokers, and these topics or all topics. Raises NetworkError, KafkaError."""
        rows = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        # Version 10 has the ids of topics.
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        response = cast("MetadataResponse", await self.ask(request, least_version=10))
        self.fastest_s = min(self.fastest_s, loop.time() - asked_s)
        if response.error_code:
            raise KafkaError(error_code(response.error_code), "The source returned no metadata")
        self.nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        # Nodes of a container platform have a new address after each start.
        for address in self._channels.keys() - {*self.nodes.values(), *self._bootstrap}:
            self._channels.pop(address).close()
        self.cluster_id = response.cluster_id or ""
        return response

    def close(self) -> None:
        """Close all connections of `ask`; a channel of `connect` belongs to its owner."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


class _Security:
    """How connections are opened. Certificates that were renewed have an effect without a restart of the mirror."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._known: ChannelOptions | None = None
        self._read_s = -math.inf

    def options(self) -> ChannelOptions:
        """Return the options of a new connection. Raises KafkaError INVALID_CONFIG unless an earlier call succeeded."""
        now_s = asyncio.get_running_loop().time()
        if self._known is None or now_s - self._read_s >= READ_AGAIN_S:
            self._read_s = now_s
            try:
                self._known = _channel_options(self._settings)
            except KafkaError as error:
                if self._known is None:
                    raise
                # Perhaps the files are being replaced.
                logger.warning("A mirror connects with its previous certificates: %s", error)
        return self._known


def _channel_options(settings: Mapping[str, Any]) -> ChannelOptions:
    protocol = settings["security.protocol"]
    options = {**_DEFAULTS, **{name.replace(".", "_"): text or None for name, text in settings.items()}}
    options["ssl_endpoint_identification_algorithm"] = settings["ssl.endpoint.identification.algorithm"]
    try:
        context = late.tls_context(options) if protocol.endswith("SSL") else None
        sasl = late.sasl_source(options) if protocol.startswith("SASL") else None
    except SecuritySettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return ChannelOptions(
        connect_timeout_s=CONNECT_S,
        backoff_max_s=BACKOFF_MAX_S,
        tls=None if context is None else lambda: context,
        sasl=sasl,
    )
