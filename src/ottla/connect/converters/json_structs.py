"""Generates the functions that encode and decode a STRUCT of JSON: plain fields are checked in line.

A field that is not plain, or whose value is not, goes through a function of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.connect.data import DATE, DECIMAL, NO_DEFAULT, TIME, TIMESTAMP, Schema, Type

Convert: TypeAlias = Callable[[Any], Any]
BITS: Final = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
_LOGICAL: Final = frozenset({DECIMAL, DATE, TIME, TIMESTAMP})


class Plain(NamedTuple):
    """The values that stay as they are."""

    conditions: Mapping[Type, str]
    """Python conditions for types other than integers, with `{0}` for the value."""
    keeps_dict: bool
    """Whether a dict with plain values alone is returned as it is."""

    def condition(self, schema: Schema, name: str, *, replaces_null: bool) -> str:
        """Return the condition under which the value of a variable is plain; empty if there is none."""
        if schema.name in _LOGICAL:
            return ""
        if schema.type in BITS:
            limit = 1 << BITS[schema.type]
            condition = f"type({name}) is int and {-limit} <= {name} < {limit}"
        elif schema.type in self.conditions:
            condition = self.conditions[schema.type].format(name)
        else:
            return ""
        keeps_null = schema.optional and (schema.default in (NO_DEFAULT, None) or not replaces_null)
        return f"{name} is None or ({condition})" if keeps_null else condition


def struct_function(
    schema: Schema, slow: Sequence[Convert], complete: Convert, plain: Plain, *, replaces_null: bool
) -> Convert:
    """Return a function from dict to dict; `slow` has one for each field. `replaces_null`: null becomes the default.

    `complete` makes a dict with exactly the fields of another value, or raises DataError.
    """
    names = [each.name for each in schema.fields]
    conditions = [
        plain.condition(each.schema, f"x{i}", replaces_null=replaces_null) for i, each in enumerate(schema.fields)
    ]
    read = [f"    x{i} = value[{name!r}]" for i, name in enumerate(names)]
    lines = ["def convert(value):", "  try:", f"    if len(value) != {len(names)}: value = complete(value)", *read]
    lines += ["  except (KeyError, TypeError, IndexError):", "    value = complete(value)", *read]
    if plain.keeps_dict and names and all(conditions):
        lines.append(f"  if {' and '.join(f'({each})' for each in conditions)}: return value")
    for i, condition in enumerate(conditions):
        lines.append(f"  if not ({condition}): x{i} = s{i}(x{i})" if condition else f"  x{i} = s{i}(x{i})")
    lines.append(f"  return {{{', '.join(f'{name!r}: x{i}' for i, name in enumerate(names))}}}")
    namespace: dict[str, Any] = {f"s{i}": each for i, each in enumerate(slow)}
    namespace["complete"] = complete
    # Only names of fields come from outside, as string literals that repr() has quoted.
    exec(compile("\n".join(lines), f"<JSON of {schema.name or 'a struct'!r}>", "exec"), namespace)  # noqa: S102
    convert: Convert = namespace["convert"]
    return convert
