"""Changes of access control lists: decided by the active controller, and in force on this node before the response.

As in Kafka, the controller checks the client's rights, and a broker forwards the request. The response then waits until
this node has published the change, which Kafka does not: a request that a client sends to this node after the response
is decided by the new rules.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, TypeVar, cast

from ottla.broker.authorization import allowed_on_cluster
from ottla.broker.authorization_table import MESSAGES
from ottla.broker.forwarding import decides_here
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.security.acl import Acl, Operation

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import AclPorts
    from ottla.cluster.metadata.operations import Operation as ControllerOperation
    from ottla.protocol.message import Message

R = TypeVar("R")

# How long a response waits for this node's metadata. Clients of Kafka wait 30 seconds or more.
PUBLISHED_WITHIN_S = 10.0
_FORBIDDEN = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
Condition = Callable[[Container[Acl]], bool]


def change(
    broker: AclPorts,
    context: RequestContext,
    request: Message,
    operation: ControllerOperation[R],
    in_force: Callable[[R], Condition],
) -> Slices[R]:
    """Change the rules here or at the active controller. Raises KafkaError for the request as a whole.

    `in_force(response)` tells whether rules are as the response says.
    """
    if decides_here(broker, context):
        if broker.security.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        if not allowed_on_cluster(broker, context, Operation.ALTER):
            raise KafkaError(_FORBIDDEN, MESSAGES[_FORBIDDEN])
        return (yield from result_of(broker.metadata.submit(operation)))
    response = cast("R", (yield from result_of(broker.controller.forwarding.send(context, request))))
    view = broker.security.acl_view
    if view is not None:
        published = view.when(in_force(response))
        if not published.done:
            text = (
                f"The change is committed, but node {broker.node_id} has not applied it within {PUBLISHED_WITHIN_S} s"
            )
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
            timer = broker.schedulers.call_later(PUBLISHED_WITHIN_S, lambda: _fail(published, late))
            try:
                yield from result_of(published)
            finally:
                timer.cancel()
    return response


def _fail(published: Completion[None], late: KafkaError) -> None:
    published.fail(late)
