"""Helpers that the tests of the transaction coordinator share."""

from __future__ import annotations

from ottla.coordinators.transaction.records import record_of
from ottla.coordinators.transaction.states import State
from tests.simulation.world.transactions import TRANSACTIONAL_ID, TransactionDriver


def state_of(driver: TransactionDriver, transactional_id: str = TRANSACTIONAL_ID) -> State:
    return driver.shard.transactions[transactional_id].state


def set_epoch(driver: TransactionDriver, epoch: int) -> None:
    """Continue with a log in which the producer has this epoch."""
    metadata = driver.shard.transactions[TRANSACTIONAL_ID]._replace(producer_epoch=epoch)
    driver.log.append(record_of(TRANSACTIONAL_ID, metadata, driver.level))
    driver.restart()
