"""A valid Avro schema: its graph with its canonical string."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.schemas.avro.canonical import canonical_text
from ottla.schemas.avro.compatibility import incompatibilities
from ottla.schemas.avro.parser import Parser
from ottla.schemas.avro.types import AvroType
from ottla.schemas.model import Incompatibility


class AvroSchema:
    """A schema of type AVRO. `root` is its graph, in which the types of references are resolved."""

    __slots__ = ("_normalized", "_referenced", "canonical", "root")

    def __init__(self, text: str, references: Iterable[str] = (), *, is_new: bool = True) -> None:
        """Parse a text after the texts of its references, each of which comes after those that it uses itself.

        Raises InvalidSchema. `is_new=False` is for a schema that a registry stored, possibly with older rules.
        """
        parser = Parser(is_new=is_new)
        referenced = [parser.parse(reference) for reference in references]
        self.root: AvroType = parser.parse(text)
        self._referenced = frozenset(node.name for node in referenced if node.name)
        self.canonical: str = canonical_text(self.root, self._referenced)
        self._normalized: str | None = None

    def normalized(self) -> str:
        """The canonical text after normalization."""
        if self._normalized is None:
            self._normalized = canonical_text(self.root, self._referenced, normalize=True)
        return self._normalized

    def formatted(self, format_name: str) -> str:
        """The text in a format of Confluent's API: `resolved` has the types of references in place of their names."""
        return canonical_text(self.root, frozenset()) if format_name == "resolved" else self.canonical

    def incompatibilities(self, writer: AvroSchema) -> list[Incompatibility]:
        """The reasons why this schema cannot read data that was written with `writer`."""
        if self.canonical == writer.canonical and self._referenced == writer._referenced == frozenset():
            return []
        return incompatibilities(self.root, writer.root)
