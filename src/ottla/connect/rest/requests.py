"""One request of the REST API: path parameters, query parameters, body."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs

from ottla.connect.api import SourceOffset
from ottla.connect.errors import BadRequestError
from ottla.connect.runtime import TargetState
from ottla.web.errors import HttpError

_STATES: Final = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}
_MOST_DEPTH: Final = 64


class Request:
    """A request. `parameters` are the parts of the path that a route does not fix."""

    def __init__(
        self, method: str, parameters: Sequence[str], query: bytes, headers: Mapping[str, str], body: bytes
    ) -> None:  # fmt: skip
        self.method = method
        self.parameters = parameters
        self.headers = headers
        self.body = body
        self._query = parse_qs(query.decode("latin-1"), keep_blank_values=True, errors="replace")

    @property
    def name(self) -> str:
        """The first parameter of the path: a connector, a plugin or a logger."""
        return self.parameters[0]

    @property
    def task(self) -> int:
        """The second parameter of the path: the number of a task. Raises HttpError."""
        text = self.parameters[1]
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdecimal() or len(digits) > 10 or not -(2**31) <= int(text) < 2**31:
            raise HttpError(404, 404, "HTTP 404 Not Found")
        return int(text)

    def values(self, name: str) -> list[str]:
        """Return all values of a query parameter."""
        return self._query.get(name, [])

    def pairs(self) -> list[tuple[str, str]]:
        """Return the query parameters, but `forward`."""
        return [(name, each) for name, values in self._query.items() if name != "forward" for each in values]

    def value(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        found = self.values(name)
        return found[0] if found else None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a query parameter as Java's Boolean: everything but `true` is false."""
        found = self.value(name)
        return default if found is None else found.lower() == "true"

    @property
    def forward(self) -> bool | None:
        """Whether the request may be sent to another worker; None: it comes from a user."""
        return None if self.value("forward") is None else self.flag("forward")

    def json(self) -> Any:
        """Return the body. Raises BadRequestError."""
        if not self.body.strip():
            raise BadRequestError("The request needs a body in JSON")
        try:
            found = json.loads(self.body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise BadRequestError(f"The body of the request is not valid JSON: {error}") from error
        if _depth(found) > _MOST_DEPTH:
            raise BadRequestError(f"The JSON in the body is nested more than {_MOST_DEPTH} levels deep")
        return found

    def object(self) -> dict[str, Any]:
        """Return the body, which must be a JSON object. Raises BadRequestError."""
        return required_object(self.json(), "the body of the request")

    def config(self) -> dict[str, str | None]:
        """Return the body as a configuration. Raises BadRequestError."""
        return config_of(self.json(), "the body of the request")


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = inner
    return depth


def required_object(value: Any, place: str) -> dict[str, Any]:
    """Return a JSON object. Raises BadRequestError."""
    if not isinstance(value, dict):
        raise BadRequestError(f"{place[0].upper()}{place[1:]} must be a JSON object, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    kinds = {list: "an array", str: "a text", bool: "a boolean", int: "a number", float: "a number", dict: "an object"}
    return "null" if value is None else kinds[type(value)]


def config_of(value: Any, place: str) -> dict[str, str | None]:
    """Return a configuration: texts and null; numbers and booleans become texts. Raises BadRequestError."""
    found: dict[str, str | None] = {}
    for name, each in required_object(value, place).items():
        if each is None or isinstance(each, str):
            found[name] = each
        elif isinstance(each, bool):
            found[name] = "true" if each else "false"
        elif isinstance(each, (int, float)):
            found[name] = str(each)
        else:
            raise BadRequestError(f"The value of {name} in {place} must be a text, not {_kind(each)}")
        if "\ud800" <= max((found[name] or "") + name, default="") <= "\udfff":
            _refuse_surrogates(name, found[name])
    return found


def _refuse_surrogates(name: str, value: str | None) -> None:
    try:
        f"{name}{value or ''}".encode()
    except UnicodeEncodeError as error:
        raise BadRequestError("A name or value of the configuration is not valid Unicode text") from error


def new_connector(request: Request) -> tuple[str, dict[str, str | None], TargetState | None]:
    """Return the name, the configuration and the initial state of a new connector. Raises BadRequestError."""
    body = request.object()
    unknown = sorted(set(body) - {"name", "config", "initial_state"})
    if unknown:
        raise BadRequestError(f"The body has unknown fields: {', '.join(unknown)}; known: name, config, initial_state")
    name, state = body.get("name"), body.get("initial_state")
    if name is not None and not isinstance(name, str):
        raise BadRequestError(f"The name must be a text, not {_kind(name)}")
    config = config_of(body.get("config"), "the field config")
    if state is not None and (not isinstance(state, str) or state.upper() not in _STATES):
        raise BadRequestError(f"The initial_state must be one of {', '.join(_STATES)}")
    return (name or "").strip(), config, None if state is None else _STATES[state.upper()]


def named(name: str, config: dict[str, str | None]) -> dict[str, str | None]:
    """Return a configuration with the name of its connector. Raises BadRequestError for another name."""
    included = config.get("name")
    if included is None:
        return {**config, "name": name}
    if included != name:
        raise BadRequestError(
            f"Connector name configuration ({included}) doesn't match connector name in the URL ({name})"
        )
    return config


def offsets_of(request: Request) -> list[SourceOffset]:
    """Return the offsets of a body (KIP-875). Raises BadRequestError."""
    body = request.object()
    if set(body) - {"offsets"}:
        raise BadRequestError("The body has unknown fields; known: offsets")
    rows = body.get("offsets")
    if rows is not None and not isinstance(rows, list):
        raise BadRequestError(f"The field offsets must be an array, not {_kind(rows)}")
    if not rows:
        raise BadRequestError("Partitions / offsets need to be provided for an alter offsets request")
    return [_offset(each) for each in rows]


def _offset(row: Any) -> SourceOffset:
    row = required_object(row, "each element of offsets")
    if set(row) - {"partition", "offset"}:
        raise BadRequestError("An element of offsets has unknown fields; known: partition, offset")
    partition, offset = row.get("partition"), row.get("offset")
    if partition is None:
        raise BadRequestError("Partition objects cannot be null")
    required_object(partition, "each partition")
    if offset is not None:
        required_object(offset, "each offset")
    return SourceOffset(partition, offset)
