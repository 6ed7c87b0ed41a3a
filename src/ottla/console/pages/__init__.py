"""The pages: one module for each subject, and the table of their routes."""

from __future__ import annotations

from typing import Final

from ottla.console.calls import Handler
from ottla.console.pages import (
    access,
    access_changes,
    check,
    connector_changes,
    connectors,
    dead_letters,
    group_reset,
    groups,
    messages,
    node_settings,
    nodes,
    overview,
    schemas,
    topic_changes,
    topics,
    transactions,
    why,
)

_GET: Final = ("GET",)
_BOTH: Final = ("GET", "POST")

ROUTES: Final[tuple[tuple[str, Handler, tuple[str, ...]], ...]] = (
    ("/", overview.overview, _GET),
    ("/why", why.cluster, _GET),
    ("/check", check.check, _GET),
    ("/topics", topics.listing, _GET),
    ("/topics/new", topic_changes.create, _BOTH),
    ("/topics/{topic}", topics.topic, _GET),
    ("/topics/{topic}/settings", topics.settings, _GET),
    ("/topics/{topic}/groups", topics.groups, _GET),
    ("/topics/{topic}/alter", topic_changes.alter, _BOTH),
    ("/topics/{topic}/delete", topic_changes.delete, _BOTH),
    ("/topics/{topic}/messages", messages.listing, _GET),
    ("/topics/{topic}/messages/{partition}/{offset}", messages.record, _GET),
    ("/topics/{topic}/produce", messages.produce, _BOTH),
    ("/groups", groups.listing, _GET),
    ("/group", groups.group, _GET),
    ("/group/why", why.group, _GET),
    ("/group/reset", group_reset.reset, _BOTH),
    ("/group/delete", groups.delete, _BOTH),
    ("/dead-letters", dead_letters.listing, _GET),
    ("/dead-letters/{topic}", dead_letters.letters, _GET),
    ("/dead-letters/{topic}/redrive", dead_letters.redrive, _BOTH),
    ("/transactions", transactions.listing, _GET),
    ("/transactions/hanging", transactions.hanging_page, _GET),
    ("/transactions/abort", transactions.abort, _BOTH),
    ("/access", access.acls, _GET),
    ("/access/add", access_changes.add_rules, _BOTH),
    ("/access/remove", access_changes.remove_rule, _BOTH),
    ("/access/users", access.users, _GET),
    ("/access/users/set", access_changes.set_user, _BOTH),
    ("/access/users/remove", access_changes.remove_user, _BOTH),
    ("/access/quotas", access.quotas, _GET),
    ("/access/quotas/set", access_changes.set_quota, _BOTH),
    ("/nodes", nodes.nodes, _GET),
    ("/nodes/quorum", nodes.quorum, _GET),
    ("/nodes/moves", nodes.moves, _GET),
    ("/nodes/moves/cancel", nodes.cancel, _BOTH),
    ("/nodes/{node}/settings", node_settings.settings, _GET),
    ("/nodes/{node}/settings/change", node_settings.change, _BOTH),
    ("/schemas", schemas.listing, _GET),
    ("/schema", schemas.subject, _GET),
    ("/connectors", connectors.listing, _GET),
    ("/connectors/new", connector_changes.create, _BOTH),
    ("/connector", connectors.connector, _BOTH),
    ("/connector/delete", connector_changes.delete, _BOTH),
)
