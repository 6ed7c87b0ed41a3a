"""Predicates: HasHeaderKey, RecordIsTombstone, TopicNameMatches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, non_empty
from ottla.connect.records import ConnectRecord
from ottla.connect.transforms.api import Predicate
from ottla.connect.transforms.routing import java_pattern, valid_pattern


class HasHeaderKey(Predicate):
    """True for records with a header of a name."""

    config_def: ClassVar = ConfigDef(
        [Setting("name", SettingType.STRING, "The name of the header.", importance=Importance.MEDIUM,
                 validator=non_empty)]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        self._name: str = self.config_def.parse(config)["name"]

    def test(self, record: ConnectRecord) -> bool:
        return any(each.key == self._name for each in record.headers)


class RecordIsTombstone(Predicate):
    """True for records without a value."""

    config_def: ClassVar = ConfigDef()

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None


class TopicNameMatches(Predicate):
    """True for records whose whole topic matches a regular expression."""

    config_def: ClassVar = ConfigDef(
        [Setting("pattern", SettingType.STRING, "The regular expression.", importance=Importance.MEDIUM,
                 validator=valid_pattern)]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        self._pattern = java_pattern("pattern", self.config_def.parse(config)["pattern"])

    def test(self, record: ConnectRecord) -> bool:
        return self._pattern.fullmatch(record.topic) is not None
