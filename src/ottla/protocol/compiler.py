"""Compiles a message's declaration into Python functions, one encoder and one decoder per version.

The generated source is specialised: neighbouring fields of fixed size, with the length byte or count that follows
them, become one `struct` call; nested structs are written out in place; nothing is looked up per field. The source is
registered with `linecache`, so tracebacks and debuggers show it: `print(source_of(FetchRequest, 12))`.

An encoder is `encode(o0, parts)`, a decoder `decode(buf, p) -> (message, position)`.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from struct import Struct as Packer
from struct import error as struct_error
from struct import pack, unpack_from
from typing import Any, NamedTuple

from ottla.protocol.message import MISSING, Field, Message, Struct, version_range
from ottla.protocol.wire import (
    COPY_BELOW,
    MAX_ARRAY,
    MAX_STRING,
    MAX_TAGS,
    DecodeError,
    EncodeError,
    bad_length,
    read_more,
    read_uvarint,
    skip_tags,
    uvarint,
)

FIXED = {
    "bool": ("?", 1),
    "Int8": ("b", 1),
    "Int16": ("h", 2),
    "Int32": ("i", 4),
    "Int64": ("q", 8),
    "UInt16": ("H", 2),
    "UInt32": ("I", 4),
    "Float64": ("d", 8),
    "Uuid": ("16s", 16),
}
ZERO: dict[str, Any] = dict.fromkeys(FIXED, 0) | {
    "bool": False,
    "Float64": 0.0,
    "Uuid": bytes(16),
    "str": "",
    "bytes": b"",
    "Records": b"",
}
SIZES = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}


class Plan(NamedTuple):
    """One field, resolved: `kind` names a type of FIXED, "str", "bytes", "Records" or "struct"."""

    name: str
    kind: str
    struct: type[Struct] | None
    is_list: bool
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tag: int | None
    default: Any  # MISSING for a struct that is not null by default

    def exists(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def may_be_null(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]


_plans: dict[type[Struct], list[Plan]] = {}


def plans_of(cls: type[Struct]) -> list[Plan]:
    """The resolved fields of a declaration, in wire order."""
    plans = _plans.get(cls)
    if plans is None:
        plans = _plans[cls] = [_resolve(cls, name, *declared) for name, declared in cls.FIELDS.items()]
    return plans


def _resolve(cls: type[Struct], name: str, annotation: str, declared: Any) -> Plan:
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


class Source:
    """Lines of a function that grows, and the objects that it refers to."""

    def __init__(self, name: str, signature: str) -> None:
        self.name = name
        self.lines = [f"def {name}({signature}):"]
        self.depth = 1
        self.names: dict[str, Any] = {}

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def constant(self, prefix: str, value: Any) -> str:
        """A global name for `value`."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def class_name(self, cls: type[Struct]) -> str:
        self.names.setdefault(cls.__name__, cls)
        return cls.__name__

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, filename: str, names: dict[str, Any]) -> Any:
        text = self.text()
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        namespace = {**names, **self.names, "__name__": __name__}
        exec(compile(text, filename, "exec"), namespace)  # noqa: S102 - our own declarations
        return namespace[self.name]


def _default_text(source: Source, plan: Plan) -> str:
    """An expression of a field's default, or "" if it has to be built."""
    if plan.default is MISSING:
        return ""
    if plan.kind == "Uuid" and not plan.is_list and plan.default == ZERO["Uuid"]:
        return source.constant("zero", plan.default)
    return repr(plan.default)


def build_methods(cls: type[Struct]) -> tuple[Callable[..., None], Callable[..., bool]]:
    """`__init__` and `__eq__` of a declaration."""
    plans = plans_of(cls)
    source = Source("__init__", "")
    arguments = ["self"]
    for plan in plans:
        text = _default_text(source, plan)
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
    label = f"<{cls.__module__}.{cls.__name__}"
    initialise = source.compile(f"{label}.__init__>", {"MISSING": MISSING})

    source = Source("__eq__", "self, other")
    source.add(f"if type(other) is not {source.class_name(cls)}:")
    source.add("    return NotImplemented")
    source.add("return " + (" and ".join(f"self.{plan.name} == other.{plan.name}" for plan in plans) or "True"))
    return initialise, source.compile(f"{label}.__eq__>", {})


# ---------------------------------------------------------------------------------------------------------- encoding


