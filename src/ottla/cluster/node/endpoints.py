"""The addresses of the cluster's nodes, for clients of one listener of this node."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.cluster.lost_brokers import LostBrokers
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.config import Listener
    from ottla.metadata.image import Endpoint


class NodeEndpoints:
    """The registered addresses, and the listeners that the metadata of brokers does not contain."""

    def __init__(self, node_id: int, metadata: MetadataShell, lost_brokers: LostBrokers) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self.lost_brokers = lost_brokers
        self.unregistered: dict[str, Endpoint] = {}
        """Listeners of this node that are not registered in the metadata, by name."""
        self.controllers: Sequence[Listener] = ()
        """The controller's own listeners, with their bound ports."""

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """The address of a registered node for clients of `listener`; None if the node has no such listener."""
        if node_id == self._node_id and listener in self.unregistered:
            return self.unregistered[listener]
        return self._metadata.image.brokers[node_id].endpoint(listener)

    def live(self, node_id: int, listener: str) -> Endpoint | None:
        """The address of a node for clients of `listener`; None if it is unknown or fenced, or without the listener."""
        broker = self._metadata.image.brokers.get(node_id)
        return None if broker is None or broker.fenced else self.endpoint(node_id, listener)

    def address(self, node_id: int, listener: str) -> tuple[str, int, str | None] | None:
        """(host, port, rack) of a node for clients of `listener`; None if it is unknown. KIP-951."""
        registered = self._metadata.image.brokers.get(node_id)
        endpoint = self.endpoint(node_id, listener) if registered is not None else None
        if registered is None or endpoint is None:
            return None
        return endpoint.host, endpoint.port, registered.rack

    def available(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """(node id, host, port, rack) of every broker that is not fenced, for clients of `listener`."""
        return self._found(listener, fenced=())

    def listed(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """The same with the brokers that were fenced just now: see `LostBrokers`."""
        return self._found(listener, fenced=self.lost_brokers.just_fenced)

    def _found(self, listener: str, fenced: Collection[int]) -> list[tuple[int, str, int, str | None]]:
        found = []
        for node_id, broker in self._metadata.image.brokers.items():
            endpoint = self.endpoint(node_id, listener)
            if endpoint is not None and (not broker.fenced or node_id in fenced):
                found.append((node_id, endpoint.host, endpoint.port, broker.rack))
        return found

    def controller_id(self, available: Collection[int]) -> int:
        """The broker that clients use as the controller; -1 if none is available.

        Brokers forward requests, so it may be any broker. This one saves a hop where it is the active controller.
        """
        return self._node_id if self._node_id in available else next(iter(available), -1)

    def is_controller_listener(self, listener: str) -> bool:
        """Whether requests on that listener are for the controller, not for the broker."""
        return any(endpoint.name == listener for endpoint in self.controllers)

    def advertised(self, listener: str) -> tuple[str, int]:
        """(host, port) of this node for clients of `listener`."""
        endpoint = self.endpoint(self._node_id, listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Node {self._node_id} has no listener {listener}")
        return endpoint.host, endpoint.port
