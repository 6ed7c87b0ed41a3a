"""Batches that an idempotent producer resends after a crash are recognized, up to five in flight."""

from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records import BatchProducer
from tests.storage.helpers import START, append, batch, open_at, values

BATCHES = 9
IN_FLIGHT = 5


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("rolled_after", range(BATCHES))
def test_five_batches_are_known_wherever_the_log_rolled(tmp_path: Path, rolled_after: int, clean: bool) -> None:
    def sent(number: int) -> bytearray:
        return batch(b"%d" % number, producer=BatchProducer(1, 0, number))

    log = open_at(str(tmp_path))
    for number in range(BATCHES):
        append(log, sent(number))
        if number == rolled_after:
            log.roll(START)
    log.flush()
    if clean:
        log.close()
    else:
        log.abandon()
    log = open_at(str(tmp_path), recovery_point=BATCHES, clean=clean)
    for number in range(BATCHES - IN_FLIGHT, BATCHES):
        assert append(log, sent(number)).duplicate
        assert append(log, sent(number)).first_offset == number
    with pytest.raises(KafkaError) as refused:
        append(log, sent(BATCHES - IN_FLIGHT - 1))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, sent(BATCHES))
    assert values(log) == [b"%d" % number for number in range(BATCHES + 1)]
    log.abandon()
