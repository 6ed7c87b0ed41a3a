"""Resolved declarations: type, versions, tag and default of each field."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from ottla.protocol.declaration import MISSING, DeclaredStruct, Field, version_range

# The bytes of values of fixed size.
WIDTHS = {
    "bool": 1,
    "Int8": 1,
    "Int16": 2,
    "Int32": 4,
    "Int64": 8,
    "UInt16": 2,
    "UInt32": 4,
    "Float64": 8,
    "Uuid": 16,
}
ZERO: dict[str, Any] = dict.fromkeys(WIDTHS, 0) | {
    "bool": False,
    "Float64": 0.0,
    "Uuid": bytes(16),
    "str": "",
    "bytes": b"",
    "Records": b"",
}


class Plan(NamedTuple):
    """One resolved field. `kind` is a key of WIDTHS, "str", "bytes", "Records" or "struct"."""

    name: str
    kind: str
    struct: type[DeclaredStruct] | None
    is_list: bool
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tag: int | None
    default: Any  # MISSING for a struct that is not null by default

    def exists(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def may_be_null(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]


_plans: dict[type[DeclaredStruct], list[Plan]] = {}


def plans_of(cls: type[DeclaredStruct]) -> list[Plan]:
    """The resolved fields of a declaration, in wire order."""
    plans = _plans.get(cls)
    if plans is None:
        plans = _plans[cls] = [_resolve(cls, name, *declared) for name, declared in cls.FIELDS.items()]
    return plans


def _resolve(cls: type[DeclaredStruct], name: str, annotation: str, declared: Any) -> Plan:
    if not isinstance(annotation, str):
        raise TypeError(f"{cls.__module__} lacks `from __future__ import annotations`")
    spec = declared if isinstance(declared, Field) else Field("0+", declared, None, None)
    optional = annotation.endswith(" | None")
    kind = annotation.removesuffix(" | None")
    is_list = kind.startswith("list[")
    if is_list:
        kind = kind[5:-1]
    struct = None
    if kind not in ZERO:
        struct = vars(sys.modules[cls.__module__])[kind]
        kind = "struct"
    default = spec.default
    if default is MISSING and struct is None:
        default = ZERO[kind]
    if is_list and default is not None:
        default = []
    versions = version_range(spec.versions)
    nullable = version_range(spec.nullable or (spec.versions if optional else "none"))
    return Plan(name, kind, struct, is_list, versions, nullable, spec.tag, default)
