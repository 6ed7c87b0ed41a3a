"""A descriptor pool for one schema and all files that it imports: from it come the classes of its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.schemas.model import InvalidSchema
from ottla.schemas.protobuf.descriptor_classes import descriptor_classes, google_descriptor
from ottla.schemas.protobuf.descriptors import file_descriptor
from ottla.schemas.protobuf.elements import ProtoFile
from ottla.schemas.protobuf.names import OWN, Names
from ottla.schemas.protobuf.parser import parse_file
from ottla.schemas.protobuf.well_known import CONFLUENT_FILES, GOOGLE_FILES, WELL_KNOWN_FILES


def descriptor_pool(file: ProtoFile, names: Names, imported: Mapping[str, ProtoFile], path: str) -> Any:
    """A pool with the file, under the name `path`, and its imports. Raises InvalidSchema."""
    from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped,unused-ignore]

    return _Pool(DescriptorPool(), names, imported).with_file(file, path)


class _Pool:
    def __init__(self, pool: Any, names: Names, imported: Mapping[str, ProtoFile]) -> None:
        self._pool = pool
        self._names = names
        self._imported = imported
        self._added: set[str] = set()

    def with_file(self, file: ProtoFile, path: str) -> Any:
        self._add(file_descriptor(file, self._names, path, self._imported.keys() | WELL_KNOWN_FILES))
        return self._pool

    def _add(self, descriptor: Any) -> None:
        """Add a file behind its imports."""
        for each in descriptor.dependency:
            self._add_import(each)
        try:
            self._pool.AddSerializedFile(descriptor.SerializeToString())
        except TypeError as error:
            raise InvalidSchema(f"{descriptor.name} is not valid: {error}") from error

    def _add_import(self, path: str) -> None:
        if path in self._added:
            return
        self._added.add(path)
        if path in self._imported:
            self.with_file(self._imported[path], path)
        elif path in GOOGLE_FILES:
            self._add_google(path)
        else:
            file, names = parse_file(CONFLUENT_FILES[path]), Names()
            names.add_file(file, OWN, path)
            self._add(file_descriptor(file, names, path, WELL_KNOWN_FILES))

    def _add_google(self, path: str) -> None:
        serialized = google_descriptor(path)
        for each in descriptor_classes().file.FromString(serialized).dependency:
            self._add_import(each)
        self._pool.AddSerializedFile(serialized)
