"""Changes of the cluster-wide settings with eligible leader replicas (KIP-966), on Ottla and on stock Kafka."""

from __future__ import annotations

import asyncio

import pytest

from ottla.common.errors import ErrorCode
from ottla.metadata.image import BROKER
from ottla.network.client import ClientConnection
from ottla.protocol.messages import alter_configs as legacy
from ottla.protocol.messages import incremental_alter_configs as incremental
from tests.conftest import RunningBroker

pytestmark = [pytest.mark.both]

DELETE = 1
TIMEOUT_S = 10.0
REFUSED = ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."


async def validate(bootstrap: str) -> dict[str, tuple[int, str | None]]:
    host, port = bootstrap.split(":")
    connection = await ClientConnection.connect(host, int(port), client_id="test", timeout_s=TIMEOUT_S)

    async def replace(**settings: str) -> tuple[int, str | None]:
        configs = [legacy.AlterableConfig(name.replace("_", "."), value) for name, value in settings.items()]
        resource = legacy.AlterConfigsResource(BROKER, "", configs)
        request = legacy.AlterConfigsRequest(resources=[resource], validate_only=True)
        (row,) = (await connection.send(request, timeout_s=TIMEOUT_S)).responses
        return row.error_code, row.error_message

    async def delete(name: str) -> tuple[int, str | None]:
        resource = incremental.AlterConfigsResource(BROKER, "", [incremental.AlterableConfig(name, DELETE, None)])
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        (row,) = (await connection.send(request, timeout_s=TIMEOUT_S)).responses
        return row.error_code, row.error_message

    answers = {
        "replace without it": await replace(log_cleaner_backoff_ms="20001"),
        "replace with it": await replace(log_cleaner_backoff_ms="20001", min_insync_replicas="1"),
        "replace by nothing": await replace(),
        "delete it": await delete("min.insync.replicas"),
        "delete another": await delete("log.cleaner.backoff.ms"),
    }
    connection.close()
    await connection.wait_lost(TIMEOUT_S)
    return answers


def test_replaced_settings_of_the_cluster_must_name_the_fewest_in_sync_replicas(broker: RunningBroker) -> None:
    """AlterConfigs deletes the settings that it does not name, and this one cannot be deleted."""
    assert asyncio.run(validate(broker.bootstrap)) == {
        "replace without it": REFUSED,
        "replace with it": (0, None),
        "replace by nothing": REFUSED,
        "delete it": REFUSED,
        "delete another": (0, None),
    }
