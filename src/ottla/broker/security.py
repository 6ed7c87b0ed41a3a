"""The protections of one node: one field for each capability, None where it is not configured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.broker.quotas import Quotas

if TYPE_CHECKING:
    from ottla.broker.acl_view import AclView
    from ottla.broker.certificates import Certificates
    from ottla.broker.contracts.contracts import Contracts
    from ottla.broker.delegation_tokens import DelegationTokens
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.config import BrokerConfig
    from ottla.metadata.image import MetadataImage
    from ottla.security.authorizer import Authorizer


@dataclass(slots=True)
class Security:
    """The capabilities of one node."""

    authorizer: Authorizer | None = None
    """Decides about each request; None allows everything."""
    acl_view: AclView | None = None
    """The published access control lists, if there is an authorizer."""
    tokens: DelegationTokens | None = None
    """Delegation tokens; None without `delegation.token.secret.key`."""
    on_close: list[Callable[[], None]] = field(default_factory=list)
    """Called when the node stops."""
    certificates: Certificates | None = None
    """The TLS of the listeners, if one uses it."""
    quotas: Quotas = field(default_factory=Quotas)
    """Limits of users, client ids and IP addresses."""
    contracts: Contracts | None = None
    """The schemas of topics; created at the start if a registry is configured, or else when a topic needs it."""

    def publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Notify the parts of a new image."""
        if old is None or old.client_quotas is not new.client_quotas:
            self.quotas.publish(new)


def create_authorization(config: BrokerConfig, metadata: MetadataShell) -> tuple[Authorizer | None, AclView | None]:
    """Create the authorizer that the settings ask for, and the rules that it follows. Raises INVALID_CONFIG."""
    if config.authorizer is None:
        return None, None
    # Without an authorizer, a start need not load this code.
    from ottla.broker.acl_view import AclView  # noqa: PLC0415
    from ottla.broker.authorizers import create_authorizer  # noqa: PLC0415

    authorizer = create_authorizer(config.authorizer, config.static)
    view = AclView(authorizer)
    view.follow(metadata)
    return authorizer, view
