"""Receives the metrics of clients on one node: subscriptions from the metadata, clients, and their values.

Exists on brokers with `ottla.metrics.listener`, which exposes the values. Without it, a broker neither advertises nor
serves the requests, as Kafka without a plugin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.broker.telemetry.instances import LEAST_EXPIRY_MS, Instance, Instances, push_error
from ottla.broker.telemetry.series import LONGEST_LABEL, ClientLabels, SeriesStore
from ottla.broker.telemetry.subscriptions import configs_of, parse
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid, uuid_to_text
from ottla.common.slices import Slices
from ottla.network.connection import SOFTWARE_NAME, SOFTWARE_VERSION
from ottla.protocol import otlp
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.records import Codec
from ottla.records.codecs import TooLargeError, decompress

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.common.clock import Clock
    from ottla.metadata.image import MetadataImage
    from ottla.network.connection import Connection

ACCEPTED: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""In the order of preference: clients take the first one that they have."""
MOST_DECOMPRESSED: Final = 2
"""How much larger than `telemetry.max.bytes` a push may be before compression: that is enough for the most points."""
_POINTS_AT_ONCE: Final = 100
_MOST_POINTS: Final = 10_000
"""Of one push; later ones are dropped."""
_INSTANCE = "telemetry instance"
"""The key in `Connection.state` of the client instance that last used a connection."""
_RESERVED: Final = (ZERO_UUID, METADATA_TOPIC_ID)


class ClientTelemetry:
    """The client metrics of one broker; `new_id` returns 16 random bytes."""

    def __init__(self, clock: Clock, max_bytes: int, new_id: Callable[[], Uuid]) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._new_id = new_id
        self._instances = Instances()
        self.series = SeriesStore()
        self.pushes: Counter[int] = Counter()
        """Pushes by the code of their error."""

    @property
    def instance_count(self) -> int:
        """The number of client instances."""
        return len(self._instances)

    def publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Follow the subscriptions in the metadata."""
        after = configs_of(new)
        if old is None or configs_of(old) != after:
            self._instances.subscribe(parse(after))

    def expire(self) -> None:
        """Remove the values of clients that do not push any more."""
        self.series.expire(self._clock.monotonic_ms())

    # -- requests ----------------------------------------------------------------------------------------------

    def subscription(
        self, context: RequestContext, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """Return the subscription of a client, with a new client instance id if it has none."""
        now_ms = self._clock.monotonic_ms()
        instance_id = request.client_instance_id
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        instance = self._instances.of(instance_id, _described(context, instance_id), now_ms)
        self._own(context.connection, instance_id, instance)
        if not instance.may_ask(now_ms):
            return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        assigned = instance.assigned
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=assigned.subscription_id,
            accepted_compression_types=[int(codec) for codec in ACCEPTED],
            push_interval_ms=assigned.interval_ms,
            telemetry_max_bytes=self._max_bytes,
            delta_temporality=False,
            requested_metrics=list(assigned.metrics),
        )

    def push(self, context: RequestContext, request: PushTelemetryRequest) -> Slices[int]:
        """Store the pushed values; returns the error code."""
        code = yield from self._push(context, request)
        self.pushes[code] += 1
        return code

    def _push(self, context: RequestContext, request: PushTelemetryRequest) -> Slices[int]:
        instance_id = request.client_instance_id
        if instance_id in _RESERVED:
            return ErrorCode.INVALID_REQUEST
        now_ms = self._clock.monotonic_ms()
        instance = self._instances.of(instance_id, _described(context, instance_id), now_ms)
        self._own(context.connection, instance_id, instance)
        code = push_error(instance, request.subscription_id, now_ms, is_terminating=request.terminating)
        instance.is_terminating = request.terminating
        if code == ErrorCode.NONE:
            try:
                data = self._payload(request)
                retention_ms = max(LEAST_EXPIRY_MS, 3 * instance.assigned.interval_ms)
                if data:
                    yield from self._store(context, instance_id, data, retention_ms)
            except otlp.OtlpError:
                code = ErrorCode.INVALID_RECORD
            except KafkaError as error:
                code = error.code
        instance.last_error = code
        return code

    def _payload(self, request: PushTelemetryRequest) -> bytes | bytearray | memoryview:
        """Return the decompressed metrics. Raises the error of a push that is refused."""
        if request.compression_type not in Codec.__members__.values():
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self._max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
        if not request.metrics:
            return b""
        try:
            return decompress(Codec(request.compression_type), request.metrics, MOST_DECOMPRESSED * self._max_bytes)
        except TooLargeError as error:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE) from error
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD) from error

    def _store(
        self, context: RequestContext, instance_id: Uuid, data: bytes | bytearray | memoryview, retention_ms: int
    ) -> Slices[None]:
        client = self.series.begin(instance_id, _labels(context), self._clock.monotonic_ms(), retention_ms)
        number = 0
        for point in otlp.decode(data):
            if point is None:
                yield
                continue
            number += 1
            if number > _MOST_POINTS:
                self.series.dropped += 1
                return
            self.series.add(client, instance_id, point)
            if number % _POINTS_AT_ONCE == 0:
                yield
        self.series.end(client, instance_id)

    def _own(self, connection: Connection, instance_id: Uuid, instance: Instance) -> None:
        """Forget the client when the last connection that it used is closed.

        A connection has one client: with another instance id, the values of the previous one are removed.
        """
        instance.owner = connection
        previous = connection.state.get(_INSTANCE)
        if not isinstance(previous, bytes):
            connection.on_close(lambda: self._disconnected(connection))
        elif previous != instance_id and self._instances.remove(previous, connection):
            self.series.remove(previous)
        connection.state[_INSTANCE] = instance_id

    def _disconnected(self, connection: Connection) -> None:
        instance_id = connection.state.get(_INSTANCE)
        assert isinstance(instance_id, bytes)
        if self._instances.remove(instance_id, connection):
            self.series.disconnected(instance_id, self._clock.monotonic_ms())


def _described(context: RequestContext, instance_id: Uuid) -> Mapping[str, str | None]:
    """The values that selectors compare."""
    connection = context.connection
    name, version = connection.state.get(SOFTWARE_NAME), connection.state.get(SOFTWARE_VERSION)
    return {
        "client_instance_id": uuid_to_text(instance_id),
        "client_id": context.client_id,
        "client_software_name": None if name is None else str(name),
        "client_software_version": None if version is None else str(version),
        "client_source_address": connection.remote_host,
        "client_source_port": str(connection.remote_port),
    }


def _labels(context: RequestContext) -> ClientLabels:
    state = context.connection.state
    texts = (
        context.client_id or "",
        str(state.get(SOFTWARE_NAME) or ""),
        str(state.get(SOFTWARE_VERSION) or ""),
        context.client_host,
        context.principal,
    )
    return ClientLabels(*(text[:LONGEST_LABEL] for text in texts))
