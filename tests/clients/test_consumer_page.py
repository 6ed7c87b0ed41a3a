"""The examples of docs/clients-consumer.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.conftest import RunningBroker

from .support import WAIT_S

PAGE = Path(__file__).parents[2] / "docs" / "clients-consumer.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.both
def test_examples_of_the_consumer_page_run(broker: RunningBroker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for i in range(10):
        producer.produce("orders", b"%d" % i, partition=0)
    assert producer.flush(WAIT_S) == 0
    names: dict[str, Any] = {"bootstrap": broker.bootstrap}
    assert len(EXAMPLES) == 10
    for example in EXAMPLES:
        exec(compile(example, str(PAGE), "exec"), names)
