"""A Protobuf schema: `parse_protobuf` makes one from a text or from a serialized descriptor in Base64."""

from __future__ import annotations

import base64
import binascii
import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from ottla.schemas.model import Incompatibility, InvalidSchema, Schema
from ottla.schemas.protobuf.descriptor_elements import elements_of
from ottla.schemas.protobuf.descriptors import file_descriptor
from ottla.schemas.protobuf.differences import incompatibilities
from ottla.schemas.protobuf.elements import Message, ProtoFile
from ottla.schemas.protobuf.names import OWN, Names, Origin
from ottla.schemas.protobuf.normalization import normalized_file
from ottla.schemas.protobuf.parser import parse_file
from ottla.schemas.protobuf.pool import descriptor_pool
from ottla.schemas.protobuf.validation import validate
from ottla.schemas.protobuf.well_known import WELL_KNOWN_FILES, well_known_files
from ottla.schemas.protobuf.writer import write_file

# Confluent's name of the file in a descriptor.
DEFAULT_PATH: Final = "default"


def parse_protobuf(schema: Schema, referenced: Mapping[str, Schema], *, is_new: bool = True) -> ProtobufSchema:
    """The parsed schema; `referenced` has the schemas that it imports, directly or not, by import path.

    With `is_new=False`, only the syntax must be valid: another registry may have accepted the schema. Raises
    InvalidSchema.
    """
    direct = {each.name: Origin(each.subject, each.version) for each in schema.references}
    file = read_file(schema.text)
    names = Names()
    files = {path: read_file(each.text) for path, each in referenced.items()}
    for path, each in files.items():
        names.add_file(each, direct.get(path), path)
    names.add_file(file, OWN, "")
    found = ProtobufSchema(file, names, files)
    if is_new:
        validate(file, names, schema.text)
        # Confluent's form has no quotes around bytes and no escapes in names and paths, so it may not be a schema.
        try:
            parse_file(found.canonical)
        except InvalidSchema as error:
            raise InvalidSchema(f"the canonical string of the schema cannot be read again: {error}") from error
    return found


def read_file(text: str) -> ProtoFile:
    """The elements of a text, or of a descriptor in Base64. Raises InvalidSchema with the error of the text."""
    try:
        return parse_file(text)
    except InvalidSchema as error:
        try:
            return elements_of(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError, InvalidSchema):
            raise error from None


class ProtobufSchema:
    """A schema whose text is valid, with the names that it can use and the files that it imports by path."""

    def __init__(self, file: ProtoFile, names: Names, imported: Mapping[str, ProtoFile]) -> None:
        self.file = file
        self.names = names
        self.imported = imported

    @cached_property
    def canonical(self) -> str:
        """Confluent's canonical string."""
        return write_file(self.file)

    def normalized(self) -> str:
        """The canonical string after normalization."""
        return write_file(normalized_file(self.file, self.names))

    def formatted(self, format_name: str) -> str:
        """The text in a format of Confluent's API; an unknown format is the canonical string.

        `serialized` is the FileDescriptorProto in Base64, `ignore_extensions` omits extensions and custom options.
        Raises InvalidSchema if a stored schema is not valid by today's rules.
        """
        if format_name == "serialized":
            return base64.b64encode(self.descriptor().SerializeToString()).decode()
        if format_name == "ignore_extensions":
            return write_file(without_extensions(self.file))
        return self.canonical

    def descriptor(self) -> Any:
        """The FileDescriptorProto. Raises InvalidSchema."""
        return file_descriptor(self.file, self.names, DEFAULT_PATH, self.imported.keys() | WELL_KNOWN_FILES)

    def incompatibilities(self, writer: Any) -> list[Incompatibility]:
        """The reasons why this schema cannot read data of the ProtobufSchema `writer`."""
        return incompatibilities(writer, self)

    def message_class(self, name: str | None = None) -> Any:
        """The class of a message by its full name, by default of the first message.

        The first call builds a descriptor pool. Raises InvalidSchema if that fails, or if there is no such message.
        """
        from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped,unused-ignore]

        name = self.message_name([0]) if name is None else name
        try:
            return GetMessageClass(self._pool.FindMessageTypeByName(name))
        except KeyError:
            raise InvalidSchema(f"the schema has no message {name}") from None

    @cached_property
    def _pool(self) -> Any:
        return descriptor_pool(self.file, self.names, self.imported, DEFAULT_PATH)

    def message_name(self, indexes: Sequence[int]) -> str:
        """The full name of the message at `indexes`, the position at each level. Raises InvalidSchema."""
        file = self._file_of_messages()
        types, names = file.types, [file.package] if file.package else []
        for index in indexes:
            messages = [each for each in types if isinstance(each, Message)]
            if not 0 <= index < len(messages):
                raise InvalidSchema(f"the schema has no message at {list(indexes)}")
            types = messages[index].types
            names.append(messages[index].name)
        return ".".join(names)

    def message_indexes(self, name: str) -> list[int]:
        """The position at each level of a message by its full name. Raises InvalidSchema."""
        file = self._file_of_messages()
        types, indexes = file.types, []
        local = name.removeprefix(f"{file.package}.") if file.package else name
        for part in local.split("."):
            messages = [each for each in types if isinstance(each, Message)]
            found = next((index for index, each in enumerate(messages) if each.name == part), None)
            if found is None:
                raise InvalidSchema(f"the schema has no message {name}")
            types = messages[found].types
            indexes.append(found)
        return indexes

    def _file_of_messages(self) -> ProtoFile:
        """The file, or its only public import if it has nothing else."""
        file = self.file
        if file.types or file.imports or file.services or file.extends or len(file.public_imports) != 1:
            return file
        path = file.public_imports[0]
        return self.imported.get(path) or well_known_files().get(path) or file


def without_extensions(file: ProtoFile) -> ProtoFile:
    """The file without extensions and custom options, except Confluent's metadata."""
    found = copy.deepcopy(file)
    found.extends = []
    waiting: list[Any] = [found]
    while waiting:
        element = waiting.pop()
        if hasattr(element, "options"):
            element.options = [
                each for each in element.options if not each.parenthesized or each.name.startswith("confluent.")
            ]
        if isinstance(element, Message):
            element.extensions, element.extends = [], []
        for part in ("types", "fields", "oneofs", "groups", "constants", "services", "rpcs"):
            waiting += getattr(element, part, ())
    return found
