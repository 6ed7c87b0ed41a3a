"""Signatures of internal requests, and the settings of a worker's cluster."""

from __future__ import annotations

import pytest

from ottla.common.failure import Failure
from ottla.connect.cluster import signature
from ottla.connect.cluster.settings import ClusterSettings
from ottla.connect.cluster.values import SessionKey
from ottla.connect.errors import SignatureError

KEY = SessionKey(bytes(range(32)), "HmacSHA256", 1)
BODY = b'[{"a":"b"}]'
# javax.crypto.Mac of OpenJDK 17, with the same key and body.
JAVA = "Eroe1tB3QaSe5EJ0n/U/3E2UQZRh4D5G73yb9AU1xkM="


def lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@pytest.mark.parametrize("algorithm", ["HmacSHA1", "HmacSHA256", "HmacSHA384", "HmacSHA512"])
def test_signed_requests_are_accepted(algorithm: str) -> None:
    headers = lower(signature.sign(BODY, KEY, algorithm))
    signature.check(BODY, headers, KEY, [algorithm])


@pytest.mark.parametrize(
    ("body", "key", "change", "status"),
    [
        (BODY + b" ", KEY, {}, 403),
        (BODY, KEY._replace(key=b"x" * 32), {}, 403),
        (BODY, None, {}, 503),
        (BODY, KEY, {"x-connect-authorization": "%%"}, 400),
        (BODY, KEY, {"x-connect-request-signature-algorithm": "HmacMD5"}, 400),
        (BODY, KEY, {"x-connect-request-signature-algorithm": "HmacSHA1"}, 400),
    ],
)
def test_other_requests_are_refused(body: bytes, key: SessionKey | None, change: dict[str, str], status: int) -> None:
    headers = lower(signature.sign(BODY, KEY)) | change
    with pytest.raises(SignatureError) as caught:
        signature.check(body, headers, key, ["HmacSHA256"])
    assert caught.value.status == status


def test_requests_without_a_signature_are_refused() -> None:
    with pytest.raises(SignatureError, match="missing required signature"):
        signature.check(BODY, {}, KEY, ["HmacSHA256"])


SETTINGS = {
    "bootstrap.servers": "b:9092",
    "group.id": "g",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "status",
    "status.storage.partitions": "2",
    "config.storage.min.insync.replicas": "2",
    "security.protocol": "PLAINTEXT",
}


def test_settings_of_a_worker_are_read() -> None:
    read = ClusterSettings.read({**SETTINGS, "exactly.once.source.support": "enabled"})
    assert read.clients == {"bootstrap.servers": "b:9092", "security.protocol": "PLAINTEXT"}
    assert read.store.transactional_id == "connect-cluster-g"
    assert (read.store.reads_committed, read.exactly_once) == (True, True)
    assert read.store.configs.config == {"min.insync.replicas": "2"}
    assert (read.store.configs.partitions, read.store.statuses.partitions) == (1, 2)
    assert read.group.protocols == ("sessioned", "compatible")


def test_preparing_writes_in_transactions_and_reads_as_before() -> None:
    read = ClusterSettings.read({**SETTINGS, "exactly.once.source.support": "preparing"})
    assert read.store.transactional_id == "connect-cluster-g"
    assert (read.store.reads_committed, read.exactly_once) == (False, False)
    assert ClusterSettings.read(SETTINGS).store.transactional_id is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group.id": ""}, "group.id"),
        ({"config.storage.topic": " "}, "config.storage.topic is missing"),
        ({"status.storage.partitions": "0"}, "status.storage.partitions"),
        ({"config.storage.replication.factor": "-2"}, "config.storage.replication.factor"),
        ({"connect.protocol": "eager"}, "connect.protocol"),
        ({"inter.worker.signature.algorithm": "HmacMD5"}, "HmacMD5"),
        ({"inter.worker.signature.algorithm": "HmacSHA1"}, "verification"),
        ({"heartbeat.interval.ms": "10000"}, "heartbeat.interval.ms"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_a_sentence(change: dict[str, str], message: str) -> None:
    with pytest.raises(Failure, match=message):
        ClusterSettings.read({**SETTINGS, **change})


def test_a_signature_is_the_same_in_java() -> None:
    assert signature.sign(BODY, KEY)[signature.SIGNATURE] == JAVA
