"""The default value of a field of proto2: from the text of an option to the text that a descriptor has."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_INTEGER: Final = re.compile(r"(-?)(?:0[xX]([0-9a-fA-F]{1,16})|(0[0-7]{1,22})|([1-9][0-9]{0,19}|0))\Z")
_FLOAT: Final = re.compile(r"-?(?:inf|nan|infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\Z")
_BITS: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (True, 32)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (True, 64)),
    **dict.fromkeys(("uint32", "fixed32"), (False, 32)),
    **dict.fromkeys(("uint64", "fixed64"), (False, 64)),
}


def default_text(type_name: str, text: str, constants: Collection[str] | None) -> str | None:
    """The text in a descriptor, or None if `text` is not a value of the type. `constants` are the names of an enum."""
    if constants is not None:
        return text if text in constants else None
    if type_name == "string":
        return text
    if type_name == "bytes":
        return _escaped(text)
    if type_name == "bool":
        return text if text in {"true", "false"} else None
    if type_name in {"float", "double"}:
        return _float(text)
    return _integer(text, *_BITS[type_name]) if type_name in _BITS else None


def _float(text: str) -> str | None:
    if not _FLOAT.match(text):
        integer = _integer(text, True, 64)
        return None if integer is None else integer
    return text.replace("infinity", "inf")


def _integer(text: str, signed: bool, bits: int) -> str | None:
    found = _INTEGER.match(text)
    if found is None:
        return None
    sign, hexadecimal, octal, decimal = found.groups()
    digits, base = (hexadecimal, 16) if hexadecimal else (octal, 8) if octal else (decimal, 10)
    value = int(digits, base) * (-1 if sign else 1)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return str(value) if least <= value <= most else None


def _escaped(text: str) -> str:
    """The bytes in C's escapes. A character up to 255 is a byte, as an escape wrote it; others are in UTF-8."""
    data = text.encode("latin-1") if text.isascii() or max(text) <= "\xff" else text.encode("utf-8")
    return "".join(chr(each) if 32 <= each < 127 and each not in b"\"'\\" else f"\\{each:03o}" for each in data)
