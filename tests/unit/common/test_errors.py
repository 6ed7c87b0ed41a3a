"""The table of error codes against kio's table, which is generated from Kafka's."""

from __future__ import annotations

import errno

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.shortage import ShortageError, SyncError, is_shortage

KIO = {code.name.upper(): code for code in KioErrorCode}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.name in KIO], ids=lambda code: code.name)
def test_number_and_retriability_equal_kafkas(code: ErrorCode) -> None:
    assert code.value == KIO[code.name].value
    assert code.retriable == KIO[code.name].retriable


def test_every_code_of_kafka_is_known() -> None:
    assert KIO.keys() <= ErrorCode.__members__.keys()
    assert sorted(code.value for code in ErrorCode) == list(range(-1, len(ErrorCode) - 1))


def test_error_has_the_text_of_its_code_unless_it_has_a_message() -> None:
    assert str(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)) == "Not leader or follower"
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "partition t-0 has moved")
    assert str(error) == error.message == "partition t-0 has moved"
    assert error.retriable
    assert not KafkaError(ErrorCode.INVALID_CONFIG).retriable


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, "of the process"), True),
        (OSError(errno.ENFILE, "of the machine"), True),
        (OSError(errno.ENOMEM, "memory"), True),
        (OSError(errno.ENOSPC, "a full disk"), False),
        (OSError(errno.EIO, "a broken disk"), False),
        # The system may have dropped the data, whatever the reason.
        (SyncError(errno.ENOMEM, "fsync"), False),
    ],
)
def test_only_descriptors_and_memory_are_shortages_and_never_an_fsync(error: OSError, expected: bool) -> None:
    assert is_shortage(error) is expected


def test_clients_retry_after_a_shortage() -> None:
    assert ShortageError("no descriptors").retriable