class Encoder(Source):
    """Writes the source of one version's encoder.

    `run` holds values of fixed size that are not written yet: (format, expression).
    """

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__("encode", "o0, parts")
        self.version = version
        self.flexible = version >= cls.FLEXIBLE_FROM
        self.run: list[tuple[str, str]] = []
        self.add("chunks = []")
        self.add("w = chunks.append")
        self.add("try:")
        self.depth += 1
        self.struct(cls, "o0", 0)
        self.flush()
        if self.lines[-1].endswith("try:"):
            self.add("pass")
        self.depth -= 1
        self.add("except ENCODE_ERRORS as error:")
        self.add(f'    raise EncodeError("{cls.__name__} version {version}: " + str(error)) from error')
        self.add('parts.append(b"".join(chunks))')

    def packed(self, *more: tuple[str, str]) -> str:
        """An expression of the bytes of the run and `more`."""
        items = [*self.run, *more]
        form = "".join(form for form, _ in items)
        name = "pack_" + form.replace("?", "t")
        self.names[name] = _packer(">" + form).pack
        return f"{name}({', '.join(value for _, value in items)})"

    def flush(self) -> None:
        if self.run:
            if all(value == "0" and form == "B" for form, value in self.run):
                self.add(f"w({bytes(len(self.run))!r})")
            else:
                self.add(f"w({self.packed()})")
            self.run = []

    def length(self, form: str, value: str) -> None:
        """Write the run and a length: of fixed size, or (`form` "v") a varint, which mostly has one byte."""
        if form != "v":
            self.add(f"w({self.packed((form, value))})")
        elif self.run:
            self.add(f"if {value} < 128:")
            self.add(f"    w({self.packed(('B', value))})")
            self.add("else:")
            self.add(f"    w({self.packed()} + uvarint({value}))")
        else:
            self.add(f"w(uvarint({value}))")
        self.run = []

    def struct(self, cls: type[Struct], target: str, depth: int) -> None:
        tagged: list[Plan] = []
        for plan in plans_of(cls):
            if plan.exists(self.version):
                if plan.tag is None:
                    self.field(plan, f"{target}.{plan.name}", depth)
                else:
                    tagged.append(plan)
        if not self.flexible:
            return
        if tagged:
            self.tags(sorted(tagged, key=lambda plan: plan.tag or 0), target, depth)
        else:
            self.run.append(("B", "0"))

    def tags(self, tagged: list[Plan], target: str, depth: int) -> None:
        flags = [f"c{depth}_{plan.tag}" for plan in tagged]
        for plan, flag in zip(tagged, flags, strict=True):
            self.add(f"{flag} = {self.differs(plan, f'{target}.{plan.name}')}")
        count = " + ".join(flags)
        self.run.append(("B", count))
        self.flush()
        for plan, flag in zip(tagged, flags, strict=True):
            self.add(f"if {flag}:")
            self.depth += 1
            self.add(f"outer{depth} = w")
            self.add(f"tag{depth} = []")
            self.add(f"w = tag{depth}.append")
            self.field(plan, f"{target}.{plan.name}", depth, null=0)
            self.flush()
            self.add(f"w = outer{depth}")
            self.add(f'b = b"".join(tag{depth})')
            self.add(f"w({uvarint(plan.tag or 0)!r} + uvarint(len(b)))")
            self.add("w(b)")
            self.depth -= 1

    def differs(self, plan: Plan, value: str) -> str:
        """A condition: the field differs from its default."""
        text = _default_text(self, plan)
        if text:
            return f"{value} is not None" if text == "None" else f"{value} != {text}"
        assert plan.struct is not None
        parts = plans_of(plan.struct)
        texts = [_default_text(self, part) for part in parts]
        if not all(texts) or plan.may_be_null(self.version):
            return f"{value} != {self.constant('default', plan.struct())}"
        return (
            "(" + " or ".join(f"{value}.{part.name} != {text}" for part, text in zip(parts, texts, strict=True)) + ")"
        )

    def field(self, plan: Plan, value: str, depth: int, null: int = 0xFF) -> None:
        """Write one field. `null` is the byte of a struct that is null: Kafka has another one for tagged fields."""
        nullable = plan.may_be_null(self.version)
        if plan.is_list:
            self.array(plan, value, nullable, depth)
        elif plan.kind == "struct":
            assert plan.struct is not None
            if nullable:
                self.optional_struct(plan.struct, value, depth, null)
            else:
                self.struct(plan.struct, value, depth + 1)
        else:
            self.scalar(plan.kind, value, nullable)

    def optional_struct(self, cls: type[Struct], value: str, depth: int, null: int) -> None:
        self.flush()
        inner = f"s{depth + 1}_{len(self.lines)}"
        self.add(f"{inner} = {value}")
        self.add(f"if {inner} is None:")
        self.add(f"    w({bytes((null,))!r})")
        self.add("else:")
        self.depth += 1
        self.run.append(("B", "1"))
        self.struct(cls, inner, depth + 1)
        self.flush()
        self.depth -= 1

    def scalar(self, kind: str, value: str, nullable: bool) -> None:
        if kind in FIXED:
            self.run.append((FIXED[kind][0], value))
            return
        offset = " + 1" if self.flexible else ""
        null = "0" if self.flexible else "-1"
        convert = ".encode()" if kind == "str" else ""
        form = "v" if self.flexible else ("h" if kind == "str" else "i")
        if nullable:
            self.add(f"b = {value}")
            self.add("if b is None:")
            self.add(f"    n = {null}")
            if kind != "Records":
                self.add('    b = b""')
            self.add("else:")
            if convert:
                self.add(f"    b = b{convert}")
            self.add(f"    n = len(b){offset}")
        else:
            self.add(f"b = {value}{convert}")
            self.add(f"n = len(b){offset}")
        if kind == "str":
            self.add(f"if n > {MAX_STRING}{offset}:")
            self.add('    raise EncodeError(f"A string of {n} bytes is too long")')
        self.length(form, "n")
        if kind == "Records":
            self.records()
        else:
            self.add("w(b)")

    def records(self) -> None:
        self.add(f"if n > {COPY_BELOW}:")
        self.add('    parts.append(b"".join(chunks))')
        self.add("    chunks.clear()")
        self.add("    parts.append(b)")
        self.add("elif b is not None:")
        self.add("    w(b)")

    def array(self, plan: Plan, value: str, nullable: bool, depth: int) -> None:
        level = depth + 1
        items = f"a{level}"
        offset = " + 1" if self.flexible else ""
        self.add(f"{items} = {value}")
        if nullable:
            self.add(f"if {items} is None:")
            self.add(f"    n = {'0' if self.flexible else '-1'}")
            self.add(f"    {items} = ()")
            self.add("else:")
            self.add(f"    n = len({items}){offset}")
        else:
            self.add(f"n = len({items}){offset}")
        self.length("v" if self.flexible else "i", "n")
        form = FIXED.get(plan.kind, ("", 0))[0]
        if form and form != "16s":
            self.add(f"if {items}:")
            self.add(f"    w(pack('>' + str(len({items})) + '{form}', *{items}))")
            return
        item = f"o{level}"
        self.add(f"for {item} in {items}:")
        self.depth += 1
        if plan.struct is not None:
            self.struct(plan.struct, item, level)
        else:
            self.scalar(plan.kind, item, nullable=False)
        self.flush()
        self.depth -= 1


