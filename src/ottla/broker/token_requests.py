"""The check that all requests about delegation tokens have in common. KIP-48."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.envelope import Client
from ottla.network.connection import ANONYMOUS

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasSettings


def may_manage_tokens(broker: HasSettings, context: RequestContext) -> bool:
    """Whether the connection may send requests about tokens.

    The client must have authenticated, and not by a token, since otherwise a token could outlive its own lifetime. The
    controller trusts the broker that forwards a request to have checked the listener.
    """
    if context.is_by_token:
        return False
    if isinstance(context.connection, Client):
        return True
    config = broker.settings.static
    listeners = (*config.listeners, *config.controller_listeners)
    protocol = next(each.protocol for each in listeners if each.name == context.listener)
    return protocol.uses_sasl or (protocol.uses_tls and context.principal != ANONYMOUS)
