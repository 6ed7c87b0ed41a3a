"""Declares Kafka's messages: one class for all versions of a message.

    class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
        group_id: str = ""
        generation_id: Int32 = 0
        member_id: str = ""
        group_instance_id: str | None = since(3, default=None)

A field is an annotation and a value: a plain default, or `since`, `tagged` or `field`, which define the versions that
have the field. The default is the zero of the type. `| None` makes a field nullable, `nullable="2+"` only in those
versions. Fields are positional or keyword arguments of the constructor. The modules that declare messages use
`from __future__ import annotations`, so that annotations stay text until their first use.

A class is cheap to create. `compiler` makes `__init__`, `__eq__` and one encoder and decoder per version on first use.

Encoding omits a field that the version lacks, whatever its value (Kafka raises unless the field is "ignorable").
Decoding sets such a field to its default. Unknown tagged fields and bytes after the message are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeAlias, dataclass_transform

from ottla.protocol.declaration import MISSING, field, since, tagged, version_range
from ottla.protocol.wire import MAX_PRODUCE_ELEMENTS, MAX_REQUEST_ELEMENTS, Buffer, VersionError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Records",
    "Struct",
    "UInt16",
    "UInt32",
    "Uuid",
    "field",
    "since",
    "tagged",
]

Int8: TypeAlias = Annotated[int, "int8"]
Int16: TypeAlias = Annotated[int, "int16"]
Int32: TypeAlias = Annotated[int, "int32"]
Int64: TypeAlias = Annotated[int, "int64"]
UInt16: TypeAlias = Annotated[int, "uint16"]
UInt32: TypeAlias = Annotated[int, "uint32"]
Float64: TypeAlias = Annotated[float, "float64"]
Uuid: TypeAlias = Annotated[bytes, "16 bytes"]
# Decoding returns a memoryview of the buffer instead of a copy.
Records: TypeAlias = Buffer

PRODUCE: Final = 0


class _Codecs(dict[int, Any]):
    """Functions of one message by version; a missing one is made on its first use."""

    __slots__ = ("build", "owner")
    owner: type[Message]

    def __init__(self, build: str) -> None:
        self.build = build

    def __missing__(self, version: int) -> Any:
        owner = self.owner
        if not owner.MIN_VERSION <= version <= owner.MAX_VERSION:
            raise VersionError(
                f"{owner.__name__} has versions {owner.MIN_VERSION} to {owner.MAX_VERSION}, not {version}"
            )
        from ottla.protocol import compiler  # noqa: PLC0415 - imports this module

        function = self[version] = getattr(compiler, self.build)(owner, version)
        return function


@dataclass_transform()
class _Declared(type):
    """Turns annotations into slots, and the declaration into `FIELDS` for `compiler`."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int = -1,
        versions: str | None = None,
        flexible: str = "none",
    ) -> _Declared:
        fields: dict[str, tuple[str, Any]] = {}
        if namespace["__module__"] != __name__:
            for field_name, annotation in namespace.get("__annotations__", {}).items():
                fields[field_name] = (annotation, namespace.pop(field_name, MISSING))
        namespace["__slots__"] = tuple(fields)
        namespace["FIELDS"] = fields
        if versions is None:
            return super().__new__(cls, name, bases, namespace)
        encoders, decoders, framers = _Codecs("build_encoder"), _Codecs("build_decoder"), _Codecs("build_framer")
        first, last = version_range(versions)
        namespace |= {"API_KEY": key, "MIN_VERSION": first, "MAX_VERSION": last}
        namespace["MOST_ELEMENTS"] = MAX_PRODUCE_ELEMENTS if key == PRODUCE else MAX_REQUEST_ELEMENTS
        namespace |= {"FLEXIBLE_FROM": version_range(flexible)[0], "_encoders": encoders, "_decoders": decoders}
        namespace["_framers"] = framers
        new: Any = super().__new__(cls, name, bases, namespace)
        encoders.owner = decoders.owner = framers.owner = new
        result: _Declared = new
        return result

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, namespace)


class Struct(metaclass=_Declared):
    """A part of a message, declared like a message. It has the versions of its message."""

    FIELDS: ClassVar[dict[str, tuple[str, Any]]]

    if not TYPE_CHECKING:  # for type checkers, the declaration is the signature

        def __init__(self, *args, **kwargs):
            from ottla.protocol import compiler  # noqa: PLC0415 - imports this module

            type(self).__init__ = compiler.build_init(type(self))
            self.__init__(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        from ottla.protocol import compiler  # noqa: PLC0415 - imports this module

        type(self).__eq__ = compiler.build_eq(type(self))  # type: ignore[method-assign]
        return self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.FIELDS)})"


class Message(Struct):
    """A whole message, with its versions: `class X(Message, key=12, versions="0-4", flexible="4+")`.

    `API_KEY` is -1 for a message that is not a request or response. `FLEXIBLE_FROM` is above every version if no
    version is flexible.
    """

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
    MOST_ELEMENTS: ClassVar[int]
    _encoders: ClassVar[dict[int, Callable[[Any, list[Buffer]], None]]]
    _framers: ClassVar[dict[int, Callable[[Any, int], list[Buffer]]]]
    _decoders: ClassVar[dict[int, Callable[..., tuple[Any, int]]]]

    def encode(self, version: int) -> bytes:
        """The message's bytes, without header. Raises VersionError, EncodeError."""
        parts: list[Buffer] = []
        self._encoders[version](self, parts)
        first = parts[0]
        return first if len(parts) == 1 and type(first) is bytes else b"".join(parts)

    def encode_parts(self, version: int, parts: list[Buffer]) -> None:
        """Append the message's bytes to `parts`, without copying long records (2 KiB and more)."""
        self._encoders[version](self, parts)

    def encode_frame(self, version: int, correlation_id: int) -> list[Buffer]:
        """A whole frame of this response, as buffers to write one after the other. Raises VersionError, EncodeError."""
        return self._framers[version](self, correlation_id)

    @classmethod
    def decode(cls, buffer: Buffer, version: int) -> Self:
        """The message at the start of `buffer`. Raises VersionError, DecodeError."""
        message: Self = cls._decoders[version](buffer, 0)[0]
        return message

    @classmethod
    def decode_from(cls, buffer: Buffer, position: int, version: int) -> tuple[Self, int]:
        """The message at `position`, and the position after it. Raises VersionError, DecodeError."""
        return cls._decoders[version](buffer, position)

    @classmethod
    def decode_request(cls, buffer: Buffer, position: int, version: int) -> Self:
        """The message of a client at `position`. It may have `MOST_ELEMENTS` array elements."""
        message: Self = cls._decoders[version](buffer, position, cls.MOST_ELEMENTS)[0]
        return message

    @classmethod
    def decoder_of(cls, version: int) -> Callable[..., tuple[Self, int]]:
        """`decode(buffer, position, most)` of one version: the message, and the position after it."""
        return cls._decoders[version]
