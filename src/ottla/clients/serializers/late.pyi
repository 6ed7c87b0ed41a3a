from ottla.clients.serializers.avro_columns import AvroColumns as AvroColumns
from ottla.clients.serializers.json_columns import JsonColumns as JsonColumns
from ottla.clients.serializers.protobuf_columns import ProtobufColumns as ProtobufColumns
