"""The classes of descriptor.proto in a pool of their own, with Confluent's metadata as extensions.

A program may have imported other modules that declare the same extensions in the default pool; a pool of our own does
not depend on that. Each function that uses these classes gets them from `descriptor_classes()`, so that `protobuf` is
imported when the first schema needs it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

META_NUMBER: Final = 1088
# The options messages that have Confluent's metadata, with the names of the extensions.
META_OPTIONS: Final = {
    "FileOptions": "file_meta",
    "MessageOptions": "message_meta",
    "FieldOptions": "field_meta",
    "EnumOptions": "enum_meta",
    "EnumValueOptions": "enum_value_meta",
}


def google_descriptor(path: str) -> bytes:
    """The serialized descriptor of a file of Google."""
    module = import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2")
    serialized: bytes = module.DESCRIPTOR.serialized_pb
    return serialized


class DescriptorClasses(NamedTuple):
    """`file` is the class FileDescriptorProto, `meta` the extensions by the name of their options message."""

    file: Any
    meta: dict[str, Any]


@cache
def descriptor_classes() -> DescriptorClasses:
    """The classes; they are created once."""
    from google.protobuf import (  # type: ignore[import-untyped,unused-ignore]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(google_descriptor("google/protobuf/descriptor.proto"))
    pool.AddSerializedFile(_meta_file(descriptor_pb2).SerializeToString())
    file = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    message_factory.GetMessageClass(pool.FindMessageTypeByName("confluent.Meta"))
    meta = {options: pool.FindExtensionByName(f"confluent.{name}") for options, name in META_OPTIONS.items()}
    return DescriptorClasses(file, meta)


def _meta_file(descriptor_pb2: Any) -> Any:
    """Confluent's metadata. The parameters are a list of entries instead of a map, which keeps their order."""
    file = descriptor_pb2.FileDescriptorProto(
        name="confluent/meta.proto",
        package="confluent",
        dependency=["google/protobuf/descriptor.proto"],
        syntax="proto3",
    )
    text, message = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
    one, many = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL, descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    entry = file.message_type.add(name="Entry")
    entry.field.add(name="key", number=1, type=text, label=one)
    entry.field.add(name="value", number=2, type=text, label=one)
    rule = file.message_type.add(name="Rule")
    for number, name in enumerate(("name", "doc", "expr", "sql"), 1):
        rule.field.add(name=name, number=number, type=text, label=one)
    meta = file.message_type.add(name="Meta")
    meta.field.add(name="doc", number=1, type=text, label=one)
    meta.field.add(name="params", number=2, type=message, type_name=".confluent.Entry", label=many)
    meta.field.add(name="tags", number=3, type=text, label=many)
    meta.field.add(name="rules", number=4, type=message, type_name=".confluent.Rule", label=many)
    for options, name in META_OPTIONS.items():
        extendee = f".google.protobuf.{options}"
        file.extension.add(
            name=name, number=META_NUMBER, type=message, type_name=".confluent.Meta", label=one, extendee=extendee
        )
    return file