_ENCODE_NAMES: dict[str, Any] = {
    "ENCODE_ERRORS": (struct_error, AttributeError, TypeError, OverflowError, UnicodeEncodeError),
    "EncodeError": EncodeError,
    "pack": pack,
    "uvarint": uvarint,
}


def build_encoder(cls: type[Message], version: int) -> Callable[[Any, list[Any]], None]:
    """Compile the encoder of one version."""
    function: Callable[[Any, list[Any]], None] = Encoder(cls, version).compile(
        f"<{cls.__module__}.{cls.__name__} version {version} encode>", _ENCODE_NAMES
    )
    return function


# ---------------------------------------------------------------------------------------------------------- decoding


class Decoder(Source):
    """Writes the source of one version's decoder.

    `run` holds fields of fixed size that are not read yet: (format, target).
    """

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__("decode", "buf, p")
        self.version = version
        self.flexible = version >= cls.FLEXIBLE_FROM
        self.run: list[tuple[str, str]] = []
        self.add("end = len(buf)")
        if _has_records(cls, version):
            self.add("view = memoryview(buf)")
        self.add("try:")
        self.depth += 1
        self.new(cls, "o0")
        self.struct(cls, "o0", 0)
        self.flush()
        self.depth -= 1
        self.add("except DECODE_ERRORS as error:")
        self.add(f'    raise DecodeError("{cls.__name__} version {version}: " + str(error)) from error')
        self.add("return o0, p")

    def new(self, cls: type[Struct], target: str) -> None:
        self.add(f"{target} = new({self.class_name(cls)})")

    def flush(self) -> None:
        if not self.run:
            return
        if len(self.run) == 1 and self.run[0][0] == "B":
            self.add(f"{self.run[0][1]} = buf[p]")
            self.add("p += 1")
        else:
            form = "".join(form for form, _ in self.run)
            unpack = "unpack_" + form.replace("?", "t")
            self.names[unpack] = _packer(">" + form).unpack_from
            comma = "," if len(self.run) == 1 else ""
            self.add(f"{', '.join(target for _, target in self.run)}{comma} = {unpack}(buf, p)")
            self.add(f"p += {sum(SIZES[form] for form, _ in self.run)}")
        self.run = []

    def length(self, form: str, target: str) -> None:
        """Read the run and a length; a varint (`form` "v") still counts from one."""
        self.run.append(("B" if form == "v" else form, target))
        self.flush()
        if form == "v":
            self.add(f"if {target} > 127:")
            self.add(f"    {target}, p = read_more(buf, p, {target})")

    def struct(self, cls: type[Struct], target: str, depth: int) -> None:
        tagged: list[Plan] = []
        for plan in plans_of(cls):
            if not plan.exists(self.version):
                self.default(plan, f"{target}.{plan.name}")
            elif plan.tag is None:
                self.field(plan, f"{target}.{plan.name}", depth)
            else:
                tagged.append(plan)
                self.default(plan, f"{target}.{plan.name}")
        if self.flexible:
            self.tags(tagged, target, depth)

    def default(self, plan: Plan, target: str) -> None:
        text = _default_text(self, plan)
        if text:
            self.add(f"{target} = {text}")
            return
        assert plan.struct is not None
        # Built in place: a tenth of a microsecond less than its constructor.
        parts = plans_of(plan.struct)
        inner = f"d{len(self.lines)}"
        self.new(plan.struct, inner)
        for part in parts:
            self.default(part, f"{inner}.{part.name}")
        self.add(f"{target} = {inner}")

    def tags(self, tagged: list[Plan], target: str, depth: int) -> None:
        count = f"t{depth}"
        self.run.append(("B", count))
        self.flush()
        self.add(f"if {count}:")
        if not tagged:
            self.add(f"    p = skip_tags(buf, p, {count})")
            return
        self.depth += 1
        self.add(f"if {count} > 127:")
        self.add(f"    {count}, p = read_more(buf, p, {count})")
        self.add(f"if {count} > {MAX_TAGS}:")
        self.add(f'    raise bad_length("Tagged section", {count}, end - p)')
        self.add(f"for _ in range({count}):")
        self.depth += 1
        self.add(f"tag{depth}, p = read_uvarint(buf, p)")
        self.add("n, p = read_uvarint(buf, p)")
        self.add(f"stop{depth} = p + n")
        self.add(f"if stop{depth} > end:")
        self.add('    raise bad_length("Tagged field", n, end - p)')
        for index, plan in enumerate(tagged):
            self.add(f"{'elif' if index else 'if'} tag{depth} == {plan.tag}:")
            self.depth += 1
            self.field(plan, f"{target}.{plan.name}", depth, null=0)
            self.flush()
            self.add(f"if p != stop{depth}:")
            self.add(f'    raise bad_length("Tagged field {plan.name}", stop{depth} - p, end - p)')
            self.depth -= 1
        self.add("else:")
        self.add(f"    p = stop{depth}")
        self.depth -= 2

    def field(self, plan: Plan, target: str, depth: int, null: int = -1) -> None:
        nullable = plan.may_be_null(self.version)
        if plan.is_list:
            self.array(plan, target, nullable, depth)
        elif plan.kind == "struct":
            assert plan.struct is not None
            if nullable:
                self.optional_struct(plan.struct, target, depth, null)
            else:
                inner = f"s{depth + 1}_{len(self.lines)}"
                self.new(plan.struct, inner)
                self.add(f"{target} = {inner}")
                self.struct(plan.struct, inner, depth + 1)
        else:
            self.scalar(plan.kind, target, nullable)

    def optional_struct(self, cls: type[Struct], target: str, depth: int, null: int) -> None:
        self.run.append(("b", "n"))
        self.flush()
        inner = f"s{depth + 1}_{len(self.lines)}"
        self.add(f"if n <= {null}:")
        self.add(f"    {target} = None")
        self.add("else:")
        self.depth += 1
        self.new(cls, inner)
        self.add(f"{target} = {inner}")
        self.struct(cls, inner, depth + 1)
        self.flush()
        self.depth -= 1

    def scalar(self, kind: str, target: str, nullable: bool) -> None:
        if kind in FIXED:
            self.run.append((FIXED[kind][0], target))
            return
        self.length("v" if self.flexible else ("h" if kind == "str" else "i"), "n")
        null = "0" if self.flexible else "-1"
        offset = " - 1" if self.flexible else ""
        too_long = f" or n > {MAX_STRING + 1}" if kind == "str" and self.flexible else ""
        if nullable:
            self.add(f"if n == {null}:")
            self.add(f"    {target} = None")
            self.add("else:")
            self.depth += 1
        self.add(f"q = p + n{offset}")
        self.add(f"if q < p or q > end{too_long}:")
        self.add(f'    raise bad_length("{target.rpartition(".")[2]}", n{offset}, end - p)')
        value = {"str": "str(buf[p:q], 'utf-8')", "bytes": "bytes(buf[p:q])", "Records": "view[p:q]"}[kind]
        self.add(f"{target} = {value}")
        self.add("p = q")
        if nullable:
            self.depth -= 1

    def array(self, plan: Plan, target: str, nullable: bool, depth: int) -> None:
        level = depth + 1
        count = f"n{level}"
        self.length("v" if self.flexible else "i", count)
        null = "0" if self.flexible else "-1"
        if nullable:
            self.add(f"if {count} == {null}:")
            self.add(f"    {target} = None")
            self.add("else:")
            self.depth += 1
        if self.flexible:
            self.add(f"{count} -= 1")
        smallest = max(1, _smallest(plan, self.version, self.flexible))
        self.add(f"if {count} < 0 or {count} > {MAX_ARRAY} or {count} * {smallest} > end - p:")
        self.add(f'    raise bad_length("{plan.name}", {count}, end - p)')
        form, size = FIXED.get(plan.kind, ("", 0))
        if form and form != "16s":
            self.add(f"{target} = list(unpack_from('>' + str({count}) + '{form}', buf, p)) if {count} else []")
            self.add(f"p += {count} * {size}")
        else:
            self.items(plan, target, count, level)
        if nullable:
            self.depth -= 1

    def items(self, plan: Plan, target: str, count: str, level: int) -> None:
        item = f"o{level}"
        self.add(f"{target} = a{level} = []")
        self.add(f"for _ in range({count}):")
        self.depth += 1
        if plan.struct is not None:
            self.new(plan.struct, item)
            self.struct(plan.struct, item, level)
        else:
            self.scalar(plan.kind, item, nullable=False)
        self.flush()
        self.add(f"a{level}.append({item})")
        self.depth -= 1


