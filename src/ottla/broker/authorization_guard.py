"""Refuses requests as a whole by `authorization_table`, before their handlers see them.

handle = guarded(key, module.handle)        # the dispatcher, for each API with such a need
refusal = refused(broker, context, request) # handlers that report other errors first
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.authorization import FILTERED, allowed
from ottla.broker.authorization_table import CHECKED_BY_HANDLER, Need, whole_needs
from ottla.broker.refusals import refusal

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasSecurity
    from ottla.protocol.message import Message

Handle = Callable[..., Any]
_CHECKED_BY_HANDLER = {key: whole_needs(key) for key in CHECKED_BY_HANDLER}


def guarded(key: int, handle: Handle, *, is_controller: bool) -> Handle:
    """Return a handler that refuses requests without a right; `handle` itself if the API has no such need."""
    needs = whole_needs(key, is_controller=is_controller)
    if not needs or key in CHECKED_BY_HANDLER:
        return handle

    def handle_if_allowed(broker: HasSecurity, context: RequestContext, request: Message) -> Any:
        if broker.security.authorizer is not None:
            answer = _check(broker, context, request, needs)
            if answer is not None:
                return answer
        return handle(broker, context, request)

    return handle_if_allowed


def refused(broker: HasSecurity, context: RequestContext, request: Message) -> Any:
    """The response to a request whose client lacks a right; None if the handler may go on."""
    if broker.security.authorizer is None:
        return None
    return _check(broker, context, request, _CHECKED_BY_HANDLER[context.api_key])


def _check(broker: HasSecurity, context: RequestContext, request: Message, needs: tuple[Need, ...]) -> Any:
    for need in needs:
        if context.api_version >= need.since and not _is_met(broker, context, request, need):
            return refusal(request, context.api_version, need.error)
    return None


def _is_met(broker: HasSecurity, context: RequestContext, request: Message, need: Need) -> bool:
    assert need.names is not None, "other needs are checked by handlers"
    *others, last = need.any_of
    return all(
        any(allowed(broker, context, *right, name, FILTERED) for right in others)
        or allowed(broker, context, *last, name)
        for name in need.names(request)
    )
