"""kafkajs, which speaks older versions than the Java clients: six stories of kafkajs/stories.js."""

from __future__ import annotations

import pytest

from tests.conftest import RunningBroker
from tests.peers.cache import in_ci, missing_for_node
from tests.peers.node import node

from .conftest import HERE

pytestmark = [pytest.mark.node, pytest.mark.both]


@pytest.mark.parametrize("story", ["codecs", "idempotent", "transactions", "rebalance", "admin", "errors"])
def test_kafkajs_story(broker: RunningBroker, name: str, story: str) -> None:
    missing = missing_for_node()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    done = node(HERE / "kafkajs" / "stories.js", broker.bootstrap, story, f"{name}-{story}", timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
