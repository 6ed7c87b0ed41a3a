"""The parts of a declaration that messages and codecs share: fields, versions, and what codecs use of a message."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Protocol

API_VERSIONS: Final = 18
NEVER: Final = 32767  # as FLEXIBLE_FROM: above every version
MISSING: Final[Any] = type("_Missing", (), {"__repr__": lambda _: "MISSING"})()


class DeclaredStruct(Protocol):
    """The attributes of a struct's class that codecs use."""

    FIELDS: ClassVar[dict[str, tuple[str, Any]]]
    """The annotation and the declared value of each field, in wire order."""


class DeclaredMessage(DeclaredStruct, Protocol):
    """The attributes of a message's class that codecs use."""

    API_KEY: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]


def has_tagged_head(cls: type[DeclaredMessage], version: int) -> bool:
    """Whether a response's header has tagged fields: in flexible versions, except for ApiVersions (KIP-511)."""
    return version >= cls.FLEXIBLE_FROM and cls.API_KEY != API_VERSIONS


class Field:
    """The declaration of one field, without its type."""

    __slots__ = ("default", "nullable", "tag", "versions")

    def __init__(self, versions: str, default: Any, nullable: str | None, tag: int | None) -> None:
        self.versions = versions
        self.default = default
        self.nullable = nullable
        self.tag = tag


def field(versions: str = "0+", *, default: Any = MISSING, nullable: str | None = None, tag: int | None = None) -> Any:
    """A field of the given versions: "3+", "0-12" or "4"."""
    return Field(versions, default, nullable, tag)


def since(version: int, *, default: Any = MISSING, nullable: str | None = None) -> Any:
    """A field of this and all later versions."""
    return Field(f"{version}+", default, nullable, None)


def tagged(tag: int, since: int, *, default: Any = MISSING, nullable: str | None = None) -> Any:
    """A tagged field of the version `since` and all later ones. It is omitted if it has its default."""
    return Field(f"{since}+", default, nullable, tag)


def version_range(text: str) -> tuple[int, int]:
    """First and last version of "3+", "0-12", "4" or "none" (an empty range)."""
    if text == "none":
        return NEVER, -1
    if text.endswith("+"):
        return int(text[:-1]), NEVER
    first, _, last = text.partition("-")
    return int(first), int(last or first)
