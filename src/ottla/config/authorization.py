"""The settings of the authorizer: which one, the super users, and the default without rules.

`super.users` and `allow.everyone.if.no.acl.found` belong to Kafka's StandardAuthorizer, not to the broker. Therefore
they have no row in the table, and DescribeConfigs does not return them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS, ALLOW_WITHOUT_ACL = "super.users", "allow.everyone.if.no.acl.found"
OF_THE_AUTHORIZER = frozenset({SUPER_USERS, ALLOW_WITHOUT_ACL})


class AuthorizerSettings(NamedTuple):
    """The authorizer of a node."""

    name: str
    """STANDARD, `module:attribute`, or an entry point of the group `ottla.security`."""
    super_users: frozenset[str]
    allow_without_acl: bool


def authorizer_settings(static: Mapping[str, str]) -> AuthorizerSettings | None:
    """The authorizer that a node is configured with, or None. Raises ValueError with a message of one line."""
    name = static.get("authorizer.class.name", "").strip()
    if not name:
        return None
    if name != STANDARD and "." in name and ":" not in name:
        raise ValueError(
            f"authorizer.class.name={name} is a Java class, which cannot run here: use {STANDARD}, module:attribute, or"
            " an entry point of the group ottla.security"
        )
    return AuthorizerSettings(
        name, _super_users(static.get(SUPER_USERS, "")), static.get(ALLOW_WITHOUT_ACL, "").strip().lower() == "true"
    )


def _super_users(text: str) -> frozenset[str]:
    users = frozenset(stripped for user in text.split(";") if (stripped := user.strip()))
    for user in users:
        kind, separator, name = user.partition(":")
        if not separator or not kind or not name:
            raise ValueError(
                f"{SUPER_USERS}: expected a string in format principalType:principalName but got {user}; separate"
                " principals by semicolons"
            )
    return users
