"""Producer ids of a node: whoever waits gets one or an error, whatever becomes of the block that was asked for."""

from __future__ import annotations

import pytest

from ottla.broker.producer_ids import ProducerIds
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse

Block = AllocateProducerIdsResponse


class Controller:
    """Answers when the test says so; `mistake` is raised at once."""

    def __init__(self) -> None:
        self.asked: list[Completion[Block]] = []
        self.mistake: Exception | None = None

    def allocate(self) -> Completion[Block]:
        if self.mistake is not None:
            raise self.mistake
        self.asked.append(Completion())
        return self.asked[-1]

    def give(self, start: int, size: int) -> None:
        self.asked.pop(0).complete(Block(error_code=0, producer_id_start=start, producer_id_len=size))


def test_a_block_that_is_too_small_is_followed_by_another() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    waiting = [ids.next_id() for _ in range(5)]
    assert len(controller.asked) == 1, "one block at a time"
    controller.give(0, 3)
    assert [each.done for each in waiting] == [True] * 3 + [False] * 2
    controller.give(10, 3)
    assert [each.result() for each in (*waiting, ids.next_id())] == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.NOT_CONTROLLER), ImportError("half a module")])
def test_failed_allocation_fails_waiting_requests_and_the_next_request_retries(error: Exception) -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    waiting = [ids.next_id() for _ in range(2)]
    controller.asked.pop().fail(error)
    for each in waiting:
        with pytest.raises(type(error)):
            each.result()
    later = ids.next_id()
    controller.give(0, 3)
    assert later.result() == 0


def test_next_request_retries_an_allocation_that_could_not_be_sent() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    controller.mistake = ImportError("half a module")
    with pytest.raises(ImportError):
        ids.next_id()
    controller.mistake = None
    later = ids.next_id()
    controller.give(0, 3)
    assert later.done


def test_raising_callback_does_not_prevent_other_ids() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)

    def mistake(_: object) -> None:
        raise ZeroDivisionError

    ids.next_id().on_done(mistake)
    waiting = ids.next_id()
    with pytest.raises(ZeroDivisionError):
        controller.give(0, 3)
    assert ids.next_id().done
    assert waiting.done
