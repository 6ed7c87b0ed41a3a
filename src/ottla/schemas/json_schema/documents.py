"""The documents of a schema and what a URI in them means.

The schema is the first document; each reference is a document under its name, and under the URI of its name relative to
the schema. `$id` and anchors inside of documents count. Nothing is fetched: a URI of another document is an error,
except for the meta-schemas of the drafts, which are opaque.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from ottla.schemas.model import InvalidSchema


class Draft(IntEnum):
    """The versions of JSON Schema."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 2019
    DRAFT_2020_12 = 2020

    @property
    def uri(self) -> str:
        """The `$schema` of the draft."""
        if self < Draft.DRAFT_2019_09:
            return f"http://json-schema.org/draft-0{self.value}/schema#"
        return f"https://json-schema.org/draft/{'2019-09' if self is Draft.DRAFT_2019_09 else '2020-12'}/schema"

    @property
    def id_keyword(self) -> str:
        """The keyword with the URI of a schema."""
        return "id" if self is Draft.DRAFT_4 else "$id"


_DRAFTS: Final = {draft.uri.removesuffix("#").partition("//")[2]: draft for draft in Draft} | {
    "json-schema.org/schema": Draft.DRAFT_4
}
# Keywords whose values are data and not schemas.
_DATA: Final = frozenset({"enum", "const", "default", "examples"})


class Place(NamedTuple):
    """A schema inside a document, with the base of its relative URIs."""

    schema: Any
    base: str
    draft: Draft


def draft_of(document: Any) -> Draft:
    """The draft that a document names; draft 7 if it names none that is known."""
    uri = document.get("$schema") if isinstance(document, dict) else None
    return known_draft(uri) or Draft.DRAFT_7


def known_draft(uri: Any) -> Draft | None:
    """The draft whose meta-schema has a URI."""
    return _DRAFTS.get(uri.removesuffix("#").partition("://")[2]) if isinstance(uri, str) else None


class Documents:
    """Finds the schema of a URI."""

    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        """`references` are the documents of references by name."""
        draft = draft_of(root)
        base = _uri(root, draft, "")
        self.root = Place(root, base, draft)
        self._places: dict[str, Place] = {}
        for name, document in references.items():
            draft = draft_of(document)
            uri = urljoin(base, name)
            for each in (name, uri, f"./{name}"):
                self._places.setdefault(each.removesuffix("#"), Place(document, uri, draft))
            self._index(document, uri, draft)
        self._places[base] = self.root
        self._index(root, base, self.root.draft)

    def find(self, reference: str, base: str) -> Place:
        """The schema of a `$ref`. Raises InvalidSchema."""
        uri, fragment = _split(base, reference)
        if known_draft(uri) is not None and uri not in self._places:
            return Place(None, uri, Draft.DRAFT_7)
        whole = self._places.get(f"{uri}#{fragment}") if fragment and not fragment.startswith("/") else None
        if whole is not None:
            return whole
        place = self._places.get(uri) or self._places.get(reference.partition("#")[0])
        if place is None:
            raise InvalidSchema(f"$ref {reference!r} leads to {uri!r}, which is not among the references of the schema")
        if not fragment:
            return place
        if not fragment.startswith("/"):
            raise InvalidSchema(f"$ref {reference!r} has an anchor that does not exist")
        return self._point(place, fragment, reference)

    @staticmethod
    def base_of(place: Place) -> str:
        """The base of relative URIs inside a schema that can have a URI of its own."""
        return _uri(place.schema, place.draft, place.base)

    def _point(self, place: Place, pointer: str, reference: str) -> Place:
        found, base = place.schema, place.base if place is self.root else self.base_of(place)
        steps = [unquote(step).replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
        for index, step in enumerate(steps):
            if isinstance(found, dict):
                if index and found is not place.schema:
                    base = _uri(found, place.draft, base)
                # The definitions of older drafts are also found under the newer keyword.
                if step == "$defs" and step not in found and index == 0:
                    step = "definitions"
                found = found.get(step, _NOTHING)
            elif isinstance(found, list) and step.isascii() and step.isdecimal() and int(step[:9]) < len(found):
                found = found[int(step[:9])]
            else:
                found = _NOTHING
            if found is _NOTHING:
                raise InvalidSchema(f"$ref {reference!r} leads to nothing")
        return Place(found, base, place.draft)

    def _index(self, document: Any, base: str, draft: Draft) -> None:
        """Register the schemas inside of a document that have a URI or an anchor."""
        waiting = [(document, base)]
        while waiting:
            found, outer = waiting.pop()
            if isinstance(found, list):
                waiting += [(each, outer) for each in found]
            elif isinstance(found, dict):
                place = self.root if found is self.root.schema else Place(found, outer, draft)
                inner = outer if place is self.root else self.base_of(place)
                own = found.get(draft.id_keyword)
                if isinstance(own, str):
                    self._register(place, own)
                for keyword in ("$anchor", "$dynamicAnchor"):
                    anchor = found.get(keyword)
                    if isinstance(anchor, str):
                        self._places.setdefault(f"{inner}#{anchor}", place)
                waiting += [(value, inner) for key, value in found.items() if key not in _DATA]

    def _register(self, place: Place, own: str) -> None:
        uri, fragment = _split(place.base, own)
        self._places.setdefault(f"{uri}#{fragment}" if fragment else uri, place)


_NOTHING: Final = object()


def _split(base: str, uri: str) -> tuple[str, str]:
    """An absolute URI and its fragment. A text that is not a URI is returned unchanged."""
    try:
        whole, fragment = urldefrag(urljoin(base, uri))
    except ValueError:
        return uri, ""
    return whole, fragment


def _uri(found: Any, draft: Draft, base: str) -> str:
    """The base of relative URIs inside a schema."""
    own = found.get(draft.id_keyword) if isinstance(found, dict) else None
    return _split(base, own)[0] if isinstance(own, str) else base
