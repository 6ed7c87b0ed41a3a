"""Makes the functions of a declaration: its constructor, its comparison, and one encoder and decoder per version.

The constructor and the comparison are Python source, written and compiled once for each class: a message is made often,
and a loop over its fields would be several times slower. Encoders and decoders walk the declaration (`_shapes`,
`_encoding`, `_decoding`), compiled by Cython where that is possible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol._decoding import Decoder
from ottla.protocol._encoding import Encoder
from ottla.protocol.declaration import MISSING, DeclaredMessage, DeclaredStruct
from ottla.protocol.plans import ZERO, Plan, plans_of

Encode = Callable[[Any, list[Any]], None]
Frame = Callable[[Any, int], list[Any]]
Decode = Callable[..., tuple[Any, int]]


def build_init(cls: type[DeclaredStruct]) -> Callable[..., None]:
    """`__init__` of a declaration."""
    names: dict[str, Any] = {"MISSING": MISSING, "ZERO_UUID": ZERO["Uuid"]}
    arguments = ["self"]
    lines = []
    for plan in plans_of(cls):
        if plan.default is MISSING or plan.default == []:
            fresh = "[]"
            if plan.struct is not None and not plan.is_list:
                names[plan.struct.__name__] = plan.struct
                fresh = f"{plan.struct.__name__}()"
            arguments.append(f"{plan.name}=MISSING")
            lines.append(f"self.{plan.name} = {fresh} if {plan.name} is MISSING else {plan.name}")
        else:
            arguments.append(f"{plan.name}={_default_text(plan)}")
            lines.append(f"self.{plan.name} = {plan.name}")
    init: Callable[..., None] = _function(cls, f"__init__({', '.join(arguments)})", lines or ["pass"], names)
    return init


def _default_text(plan: Plan) -> str:
    return "ZERO_UUID" if plan.default == ZERO["Uuid"] else repr(plan.default)


def build_eq(cls: type[DeclaredStruct]) -> Callable[..., bool]:
    """`__eq__` of a declaration."""
    same = " and ".join(f"self.{plan.name} == other.{plan.name}" for plan in plans_of(cls)) or "True"
    lines = ["if type(other) is not cls:", "    return NotImplemented", f"return {same}"]
    equal: Callable[..., bool] = _function(cls, "__eq__(self, other)", lines, {"cls": cls})
    return equal


def _function(cls: type[DeclaredStruct], signature: str, lines: list[str], names: dict[str, Any]) -> Any:
    """Compile a method of a class from its source, in which `names` are the globals."""
    name = signature.partition("(")[0]
    text = "\n    ".join([f"def {signature}:", *lines])
    namespace = {**names, "__name__": __name__}
    exec(compile(text, f"<{cls.__module__}.{cls.__name__}.{name}>", "exec"), namespace)  # noqa: S102 - our declarations
    return namespace[name]


def build_encoder(cls: type[DeclaredMessage], version: int, part: type[DeclaredStruct] | None = None) -> Encode:
    """The encoder of one version; of one of the message's structs if `part` names it."""
    return Encoder(cls, version, part).encode


def build_framer(cls: type[DeclaredMessage], version: int) -> Frame:
    """The encoder of whole frames of one version of a response."""
    return Encoder(cls, version).encode_frame


def build_decoder(cls: type[DeclaredMessage], version: int) -> Decode:
    """The decoder of one version."""
    return Decoder(cls, version).decode
