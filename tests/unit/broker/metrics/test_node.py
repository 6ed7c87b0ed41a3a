"""The listener of the metrics: where it may be open, and what a bad setting says."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.metrics.node import NodeMetrics, create_meter
from ottla.common.errors import KafkaError
from ottla.config import BrokerConfig, ConfigError


def bound(**settings: str) -> str:
    """Bind the listener, and return its host."""
    names = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig({"node.id": "1", **names})

    async def bind() -> str:
        loop = asyncio.get_running_loop()
        metrics = NodeMetrics(config, loop, create_meter(config, loop))
        await metrics.close()
        return metrics.address[0]

    return asyncio.run(bind())


def test_loopback_needs_no_token() -> None:
    assert bound(ottla_metrics_listener="127.0.0.1:0") == "127.0.0.1"


def test_address_for_other_machines_needs_a_token_or_the_insecure_setting() -> None:
    with pytest.raises(KafkaError, match=r"set ottla\.metrics\.token"):
        bound(ottla_metrics_listener="0.0.0.0:0")
    assert bound(ottla_metrics_listener="0.0.0.0:0", ottla_metrics_token="t") == "0.0.0.0"
    assert bound(ottla_metrics_listener="0.0.0.0:0", ottla_insecure="true") == "0.0.0.0"
    with pytest.raises(KafkaError, match=r"ottla\.metrics\.ssl\.client\.auth needs HTTPS"):
        bound(ottla_metrics_listener="0.0.0.0:0", ottla_metrics_ssl_client_auth="required")


@pytest.mark.parametrize("text", ["9404", "host", "host:99999", "http://host:1"])
def test_listener_that_is_not_an_address_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ottla\.metrics\.listener"):
        BrokerConfig({"node.id": "1", "ottla.metrics.listener": text})
