"""Registers this node's controller with the active one (Kafka's ControllerRegistrationManager). KIP-919.

Other nodes and tools read the listeners and the supported features of the controllers from these registrations. Each
start registers again, with a new incarnation id.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ottla.common.errors import KafkaError
from ottla.metadata.features import CONTROLLERS_FROM

if TYPE_CHECKING:
    from ottla.cluster.control.lifecycle import Sender
    from ottla.common.completion import Completion
    from ottla.common.timers import CallLater, TimerHandle
    from ottla.metadata.image import MetadataImage
    from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
BACKOFF_S = 1.0


class ControllerRegistrar:
    """Sends the registration until the metadata has it. Not thread safe: use it on the event loop."""

    def __init__(self, request: ControllerRegistrationRequest, channel: Sender, call_later: CallLater) -> None:
        self._request = request
        self._channel = channel
        self._call_later = call_later
        self._in_flight = False
        self._retry: TimerHandle | None = None
        self._image: MetadataImage | None = None
        self._closed = False

    def metadata_published(self, image: MetadataImage) -> None:
        """Called with each published image: register if this incarnation is not registered."""
        self._image = image
        if self._is_due() and not self._in_flight and self._retry is None:
            self._in_flight = True
            self._channel.send(self._request, timeout_s=TIMEOUT_S).on_done(self._answered)

    def close(self) -> None:
        """Stop."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _is_due(self) -> bool:
        image = self._image
        if self._closed or image is None or image.metadata_version < CONTROLLERS_FROM:
            return False
        registered = image.controllers.get(self._request.controller_id)
        return registered is None or registered.incarnation_id != self._request.incarnation_id

    def _answered(self, done: Completion[Any]) -> None:
        self._in_flight = False
        if self._closed:
            return
        try:
            code = done.result().error_code
        except KafkaError as error:
            code = error.code
        if code:
            logger.info("The registration of controller %d failed: error %d", self._request.controller_id, code)
        # A registration that succeeded is not repeated: the metadata has it soon.
        self._retry = self._call_later(BACKOFF_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._image is not None:
            self.metadata_published(self._image)
