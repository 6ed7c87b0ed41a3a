"""Writes the source of encoders: `encode(o0, parts)` appends the bytes of a message to `parts`."""

from __future__ import annotations

from struct import error as struct_error
from struct import pack
from typing import Any

from ottla.protocol.message import Message, Struct
from ottla.protocol.plans import FIXED, Plan, plans_of
from ottla.protocol.source import Source, default_text, packer
from ottla.protocol.wire import COPY_BELOW, MAX_STRING, ONE_BYTE, EncodeError, uvarint


class Encoder(Source):
    """Writes the source of one version's encoder.

    `run` holds values of fixed size that are not written yet: (format, expression).
    """

    def __init__(self, cls: type[Message], version: int, part: type[Struct] | None = None) -> None:
        """`part` is a struct of the message, to be encoded instead of it."""
        super().__init__("encode", "o0, parts")
        self.version = version
        self.flexible = version >= cls.FLEXIBLE_FROM
        self.run: list[tuple[str, str]] = []
        self.add("chunks = []")
        self.add("w = chunks.append")
        self.add("try:")
        self.depth += 1
        self.struct(part or cls, "o0", 0)
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
        self.names[name] = packer(">" + form).pack
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
            self.add(f"w(ONE_BYTE[{value}] if 0 <= {value} < 128 else uvarint({value}))")
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
        text = default_text(self, plan)
        if text:
            return f"{value} is not None" if text == "None" else f"{value} != {text}"
        assert plan.struct is not None
        parts = plans_of(plan.struct)
        texts = [default_text(self, part) for part in parts]
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
            self.add(f"if type({item}) is bytes:")
            self.add(f"    w({item})")
            self.add("    continue")
            self.struct(plan.struct, item, level)
        else:
            self.scalar(plan.kind, item, nullable=False)
        self.flush()
        self.depth -= 1


ENCODE_NAMES: dict[str, Any] = {
    "ENCODE_ERRORS": (struct_error, AttributeError, TypeError, OverflowError, UnicodeEncodeError),
    "EncodeError": EncodeError,
    "ONE_BYTE": ONE_BYTE,
    "pack": pack,
    "uvarint": uvarint,
}
