"""The protections of one node: one field for each capability, None where it is not configured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.delegation_tokens import DelegationTokens
    from ottla.security.authorizer import Authorizer


@dataclass(slots=True)
class Security:
    """The capabilities of one node."""

    authorizer: Authorizer | None = None
    """Decides about each request; None allows everything."""
    tokens: DelegationTokens | None = None
    """Delegation tokens; None without `delegation.token.secret.key`."""
