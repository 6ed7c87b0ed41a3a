"""The OpenAPI document of the proxy, built from the tables of operations: `GET /openapi.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla import __version__
from ottla.rest.v3 import routes as v3
from ottla.rest.v3.operations import Operation
from ottla.web.responses import JSON, json_bytes

_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"type": "string"},
    "text?": {"type": "string", "nullable": True},
    "number": {"type": "integer"},
    "number?": {"type": "integer", "nullable": True},
    "flag": {"type": "boolean"},
    "numbers": {"type": "array", "items": {"type": "integer"}},
    "link": {"$ref": "#/components/schemas/Relationship"},
    "any": {"nullable": True},
    "object": {"type": "object"},
    "objects": {"type": "array", "items": {"type": "object"}},
}
_CONFIG: Final = (
    "name:text value=text? is_default:flag is_read_only:flag is_sensitive:flag source:text synonyms:objects"
)
_CONSUMER_OF_LAG: Final = "consumer_id:text instance_id=text? client_id:text"
# NAME:TYPE is a required field, NAME=TYPE an optional one.
_KINDS: Final[Mapping[str, str]] = {
    "KafkaCluster": (
        "controller=link acls:link brokers:link broker_configs:link consumer_groups:link topics:link "
        "partition_reassignments:link"
    ),
    "KafkaBroker": "broker_id:number host=text? port=number? rack=text? configs:link partition_replicas:link",
    "KafkaTopic": (
        "topic_name:text is_internal:flag replication_factor:number partitions_count:number partitions:link "
        "configs:link partition_reassignments:link"
    ),
    "KafkaPartition": "topic_name:text partition_id:number leader=link replicas:link reassignment:link",
    "KafkaPartitionWithOffsets": ("topic_name:text partition_id:number earliest_offset:number latest_offset:number"),
    "KafkaReplica": ("topic_name:text partition_id:number broker_id:number is_leader:flag is_in_sync:flag broker:link"),
    "KafkaReassignment": (
        "topic_name:text partition_id:number adding_replicas:numbers removing_replicas:numbers replicas:link"
    ),
    "KafkaTopicConfig": f"topic_name:text {_CONFIG}",
    "KafkaBrokerConfig": f"broker_id:number {_CONFIG}",
    "KafkaClusterConfig": f"config_type:text {_CONFIG}",
    "KafkaConsumerGroup": (
        "consumer_group_id:text is_simple:flag partition_assignor:text state:text type:text "
        "is_mixed_consumer_group:flag coordinator=link consumers:link lag_summary:link"
    ),
    "KafkaConsumer": "consumer_group_id:text consumer_id:text instance_id=text? client_id:text assignments:link",
    "KafkaConsumerAssignment": (
        "consumer_group_id:text consumer_id:text topic_name:text partition_id:number partition:link lag:link"
    ),
    "KafkaConsumerLag": (
        f"consumer_group_id:text topic_name:text partition_id:number {_CONSUMER_OF_LAG} current_offset:number "
        "log_end_offset:number lag:number"
    ),
    "KafkaConsumerGroupLagSummary": (
        "consumer_group_id:text max_lag_consumer_id:text max_lag_instance_id=text? max_lag_client_id:text "
        "max_lag_topic_name:text max_lag_partition_id:number max_lag:number total_lag:number max_lag_consumer:link "
        "max_lag_partition:link"
    ),
    "KafkaAcl": (
        "resource_type:text resource_name:text pattern_type:text principal:text host:text operation:text "
        "permission:text"
    ),
}
_ACL: Final = _KINDS["KafkaAcl"]
_RECORD: Final = "partition_id=number? headers=objects key=object value=object timestamp=text?"
_POSITION: Final = (
    "cluster_id=text topic_name=text partition_id=number offset=number timestamp=text? key=object value=object"
)
_PLAIN: Final[Mapping[str, str]] = {
    "Relationship": "related:text",
    "Error": "error_code:number message:text",
    "CreateTopic": (
        "topic_name:text partitions_count=number replication_factor=number replicas_assignments=object "
        "configs=objects validate_only=flag"
    ),
    "UpdatePartitionCount": "partitions_count:number",
    "UpdateConfig": "value=text?",
    "AlterConfigs": "data:objects validate_only=flag",
    "CreateAcl": _ACL,
    "CreateAcls": "data:objects",
    "ProduceRecord": _RECORD,
    "ProduceResponse": f"error_code:number message=text {_POSITION}",
    "ProduceBatch": "entries:objects",
    "ProduceBatchResponse": "successes:objects failures:objects",
}
_METADATA: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["self"],
    "properties": {
        "self": {"type": "string"},
        "resource_name": {"type": "string", "nullable": True},
        "next": {"type": "string", "nullable": True},
    },
}


def _schema(fields: str) -> dict[str, Any]:
    """Return the schema of an object from its fields."""
    properties: dict[str, Any] = {}
    required = []
    for field in fields.split():
        name, mark, kind = re.split("([:=])", field, maxsplit=1)
        properties[name] = _TYPES[kind]
        if mark == ":":
            required.append(name)
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _resource(fields: str) -> dict[str, Any]:
    schema = _schema(f"kind:text metadata:object cluster_id:text {fields}")
    schema["properties"]["metadata"] = _METADATA
    return schema


def _collection(kind: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["data"],
        "properties": {
            "kind": {"type": "string"},
            "metadata": _METADATA,
            "data": {"type": "array", "items": {"$ref": f"#/components/schemas/{kind}"}},
        },
    }


@cache
def schemas() -> dict[str, Any]:
    """Return the schemas of bodies by their names."""
    return {
        **{name: _schema(fields) for name, fields in _PLAIN.items()},
        **{kind: _resource(fields) for kind, fields in _KINDS.items()},
        **{f"{kind}List": _collection(kind) for kind in _KINDS},
    }


@cache
def document() -> Mapping[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in dict.fromkeys(v3.OPERATIONS):
        paths.setdefault(f"/v3{operation.path}", {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.0.3",
        "info": {"title": "Ottla REST proxy", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    names: Sequence[str] = re.findall(r"{(\w+)}", operation.path)
    success: dict[str, Any] = {"description": operation.summary}
    if operation.kind is not None:
        success["content"] = _content(operation.kind)
    found: dict[str, Any] = {
        "operationId": operation.summary.title().replace(" ", ""),
        "summary": operation.summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _TYPES["text"]} for name in names),
            *({"name": name, "in": "query", "schema": _TYPES["text"]} for name in operation.query),
        ],
        "responses": {
            str(operation.status): success,
            "default": {"description": "Error", "content": _content("Error")},
        },
    }
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": _content(operation.body)}
    return found


def _content(schema: str) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def routes() -> list[Route]:
    """Return the route of the document."""

    async def get(_: Request) -> Response:
        return Response(json_bytes(document()), media_type=JSON)

    return [Route("/openapi.json", get, methods=["GET"])]
