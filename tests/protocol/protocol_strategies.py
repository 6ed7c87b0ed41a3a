"""Random messages drawn from our declarations, and what of them a version can carry."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode
from ottla.protocol.declaration import MISSING
from ottla.protocol.message import Message, Struct
from ottla.protocol.plans import Plan, plans_of

EXAMPLES = int(os.environ.get("OTTLA_EXAMPLES", "4"))
bounded = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="OTTLA_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)

_text = st.text(st.characters(codec="utf-8"), max_size=6)
_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "Int8": st.integers(-(2**7), 2**7 - 1),
    "Int16": st.integers(-(2**15), 2**15 - 1),
    "Int32": st.integers(-(2**31), 2**31 - 1),
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "UInt16": st.integers(0, 2**16 - 1),
    "UInt32": st.integers(0, 2**32 - 1),
    "Float64": st.floats(allow_nan=False, allow_infinity=False),
    "Uuid": st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    "str": _text | st.just("long" * 50),
    "bytes": st.binary(max_size=6) | st.just(bytes(200)),
    "Records": st.binary(max_size=6) | st.just(bytes(3000)),
}
_error_codes = st.sampled_from(sorted(int(code) for code in ErrorCode))
# The oracle makes dates and durations of these, which reach less far than 64 bits and have no negative ones.
_moments = st.integers(0, 2**40)


def _values(plan: Plan) -> st.SearchStrategy[Any]:
    if plan.struct is not None:
        values = structs(plan.struct)
    elif plan.name.endswith("error_code"):
        values = _error_codes
    elif plan.kind == "Int64" and plan.name.endswith(("_ms", "timestamp")):
        values = _moments
    else:
        values = _KINDS[plan.kind]
    if plan.is_list:
        values = st.lists(values, max_size=2)
    elif plan.default is not MISSING and plan.tag is not None:
        values |= st.just(plan.default)
    return st.none() | values if plan.nullable[1] >= 0 else values


@cache
def structs(cls: type[Struct]) -> st.SearchStrategy[Any]:
    """Messages with any value in any field, whatever version it belongs to."""
    return st.builds(cls, *(_values(plan) for plan in plans_of(cls)))


def carried(value: Struct, version: int) -> Any:
    """A copy with the fields that `version` can carry: others have their default, null becomes the zero of its type."""
    copy = type(value)()
    for plan in plans_of(type(value)):
        if plan.exists(version):
            field = getattr(value, plan.name)
            if field is None and not plan.may_be_null(version):
                zero = {"str": "", "bytes": b"", "Records": b""}.get(plan.kind)
                field = [] if plan.is_list else plan.struct() if plan.struct else zero
            if isinstance(field, Struct):
                field = carried(field, version)
            elif isinstance(field, list) and plan.struct is not None:
                field = [carried(item, version) for item in field]
            setattr(copy, plan.name, field)
    return copy


def versions_of(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
