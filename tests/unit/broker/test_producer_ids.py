"""Producer ids of a node: every waiting request gets an id or an error, even if the allocation of a block fails."""

from __future__ import annotations

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordination.transactions.producer_ids import ProducerIds
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse

Block = AllocateProducerIdsResponse


class Controller:
    """Allocates a block when the test calls `allocated`; raises `error` at once if it is set."""

    def __init__(self) -> None:
        self.requests: list[Completion[Block]] = []
        self.error: Exception | None = None

    def allocate(self) -> Completion[Block]:
        if self.error is not None:
            raise self.error
        self.requests.append(Completion())
        return self.requests[-1]

    def allocated(self, start: int, size: int) -> None:
        self.requests.pop(0).complete(Block(error_code=0, producer_id_start=start, producer_id_len=size))


def test_requests_beyond_a_block_wait_for_the_next_block() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    waiting = [ids.next_id() for _ in range(5)]
    assert len(controller.requests) == 1, "one block at a time"
    controller.allocated(0, 3)
    assert [each.done for each in waiting] == [True] * 3 + [False] * 2
    controller.allocated(10, 3)
    assert [each.result() for each in (*waiting, ids.next_id())] == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.NOT_CONTROLLER), ImportError("half a module")])
def test_failed_allocation_fails_waiting_requests_and_the_next_request_retries(error: Exception) -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    waiting = [ids.next_id() for _ in range(2)]
    controller.requests.pop().fail(error)
    for each in waiting:
        with pytest.raises(type(error)):
            each.result()
    later = ids.next_id()
    controller.allocated(0, 3)
    assert later.result() == 0


def test_next_request_retries_an_allocation_that_could_not_be_sent() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    controller.error = ImportError("half a module")
    with pytest.raises(ImportError):
        ids.next_id()
    controller.error = None
    later = ids.next_id()
    controller.allocated(0, 3)
    assert later.done


def test_raising_callback_does_not_prevent_other_ids() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)

    def fail(_: object) -> None:
        raise ZeroDivisionError

    ids.next_id().on_done(fail)
    waiting = ids.next_id()
    with pytest.raises(ZeroDivisionError):
        controller.allocated(0, 3)
    assert ids.next_id().done
    assert waiting.done