def _smallest(plan: Plan, version: int, flexible: bool) -> int:
    """The fewest bytes that one element of an array, or one field, has on the wire."""
    if plan.struct is not None:
        return _smallest_struct(plan.struct, version, flexible)
    if plan.kind in FIXED:
        return FIXED[plan.kind][1]
    return 1 if flexible else (2 if plan.kind == "str" else 4)


def _smallest_struct(cls: type[Struct], version: int, flexible: bool) -> int:
    size = int(flexible)
    for plan in plans_of(cls):
        if plan.exists(version) and plan.tag is None:
            if plan.is_list:
                size += 1 if flexible else 4
            elif plan.struct is not None and plan.may_be_null(version):
                size += 1
            else:
                size += _smallest(plan, version, flexible)
    return size


def _has_records(cls: type[Struct], version: int) -> bool:
    return any(
        plan.exists(version)
        and (plan.kind == "Records" or (plan.struct is not None and _has_records(plan.struct, version)))
        for plan in plans_of(cls)
    )


_packers: dict[str, Packer] = {}


def _packer(form: str) -> Packer:
    packer = _packers.get(form)
    if packer is None:
        packer = _packers[form] = Packer(form)
    return packer


_DECODE_NAMES: dict[str, Any] = {
    "DECODE_ERRORS": (struct_error, IndexError, UnicodeDecodeError),
    "DecodeError": DecodeError,
    "bad_length": bad_length,
    "new": object.__new__,
    "read_more": read_more,
    "read_uvarint": read_uvarint,
    "skip_tags": skip_tags,
    "unpack_from": unpack_from,
}


def build_decoder(cls: type[Message], version: int) -> Callable[[Any, int], tuple[Any, int]]:
    """Compile the decoder of one version."""
    function: Callable[[Any, int], tuple[Any, int]] = Decoder(cls, version).compile(
        f"<{cls.__module__}.{cls.__name__} version {version} decode>", _DECODE_NAMES
    )
    return function


def source_of(cls: type[Message], version: int) -> str:
    """The generated source of one version, for people."""
    return Encoder(cls, version).text() + "\n\n" + Decoder(cls, version).text()
