"""Releases and levels of features, and the records that a level allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import (
    LATEST_METADATA_VERSION,
    LOWEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    bootstrap_records,
    default_levels,
    metadata_version_of,
    record_version,
    served_level,
)
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, Endpoint
from ottla.metadata.snapshot import broker_record
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import decode_metadata_record, encode_metadata_record

LEVELS = st.integers(LOWEST_METADATA_VERSION, LATEST_METADATA_VERSION)


@pytest.mark.parametrize(
    ("release", "level"),
    [
        ("3.3", 7),
        ("3.3-IV3", 7),
        ("3.6", 14),
        ("3.7", 19),
        ("3.7-IV2", 17),
        ("4.0", 25),
        ("4.3", 30),
        ("4.3-IV0", 30),
        ("4", None),
        ("3.3-IV2", None),
        ("4.3-IV1", None),
        ("", None),
    ],
)
def test_release_is_the_last_metadata_version_of_its_name(release: str, level: int | None) -> None:
    assert metadata_version_of(release) == level


def test_every_supported_metadata_version_has_a_name_that_leads_back_to_it() -> None:
    assert sorted(METADATA_VERSION_NAMES) == list(range(LOWEST_METADATA_VERSION, LATEST_METADATA_VERSION + 1))
    assert {metadata_version_of(name): name for name in METADATA_VERSION_NAMES.values()} == METADATA_VERSION_NAMES


@pytest.mark.parametrize(
    ("level", "others"),
    [
        (LOWEST_METADATA_VERSION, {}),
        (21, {}),
        (22, {"group.version": 1}),
        (24, {"group.version": 1, "transaction.version": 2}),
        (26, {"group.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1}),
        (
            28,
            {
                "group.version": 1,
                "transaction.version": 2,
                "eligible.leader.replicas.version": 1,
                "share.version": 1,
            },
        ),
    ],
)
def test_new_cluster_of_an_older_release_has_only_the_features_of_that_release(
    level: int, others: dict[str, int]
) -> None:
    assert default_levels(level) == {METADATA_VERSION: level, **others}


@given(LEVELS)
def test_newer_release_never_lowers_a_feature(level: int) -> None:
    levels, newer = default_levels(level), default_levels(min(level + 1, LATEST_METADATA_VERSION))
    assert all(newer[name] >= levels[name] for name in levels)
    assert all(low <= newer[name] <= high for name, (low, high) in SUPPORTED_FEATURES.items() if name in newer)


@given(LEVELS)
def test_bootstrap_records_give_a_cluster_its_levels_with_the_metadata_version_first(level: int) -> None:
    levels = default_levels(level)
    records = bootstrap_records(levels)
    assert isinstance(records[0], m.FeatureLevelRecord)
    assert records[0].name == METADATA_VERSION
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        delta.replay(record)
    assert delta.metadata_version == level
    assert delta.apply(len(records), 1).features == levels


def test_bootstrap_record_of_level_zero_is_omitted() -> None:
    assert bootstrap_records({METADATA_VERSION: 30, "share.version": 0}) == [m.FeatureLevelRecord(METADATA_VERSION, 30)]


@pytest.mark.parametrize(
    ("name", "finalized", "served"),
    [
        ("streams.version", 2, 1),
        ("group.version", 2, 1),
        ("transaction.version", 1, 1),
        (METADATA_VERSION, 31, 30),
        ("a.future.feature", 3, 0),
    ],
)
def test_clients_receive_no_higher_level_than_is_supported(name: str, finalized: int, served: int) -> None:
    assert served_level(name, finalized) == served


VERSIONED: list[Message] = [
    m.PartitionRecord(),
    m.PartitionChangeRecord(),
    m.RegisterBrokerRecord(),
    m.BrokerRegistrationChangeRecord(),
]


@given(LEVELS, st.sampled_from(VERSIONED))
def test_versions_of_records_never_fall_with_the_metadata_version(level: int, record: Message) -> None:
    assert record_version(record, level) <= record_version(record, level + 1)


@pytest.mark.parametrize(
    ("level", "directories", "cordoned"), [(8, False, False), (16, False, False), (17, True, False), (30, True, True)]
)
def test_registration_has_the_directories_that_readers_of_its_level_know(
    level: int, directories: bool, cordoned: bool
) -> None:
    ids = (b"a" * 16, b"b" * 16)
    endpoints = (Endpoint("PLAINTEXT", "host", 9092, 0),)
    broker = BrokerImage(3, 7, b"i" * 16, endpoints, (("metadata.version", 7, 30),), "r", False, True, ids, ids[:1])
    record = broker_record(broker)
    again = decode_metadata_record(encode_metadata_record(record, record_version(record, level)))
    assert isinstance(again, m.RegisterBrokerRecord)
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(again)
    read = delta.apply(0, 1).brokers[3]
    assert read.directories == (ids if directories else ())
    assert read.cordoned_directories == (ids[:1] if cordoned else None)
    assert (read.endpoints, read.rack, read.fenced, read.in_controlled_shutdown) == (endpoints, "r", False, True)
