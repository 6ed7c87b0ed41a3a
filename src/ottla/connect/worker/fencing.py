"""Fences the transactional producers of older tasks of a source (KIP-618)."""

from __future__ import annotations

import logging
import re

from ottla.clients.admin.blocking import Admin
from ottla.clients.errors import UnsupportedByBroker
from ottla.connect.worker.clients import Clients
from ottla.connect.worker.source_output import transactional_id

logger = logging.getLogger("ottla.connect.worker")


def fence_tasks(clients: Clients, group_id: str, connector: str, tasks: int | None) -> None:
    """Fence the producers of that many tasks; None: of all tasks that the brokers know. Raises ClientError.

    The brokers list the ids that the user may describe, as long as `transactional.id.expiration.ms` has not passed.
    """
    with clients.admin() as admin:
        if tasks is None:
            ids = _known(admin, group_id, connector)
        else:
            ids = [transactional_id(group_id, connector, each) for each in range(tasks)]
        if ids:
            logger.info("Fencing the producers of %d older tasks of %s", len(ids), connector)
            admin.fence_producers(ids)


def _known(admin: Admin, group_id: str, connector: str) -> list[str]:
    pattern = re.compile(f"{re.escape(transactional_id(group_id, connector, 0)[:-1])}[0-9]+")
    try:
        listed = admin.list_transactions()
    except UnsupportedByBroker:
        logger.warning("The brokers cannot list transactions (Kafka 3.0, KIP-664): older tasks of %s that this worker"
                       " does not have any more are not fenced", connector)  # fmt: skip
        return []
    return [each.transactional_id for each in listed if pattern.fullmatch(each.transactional_id)]
