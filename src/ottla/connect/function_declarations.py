"""Sources and sinks that are functions, as data: see `functions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ottla.connect.function_settings import SettingsModel

if TYPE_CHECKING:
    from ottla.connect.api import Connector

Offset: TypeAlias = Any
"""Where a source goes on: any JSON value; None at the beginning."""
Key: TypeAlias = str | Callable[[Any], Any] | None
Topic: TypeAlias = str | Callable[[Any], str] | None
Errors: TypeAlias = tuple[type[Exception], ...]
RETRIED: Errors = (ConnectionError, TimeoutError)


class Batch(NamedTuple):
    """The records of one call of a sink: consecutive records of one partition, without those that were skipped."""

    topic: str
    partition: int
    first: int
    """The offset of the first record."""
    last: int
    """The offset of the last record."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.first}-{self.last}"


@dataclass(frozen=True)
class FunctionSource:
    """A source that is a function. Calling it calls the function."""

    name: str
    function: Callable[..., Any]
    settings: SettingsModel
    make_connector: Callable[[FunctionSource], type[Connector]] = field(repr=False)
    partitions: Callable[[Any], Sequence[Any]] | None = None
    topic: Topic = None
    key: Key = None
    schema: type[Any] | None = None
    retry_on: Errors = RETRIED
    wait_s: float = 1.0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function."""
        return self.function(*arguments, **named)

    @cached_property
    def connector_class(self) -> type[Connector]:
        """The connector that runs the function."""
        return self.make_connector(self)


@dataclass(frozen=True)
class FunctionSink:
    """A sink that is a function. Calling it calls the function."""

    name: str
    function: Callable[..., Any]
    settings: SettingsModel
    make_connector: Callable[[FunctionSink], type[Connector]] = field(repr=False)
    as_arrow: bool = False
    resume: Callable[[Any, str, int], int | None] | None = None
    retry_on: Errors = RETRIED

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function."""
        return self.function(*arguments, **named)

    @cached_property
    def connector_class(self) -> type[Connector]:
        """The connector that runs the function."""
        return self.make_connector(self)
