"""The cluster's own records decoded: `__cluster_metadata`, the topics of the coordinators, and markers.

A decoded record is a dict of `type` and the fields by name, or of `problem` if it cannot be decoded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from ottla.common.control_types import ControlType
from ottla.common.ids import uuid_to_text
from ottla.protocol import group_records, share_records, transaction_records
from ottla.protocol.consumer_protocol import decode_assignment, decode_subscription
from ottla.protocol.control_records import BODIES, decode_control_key, decode_marker
from ottla.protocol.message import Message, Struct
from ottla.protocol.metadata_records import decode_metadata_record
from ottla.protocol.wire import DecodeError
from ottla.records import Record

TOPICS = {
    "__cluster_metadata": "metadata",
    "__consumer_offsets": "offsets",
    "__transaction_state": "transactions",
    "__share_group_state": "shares",
}
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def meaning_for(kind: str) -> Callable[[Record], dict[str, Any]] | None:
    """Return the decoder for the records of one of the kinds in `TOPICS`; None for other kinds."""
    decode = {"metadata": _metadata, "offsets": _group, "transactions": _transaction, "shares": _share}.get(kind)
    if decode is None:
        return None

    def meaning(record: Record) -> dict[str, Any]:
        try:
            return decode(record)
        except (DecodeError, UnicodeDecodeError) as error:
            return {"problem": str(error)}

    return meaning


def _metadata(record: Record) -> dict[str, Any]:
    if record.value is None:
        return {"problem": "a record without a value"}
    return _message(decode_metadata_record(record.value))


def _group(record: Record) -> dict[str, Any]:
    row = _keyed(group_records.decode_record, record)
    members = row.get("value") and row["value"].get("members")
    if members and row["value"].get("protocol_type") == "consumer":
        for member in members:
            for name, decode in (("subscription", decode_subscription), ("assignment", decode_assignment)):
                data = base64.b64decode(member[name])
                if data:
                    member[name] = _message(decode(data))
    return row


def _transaction(record: Record) -> dict[str, Any]:
    row = _keyed(transaction_records.decode_record, record)
    value = row.get("value")
    if value is not None:
        state = value["transaction_status"]
        value["transaction_status"] = STATES[state] if 0 <= state < len(STATES) else state
    return row


def _share(record: Record) -> dict[str, Any]:
    return _keyed(share_records.decode_record, record)


def _keyed(decode: Any, record: Record) -> dict[str, Any]:
    if record.key is None:
        return {"problem": "a record without a key"}
    found = decode(record.key, record.value)
    if found is None:
        return {"problem": f"its type {int.from_bytes(record.key[:2], 'big')} is unknown"}
    key, value = found
    kind = type(key).__name__.removesuffix("Key")
    return {"type": kind, "key": _fields(key), "value": None if value is None else _fields(value)}


def control_meaning(record: Record) -> dict[str, Any]:
    """Decode a control record."""
    try:
        kind = decode_control_key(record.key or b"")
        if kind is None:
            return {"problem": "a control record of an unknown type"}
        value = record.value or b""
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            message: Message = decode_marker(value)
        else:
            body = BODIES[kind]
            version = int.from_bytes(value[1:3], "big") if len(value) > 2 else 0
            message = body.decode_from(value, 0, min(version, body.MAX_VERSION))[0]
        return {**_message(message), "type": kind.name}
    except DecodeError as error:
        return {"problem": str(error)}


def _message(message: Message) -> dict[str, Any]:
    return {"type": type(message).__name__, **_fields(message)}


def _fields(struct: Struct) -> dict[str, Any]:
    return {
        name: _plain(getattr(struct, name), is_uuid="Uuid" in annotation)
        for name, (annotation, _) in struct.FIELDS.items()
    }


def _plain(value: Any, *, is_uuid: bool) -> Any:
    if isinstance(value, Struct):
        return _fields(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item, is_uuid=is_uuid) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return uuid_to_text(data) if is_uuid and len(data) == 16 else base64.b64encode(data).decode()
    return value
