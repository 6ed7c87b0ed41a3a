"""PostgreSQL's text forms of arrays, hstore, points, bits, money and numbers, parsed."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from struct import pack
from typing import Any

_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|(NULL))', re.DOTALL)
_POINT = re.compile(r"\(([^,()]+),([^,()]+)\)")
_MONEY = re.compile(r"[^0-9.\-()]")


def array(text: str, convert: Callable[[str], Any], unchanged: Any = None) -> list[Any]:
    """Return the items of an array; one of several dimensions is read row by row, since its schema has one."""
    del unchanged
    if text.startswith("["):  # bounds, such as [0:1]={a,b}
        text = text[text.index("=") + 1 :]
    items = []
    for quoted, bare in _ITEM.findall(text):
        if bare:
            items.append(None if bare.upper() == "NULL" else convert(bare))
        else:
            items.append(convert(_ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted))
    return items


def hstore(text: str) -> dict[str, str | None]:
    """Return the entries of an hstore."""
    return {
        _ESCAPED.sub(r"\1", key): None if null else _ESCAPED.sub(r"\1", value)
        for key, value, null in _HSTORE.findall(text)
    }


def point(text: str) -> dict[str, Any]:
    """Return the fields of a point, with its well-known binary form."""
    found = _POINT.fullmatch(text)
    if found is None:
        raise ValueError(f"not a point: {text!r}")
    x, y = float(found[1]), float(found[2])
    return {"x": x, "y": y, "wkb": pack("<BIdd", 1, 1, x, y), "srid": None}


def bits(text: str) -> bytes:
    """Return bits in little-endian bytes, as many as the highest set bit needs."""
    number = int(text, 2) if text else 0
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def money(text: str, digits: int) -> Decimal:
    """Return an amount of money in the C locale, such as -$1,234.50."""
    plain = _MONEY.sub("", text)
    negative = plain.startswith(("-", "("))
    amount = Decimal(plain.strip("-()"))
    return (-amount if negative else amount).quantize(Decimal(1).scaleb(-digits))


def unscaled(number: int) -> bytes:
    """Return an integer in the fewest big-endian bytes of two's complement (Java's BigInteger)."""
    size = (number + (number < 0)).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def variable_decimal(text: str) -> dict[str, Any] | None:
    """Return the fields of a VariableScaleDecimal; None for NaN and infinity, which have none."""
    number = Decimal(text)
    if not number.is_finite():
        return None
    sign, digits, exponent = number.as_tuple()
    whole = int("".join(map(str, digits)))
    scale = -int(exponent)
    while scale > 0 and whole % 10 == 0:
        whole //= 10
        scale -= 1
    if scale < 0:
        whole, scale = whole * 10**-scale, 0
    return {"scale": scale, "value": unscaled(-whole if sign else whole)}
