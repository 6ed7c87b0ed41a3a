"""Envelope (58), version 0: a broker forwards a request of its client to the active controller. KIP-590.

Served on the controller's listeners.
"""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING

from ottla.broker.dispatch import handle_forwarded
from ottla.broker.envelope import client_of
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol import frames
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.wire import DecodeError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(broker: Broker, context: RequestContext, request: EnvelopeRequest) -> Slices[EnvelopeResponse]:
    """Handle the enclosed request as if its client had sent it to this controller: its handler may use any part.

    NOT_CONTROLLER is an error of the envelope, so that the broker sends it to another controller.
    """
    if not _leads(broker):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        header, answer = handle_forwarded(broker, client_of(request, context.listener), request.request_data)
        if isinstance(answer, GeneratorType):
            answer = yield from answer
        if isinstance(answer, Completion):
            answer = yield from result_of(answer)
    except DecodeError:
        # As in Kafka, this distinguishes the enclosed request from the envelope.
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    if not _leads(broker) and _lost_leadership(answer):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return EnvelopeResponse(response_data=b"".join(frames.encode_response(header, answer))[4:])


def _leads(broker: HasMetadata) -> bool:
    return broker.metadata.is_active_controller


def _lost_leadership(answer: object) -> bool:
    """Whether some part of the response has the error NOT_CONTROLLER."""
    if isinstance(answer, list):
        return any(map(_lost_leadership, answer))
    names = getattr(type(answer), "__annotations__", {})
    return getattr(answer, "error_code", 0) == ErrorCode.NOT_CONTROLLER or any(
        _lost_leadership(value) for name in names if isinstance(value := getattr(answer, name, None), list)
    )
