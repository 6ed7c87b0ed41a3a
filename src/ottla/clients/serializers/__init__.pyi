from ottla.clients.serializers.avro import AvroDeserializer as AvroDeserializer
from ottla.clients.serializers.avro import AvroSerializer as AvroSerializer
from ottla.clients.serializers.json_schema import JsonSchemaDeserializer as JsonSchemaDeserializer
from ottla.clients.serializers.json_schema import JsonSchemaSerializer as JsonSchemaSerializer
from ottla.clients.serializers.protobuf import ProtobufDeserializer as ProtobufDeserializer
from ottla.clients.serializers.protobuf import ProtobufSerializer as ProtobufSerializer
from ottla.clients.serializers.wire import SerializationContext as SerializationContext
