"""The names that a schema can use: its own, its references' and the well-known names.

A name is looked up from the innermost scope outward, as a whole, among all of these files: Confluent's registry does
not ask whether a file is imported. A name that begins with a dot is a full name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

from ottla.schemas.protobuf.elements import EnumType, Extend, Field, Message, ProtoFile
from ottla.schemas.protobuf.well_known import WELL_KNOWN_PREFIXES, well_known_files


class Origin(NamedTuple):
    """Where a type is declared: the subject and version of a reference, or the schema itself."""

    subject: str
    version: int


OWN: Final = Origin("", -1)


class DeclaredType(NamedTuple):
    """A message or enum. `origin` is None for a well-known type, and for a reference of a reference."""

    package: str
    origin: Origin | None
    element: Message | EnumType
    path: str = ""


class Names:
    """The types and extensions of files by full name. Later files replace the names of earlier files."""

    __slots__ = ("extensions", "types")

    def __init__(self) -> None:
        self.types: dict[str, DeclaredType] = {}
        self.extensions: dict[str, Field] = {}

    def add_file(self, file: ProtoFile, origin: Origin | None, path: str) -> None:
        """Add all names of a file; `path` is what other files import."""
        package = file.package or ""
        prefix = f"{package}." if package else ""
        self._add_extensions(file.extends, prefix)
        self._add_types(file.types, prefix, DeclaredType(package, origin, Message(""), path))

    def _add_types(self, types: Iterable[Message | EnumType], prefix: str, common: DeclaredType) -> None:
        for each in types:
            name = prefix + each.name
            self.types[name] = common._replace(element=each)
            if isinstance(each, Message):
                self._add_extensions(each.extends, f"{name}.")
                self._add_types(each.types, f"{name}.", common)

    def _add_extensions(self, extends: Iterable[Extend], prefix: str) -> None:
        for extend in extends:
            for each in extend.fields:
                self.extensions[prefix + each.name] = each


class Resolver:
    """Resolves names in the scope of a package and the messages that `enter` adds to it."""

    __slots__ = ("_names", "scope")

    def __init__(self, names: Names, *scopes: str | None) -> None:
        self._names = names
        self.scope = [part for scope in scopes if scope for part in scope.split(".")]

    def at(self, *scopes: str) -> Resolver:
        """A resolver of the same names in another scope."""
        return Resolver(self._names, *scopes)

    def enter(self, name: str) -> None:
        """Go into the scope of a message."""
        self.scope.append(name)

    def leave(self) -> None:
        """Leave the innermost scope."""
        self.scope.pop()

    def resolve(self, name: str) -> str | None:
        """The full name of a type, without a leading dot, or None."""
        return next((each for each in self._candidates(name) if self.declared(each) is not None), None)

    def resolve_extension(self, name: str) -> str | None:
        """The full name of an extension, without a leading dot, or None."""
        return next((each for each in self._candidates(name) if self.extension(each) is not None), None)

    def type(self, name: str) -> DeclaredType | None:
        """The type that a name means in this scope, or None."""
        found = (self.declared(each) for each in self._candidates(name))
        return next((each for each in found if each is not None), None)

    def declared(self, full_name: str) -> DeclaredType | None:
        """The type with a full name, or None."""
        return self._names.types.get(full_name) or _well_known(full_name).types.get(full_name)

    def extension(self, full_name: str) -> Field | None:
        """The extension with a full name, or None."""
        return self._names.extensions.get(full_name) or _well_known(full_name).extensions.get(full_name)

    def _candidates(self, name: str) -> Iterable[str]:
        if name.startswith("."):
            yield name[1:]
            return
        for length in range(len(self.scope), 0, -1):
            yield f"{'.'.join(self.scope[:length])}.{name}"
        yield name


def _well_known(full_name: str) -> Names:
    """The names of the well-known files, which are loaded when a name can be one of theirs."""
    return _well_known_names() if full_name.startswith(WELL_KNOWN_PREFIXES) else _NONE


@cache
def _well_known_names() -> Names:
    names = Names()
    for path, file in well_known_files().items():
        names.add_file(file, None, path)
    return names


_NONE: Final = Names()
