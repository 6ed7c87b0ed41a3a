"""Creates the authorizer of a node from its settings: Kafka's StandardAuthorizer, or an object in Python.

`authorizer.class.name` is `module:attribute` or an entry point of the group `ottla.security`. It is called with the
node's settings and returns an object with

    authorize(principal, host, operation, resource_type, name) -> bool
    authorize_by_resource_type(principal, host, operation, resource_type) -> bool     # optional; without it: denied

Principals are `Type:name`. Operations and resource types are members of `ottla.security.acl`. The methods run on the
event loop and must not block. A method that raises denies the request, with a line in the log. An object that is a
`StandardAuthorizer` itself also follows the rules of the metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.config.authorization import STANDARD
from ottla.security.acl import Operation, ResourceType
from ottla.security.authorizer import Authorizer, Decision, Rules, StandardAuthorizer

if TYPE_CHECKING:
    from ottla.common.ids import Uuid
    from ottla.config.authorization import AuthorizerSettings
    from ottla.security.grants import Granted

logger = logging.getLogger(__name__)


def create_authorizer(settings: AuthorizerSettings, static: Mapping[str, str]) -> Authorizer:
    """Create the authorizer; raises INVALID_CONFIG if it cannot be loaded."""
    if settings.name == STANDARD:
        logger.info(
            "[StandardAuthorizer] set super.users=%s, default result=%s",
            ",".join(sorted(settings.super_users)),
            "ALLOWED" if settings.allow_without_acl else "DENIED",
        )
        return StandardAuthorizer(Rules(settings.super_users, settings.allow_without_acl))
    from ottla.network import plugins  # noqa: PLC0415 - it takes 20 ms, and few nodes need it

    try:
        created = plugins.load("authorizer.class.name", settings.name)(dict(static))
    except KafkaError:
        raise
    except Exception as error:  # foreign code may raise anything
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"authorizer.class.name={settings.name} cannot be loaded: {error!r}"
        ) from error
    if isinstance(created, StandardAuthorizer):
        return created
    if not callable(getattr(created, "authorize", None)):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"authorizer.class.name={settings.name} has no method named authorize"
        )
    return ForeignAuthorizer(created, settings)


class ForeignAuthorizer:
    """An object in Python as an authorizer. Super users are allowed without it."""

    def __init__(self, wrapped: Any, settings: AuthorizerSettings) -> None:
        self._wrapped = wrapped
        self._super_users = settings.super_users
        self._allowed = Decision(is_allowed=True, reason=settings.name)
        self._denied = Decision(is_allowed=False, reason=settings.name)

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether the principal may perform the operation on the resource."""
        return self.decide(principal, host, operation, resource_type, name).is_allowed

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        """Let the object decide; what raises is denied."""
        if principal in self._super_users:
            return self._allowed
        ask = self._wrapped.authorize
        is_allowed = _answer(ask, principal, host, Operation(operation), ResourceType(resource_type), name)
        return self._allowed if is_allowed else self._denied

    def remember(self, granted: Granted, topic: str | Uuid) -> None:
        """Remember nothing: the object may decide differently each time."""

    def authorize_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Let the object decide about some resource of the type."""
        if principal in self._super_users:
            return True
        ask = getattr(self._wrapped, "authorize_by_resource_type", None)
        return ask is not None and _answer(ask, principal, host, Operation(operation), ResourceType(resource_type))


def _answer(ask: Callable[..., object], *question: object) -> bool:
    try:
        return ask(*question) is True
    except Exception:  # foreign code: its error must not open the door, nor close the connection
        logger.exception("The authorizer raised; the request is denied")
        return False
