"""The interface of transformations and predicates (org.apache.kafka.connect.transforms).

An instance belongs to one task and is called by its thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ottla.connect.config.definition import ConfigDef

if TYPE_CHECKING:
    from ottla.connect.api import Config
    from ottla.connect.records import ConnectRecord

    R = TypeVar("R", bound=ConnectRecord)
else:
    R = TypeVar("R")


class Transformation(ABC):
    """Changes records one at a time (KIP-66). A plugin is a class."""

    version: ClassVar[str] = "4.3.0"
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def configure(self, config: Config) -> None:  # noqa: B027 - optional
        """Read the settings, which have no prefix here. Called once. Raises SettingError."""

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """Return the changed record, the same or another one; None drops it. Raises DataError."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release what `configure` opened."""


class Predicate(ABC):
    """Decides whether a transformation is applied (KIP-585). A plugin is a class."""

    version: ClassVar[str] = "4.3.0"
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def configure(self, config: Config) -> None:  # noqa: B027 - optional
        """Read the settings, which have no prefix here. Called once. Raises SettingError."""

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Whether the record satisfies the predicate. Raises DataError."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release what `configure` opened."""
