"""The rules of the published metadata on this node: the authorizer follows them, and requests wait for changes of them.

Every node has one if it has an authorizer. `publish` applies the difference of two images, so that a change of one rule
does not rebuild the index. The metadata log orders the changes, and a node publishes images in that order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.ids import uuid_to_text
from ottla.metadata.acls import acl_of
from ottla.security.acl import Acl
from ottla.security.authorizer import StandardAuthorizer

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.common.ids import Uuid
    from ottla.metadata.image import MetadataImage
    from ottla.protocol.metadata_records import AccessControlEntryRecord
    from ottla.security.authorizer import Authorizer

logger = logging.getLogger(__name__)

# At most this many rules of one change get their own line.
MOST_LINES = 100
Records = Mapping["Uuid", "AccessControlEntryRecord"]
Condition = Callable[[Container[Acl]], bool]


class AclView:
    """The rules in the order of their records; `authorizer` receives each change if it decides by rules."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._standard = authorizer if isinstance(authorizer, StandardAuthorizer) else None
        # Two records may have the same rule; it ends with the last of them.
        self._count: dict[Acl, int] = {}
        self._waiting: list[tuple[Condition, Completion[None]]] = []

    def follow(self, metadata: MetadataShell) -> None:
        """Publish the image of the node and each later one, before any other part of the node does."""

        def published(old: MetadataImage | None, new: MetadataImage) -> None:
            if old is None or old.acls is not new.acls:
                self.publish({} if old is None else old.acls, new.acls)
                if old is not None:
                    _log_changes(metadata.node_id, old.acls, new.acls)
            # As in Kafka, the rules are complete up to the first high watermark that this node learns of.
            if old is not None or metadata.is_active_controller:
                self.finish_loading()

        metadata.subscribe(published)

    def publish(self, old: Records, new: Records) -> None:
        """Apply the difference of two images; cached decisions are dropped before any later request."""
        added, removed = _beyond(old, new), _beyond(new, old)
        # Added rules come first: a rule that is replaced by an equal one is in force all the time.
        for record in added:
            self._add(acl_of(record))
        for record in removed:
            self._remove(acl_of(record))
        waiting, self._waiting = self._waiting, []
        for condition, completion in waiting:
            if completion.done:
                continue
            if condition(self._count):
                completion.complete(None)
            else:
                self._waiting.append((condition, completion))

    def finish_loading(self) -> None:
        """Decide by the rules from now on: the image contains everything that was committed at the start."""
        if self._standard is not None and not self._standard.is_loaded:
            self._standard.finish_loading()
            logger.info("[StandardAuthorizer] Completed initial ACL load process with %d rules.", len(self._count))

    def when(self, condition: Condition) -> Completion[None]:
        """Complete once the condition holds for the published rules. The caller limits the wait."""
        completion: Completion[None] = Completion()
        if condition(self._count):
            completion.complete(None)
        else:
            self._waiting.append((condition, completion))
        return completion

    def _add(self, acl: Acl) -> None:
        self._count[acl] = self._count.get(acl, 0) + 1
        if self._standard is not None:
            self._standard.add(acl)

    def _remove(self, acl: Acl) -> None:
        left = self._count.pop(acl, 0) - 1
        if left > 0:
            self._count[acl] = left
        elif self._standard is not None:
            self._standard.remove(acl)


def _beyond(known: Records, others: Records) -> list[AccessControlEntryRecord]:
    """The records of `others` that `known` does not have. After a snapshot, equal records are other objects."""
    return [record for acl_id, record in others.items() if (same := known.get(acl_id)) is not record and same != record]


def _log_changes(node_id: int, old: Records, new: Records) -> None:
    added, removed = _beyond(old, new), _beyond(new, old)
    start = f"[QuorumController id={node_id}] Replayed"
    for record in added[:MOST_LINES]:
        logger.info("%s AccessControlEntryRecord for %s, setting %s", start, uuid_to_text(record.id), acl_of(record))
    for record in removed[:MOST_LINES]:
        text = "%s RemoveAccessControlEntryRecord for %s, removing %s"
        logger.info(text, start, uuid_to_text(record.id), acl_of(record))
    for what, records in (("AccessControlEntryRecord", added), ("RemoveAccessControlEntryRecord", removed)):
        if len(records) > MOST_LINES:
            logger.info("%s %d more records of type %s.", start, len(records) - MOST_LINES, what)
