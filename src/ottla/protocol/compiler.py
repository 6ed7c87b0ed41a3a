"""Compiles a message's declaration into functions, one encoder and one decoder per version.

An encoder is `encode(o0, parts)`, a decoder `decode(buf, p, most=-1) -> (message, position)`. Where the extensions
`_shapes`, `_decoding` and `_encoding` were built, they are in C and walk the declaration. Elsewhere they are Python,
written for it: neighbouring fields of fixed size, with the length byte or count that follows them, become one `struct`
call; nested structs are written out in place; nothing is looked up per field. The source is registered with
`linecache`, so tracebacks and debuggers show it: `print(source_of(FetchRequest, 12))`. Both give and refuse the same (a
test compares them).

OTTLA_KERNELS=fallback chooses Python; an extension that was not built is passed over. Reading order: `plans`, `source`,
`encoder`, `decoder`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Any

from ottla.protocol.message import MISSING, Message, Struct, has_tagged_head
from ottla.protocol.plans import plans_of
from ottla.protocol.source import Source, default_text

Encode = Callable[[Any, list[Any]], None]
Frame = Callable[[Any, int], list[Any]]
Decode = Callable[..., tuple[Any, int]]


def _is_compiled() -> bool:
    """Whether the codecs in C were built here. Their `.py` files are source for Cython, and not meant to run."""
    if os.environ.get("OTTLA_KERNELS") == "fallback":
        return False
    found = [find_spec(f"ottla.protocol.{name}") for name in ("_shapes", "_decoding", "_encoding")]
    return all(spec and spec.origin and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)) for spec in found)


COMPILED = _is_compiled()


def build_init(cls: type[Struct]) -> Callable[..., None]:
    """`__init__` of a declaration."""
    plans = plans_of(cls)
    source = Source("__init__", "")
    arguments = ["self"]
    for plan in plans:
        text = default_text(source, plan)
        if text and plan.default != []:
            arguments.append(f"{plan.name}={text}")
            source.add(f"self.{plan.name} = {plan.name}")
        else:
            fresh = f"{source.class_name(plan.struct)}()" if plan.struct and not plan.is_list else "[]"
            arguments.append(f"{plan.name}=MISSING")
            source.add(f"self.{plan.name} = {fresh} if {plan.name} is MISSING else {plan.name}")
    source.lines[0] = f"def __init__({', '.join(arguments)}):"
    if not plans:
        source.add("pass")
    function: Callable[..., None] = source.compile(f"<{cls.__module__}.{cls.__name__}.__init__>", {"MISSING": MISSING})
    return function


def build_eq(cls: type[Struct]) -> Callable[..., bool]:
    """`__eq__` of a declaration."""
    plans = plans_of(cls)
    source = Source("__eq__", "self, other")
    source.add(f"if type(other) is not {source.class_name(cls)}:")
    source.add("    return NotImplemented")
    source.add("return " + (" and ".join(f"self.{plan.name} == other.{plan.name}" for plan in plans) or "True"))
    function: Callable[..., bool] = source.compile(f"<{cls.__module__}.{cls.__name__}.__eq__>", {})
    return function


def build_encoder(cls: type[Message], version: int, part: type[Struct] | None = None) -> Encode:
    """The encoder of one version; of one of the message's structs if `part` names it."""
    if not COMPILED:
        return write_encoder(cls, version, part)
    from ottla.protocol._encoding import Encoder

    encoder: Any = Encoder(cls, version, part)
    encode: Encode = encoder.encode
    return encode


def build_framer(cls: type[Message], version: int) -> Frame:
    """The encoder of whole frames of one version of a response."""
    if not COMPILED:
        return write_framer(cls, version)
    from ottla.protocol._encoding import Encoder

    encoder: Any = Encoder(cls, version)
    frame: Frame = encoder.encode_frame
    return frame


def build_decoder(cls: type[Message], version: int) -> Decode:
    """The decoder of one version."""
    if not COMPILED:
        return write_decoder(cls, version)
    from ottla.protocol._decoding import Decoder

    decoder: Any = Decoder(cls, version)
    decode: Decode = decoder.decode
    return decode


def write_encoder(cls: type[Message], version: int, part: type[Struct] | None = None) -> Encode:
    """The encoder of one version in Python."""
    from ottla.protocol.encoder import ENCODE_NAMES, Encoder

    title = f"<{cls.__module__}.{(part or cls).__name__} version {version} encode>"
    function: Encode = Encoder(cls, version, part).compile(title, ENCODE_NAMES)
    return function


def write_framer(cls: type[Message], version: int) -> Frame:
    """The encoder of whole frames of one version, in Python."""
    from ottla.protocol.frames import frame_response

    encode, tagged_head = write_encoder(cls, version), has_tagged_head(cls, version)

    def frame(message: Any, correlation_id: int) -> list[Any]:
        parts: list[Any] = []
        encode(message, parts)
        return frame_response(parts, correlation_id, tagged_head=tagged_head)

    return frame


def write_decoder(cls: type[Message], version: int) -> Decode:
    """The decoder of one version in Python."""
    from ottla.protocol.decoder import DECODE_NAMES, Decoder

    title = f"<{cls.__module__}.{cls.__name__} version {version} decode>"
    function: Decode = Decoder(cls, version).compile(title, DECODE_NAMES)
    return function


def source_of(cls: type[Message], version: int) -> str:
    """The Python source of one version, for people."""
    from ottla.protocol.decoder import Decoder
    from ottla.protocol.encoder import Encoder

    return Encoder(cls, version).text() + "\n\n" + Decoder(cls, version).text()
