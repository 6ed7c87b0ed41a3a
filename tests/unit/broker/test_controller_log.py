"""Log lines of the controller: topics, partitions and settings as they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cluster.controller_log import log_changes, log_results
from ottla.common.errors import ErrorCode
from ottla.common.ids import uuid_to_text
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, MetadataImage
from ottla.protocol.metadata_records import UserScramCredentialRecord

from .harness import open_harness


def test_first_image_logs_led_partitions_and_broker_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_harness(tmp_path) as harness:
        harness.create("a", 3, retention_ms="7")
        topics = harness.broker.metadata.image
    image = MetadataImage(
        topics_by_id=topics.topics_by_id,
        topics_by_name=topics.topics_by_name,
        configs={(TOPIC, "a"): {"retention.ms": "7"}, (BROKER, ""): {"log.cleaner.backoff.ms": "3"}},
    )
    caplog.set_level("INFO")
    caplog.clear()
    log_changes(1, None, image)
    assert caplog.messages == [
        "[Broker id=1] Transitioning 3 partition(s) to local leaders.",
        "[DynamicConfigPublisher broker id=1] Updating cluster with new configuration : log.cleaner.backoff.ms -> 3",
    ]


def test_changes_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_harness(tmp_path) as harness:
        empty = harness.broker.metadata.image
        topic_id = harness.create("a", 3)
        made = harness.broker.metadata.image
    caplog.set_level("INFO")
    caplog.clear()
    log_changes(1, empty, made)
    log_changes(1, made, made)
    log_changes(1, made, empty)
    assert caplog.messages == [
        f"[QuorumController id=1] Replayed TopicRecord for topic a with topic ID {uuid_to_text(topic_id)}.",
        "[Broker id=1] Transitioning 3 partition(s) to local leaders.",
        f"[QuorumController id=1] Replayed RemoveTopicRecord for topic a with ID {uuid_to_text(topic_id)}.",
        "[Broker id=1] Deleting 3 partition(s).",
    ]


@pytest.mark.parametrize(
    ("kind", "what", "settings"),
    [
        (CLIENT_METRICS, "client metrics", {"interval.ms": "100", "match": "client_id=a"}),
        (GROUP, "group", {"consumer.session.timeout.ms": "50000"}),
    ],
)
def test_settings_of_groups_and_client_metrics_are_shown(
    caplog: pytest.LogCaptureFixture, kind: int, what: str, settings: dict[str, str]
) -> None:
    caplog.set_level("INFO")
    log_changes(1, MetadataImage(), MetadataImage(configs={(kind, "a"): settings}))
    shown = ", ".join(f"{name} -> {value}" for name, value in settings.items())
    assert caplog.messages == [
        f"[DynamicConfigPublisher broker id=1] Updating {what} a with new configuration : {shown}"
    ]


def test_passwords_and_unknown_settings_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    settings = {"ssl.key.password": "secret", "no.such.setting": "secret", "log.cleaner.backoff.ms": "3"}
    log_changes(1, MetadataImage(), MetadataImage(configs={(BROKER, "1"): settings}))
    log_changes(1, MetadataImage(configs={(BROKER, "1"): settings}), MetadataImage())
    assert caplog.messages == [
        (
            "[DynamicConfigPublisher broker id=1] Updating node 1 with new configuration : "
            "ssl.key.password -> [hidden], no.such.setting -> [hidden], log.cleaner.backoff.ms -> 3"
        ),
        "[DynamicConfigPublisher broker id=1] Updating node 1 with new configuration : ",
    ]


def test_results_name_each_topic(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log_results(1, "CreateTopics", [])
    log_results(1, "CreateTopics", [("a", 0, None), ("b", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'b' already exists.")])
    assert caplog.messages == [
        (
            "[QuorumController id=1] CreateTopics result(s): a: SUCCESS, "
            "b: TOPIC_ALREADY_EXISTS (Topic 'b' already exists.)"
        )
    ]


def test_changed_credentials_are_logged_without_their_keys(caplog: pytest.LogCaptureFixture) -> None:
    def credential(name: str, mechanism: int, iterations: int = 4096) -> UserScramCredentialRecord:
        return UserScramCredentialRecord(name, mechanism, b"salt", b"stored key", b"server key", iterations)

    kept = credential("kept", 1)
    old = {("kept", 1): kept, ("alice", 1): credential("alice", 1), ("bob", 2): credential("bob", 2)}
    new = {("kept", 1): kept, ("alice", 1): credential("alice", 1, 8192), ("carol", 2): credential("carol", 2)}
    caplog.set_level("INFO")
    log_changes(1, MetadataImage(scram_credentials=old), MetadataImage(scram_credentials=new))
    start = "[QuorumController id=1] Replayed"
    assert caplog.messages == [
        f"{start} RemoveUserScramCredentialRecord for bob with mechanism SCRAM_SHA_512.",
        f"{start} UserScramCredentialRecord modifying existing entry for alice with mechanism SCRAM_SHA_256.",
        f"{start} UserScramCredentialRecord creating new entry for carol with mechanism SCRAM_SHA_512.",
    ]
