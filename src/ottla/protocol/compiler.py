"""Compiles a message's declaration into Python functions, one encoder and one decoder per version.

The generated source is specialised: neighbouring fields of fixed size, with the length byte or count that follows
them, become one `struct` call; nested structs are written out in place; nothing is looked up per field. The source is
registered with `linecache`, so tracebacks and debuggers show it: `print(source_of(FetchRequest, 12))`.

An encoder is `encode(o0, parts)`, a decoder `decode(buf, p) -> (message, position)`. Reading order: `plans`, `source`,
`encoder`, `decoder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.decoder import DECODE_NAMES, Decoder
from ottla.protocol.encoder import ENCODE_NAMES, Encoder
from ottla.protocol.message import MISSING, Message, Struct
from ottla.protocol.plans import plans_of
from ottla.protocol.source import Source, default_text


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


def build_encoder(cls: type[Message], version: int) -> Callable[[Any, list[Any]], None]:
    """Compile the encoder of one version."""
    function: Callable[[Any, list[Any]], None] = Encoder(cls, version).compile(
        f"<{cls.__module__}.{cls.__name__} version {version} encode>", ENCODE_NAMES
    )
    return function


def build_decoder(cls: type[Message], version: int) -> Callable[[Any, int], tuple[Any, int]]:
    """Compile the decoder of one version."""
    function: Callable[[Any, int], tuple[Any, int]] = Decoder(cls, version).compile(
        f"<{cls.__module__}.{cls.__name__} version {version} decode>", DECODE_NAMES
    )
    return function


def source_of(cls: type[Message], version: int) -> str:
    """The generated source of one version, for people."""
    return Encoder(cls, version).text() + "\n\n" + Decoder(cls, version).text()
