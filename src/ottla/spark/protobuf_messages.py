"""The classes of Protobuf messages that options name. Without pyspark and pyarrow.

Needs Google's package `protobuf` (the extra `[protobuf]`). `ottla.serde.protobuf_fields` has the values of messages.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ottla.serde import protobuf_fields
from ottla.serde._builders import Plan
from ottla.spark.names import OptionError


@lru_cache(maxsize=64)
def message_class(message: str, descriptors: str) -> Any:
    """Return the class of a message. Raises OptionError."""
    try:
        from google.protobuf import (  # type: ignore[import-untyped,unused-ignore]
            descriptor_pb2,
            descriptor_pool,
            message_factory,
        )
    except ImportError:
        raise OptionError("The format protobuf needs a package: pip install 'ottla[protobuf]'") from None
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(base64.b64decode(descriptors, validate=True))
    except (binascii.Error, ValueError, decode_error()) as error:
        raise OptionError(f"protobuf.descriptors is not a FileDescriptorSet in base64: {error}") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in found.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except (KeyError, TypeError) as error:
        raise OptionError(f"protobuf.message is {message!r}, which the descriptors do not have: {error}") from None


def decode_error() -> type[Exception]:
    """Return the exception of Google's package for bytes that are not a message."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    found: type[Exception] = DecodeError
    return found


def given_class(part: str, formats: Mapping[str, str]) -> Any:
    """Return the class of the message that the options of a part name. Raises OptionError."""
    names = f"{part}.protobuf.message", f"{part}.protobuf.descriptors"
    for name in names:
        if name not in formats:
            raise OptionError(f"{part}.format=protobuf needs {name}")
    try:
        return message_class(*(formats[name] for name in names))
    except OptionError as error:
        raise OptionError(f"{part}.{error}" if str(error).startswith("protobuf.") else str(error)) from None


def message_plan(message: Any) -> Plan:
    """Return the layout of a column of messages of this descriptor. Raises OptionError if no column can hold them."""
    try:
        return protobuf_fields.message_plan(message)
    except protobuf_fields.NoColumn as error:
        raise OptionError(str(error)) from None
