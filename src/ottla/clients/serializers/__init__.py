"""Serializers and deserializers with schemas in a registry, for producers and consumers. Needs the extra `registry`.

    producer = Producer(..., value_serializer=AvroSerializer(SCHEMA, schema_registry_url="http://localhost:8081"))
    consumer = Consumer(..., value_deserializer=AvroDeserializer(schema_registry_url="http://localhost:8081"))

Bytes and settings are Confluent's. An object may also be called directly, as in confluent-kafka:
`serializer(value, SerializationContext("orders", "value"))`. One object may serve several clients and threads.

A registry is asked when a topic or a schema id is met for the first time. The blocking clients wait for the answer in
the caller's thread, at most `default.api.timeout.ms`. The asyncio clients wait in another thread, so that the event
loop is not blocked: there a missing schema raises `Deferred`, and the client repeats the call after `resolve`.

Reading order: wire (bytes before values, and headers), subjects, settings, base (what all formats share), avro,
json_schema, protobuf.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
