"""sarama, a client in Go: administration, codecs, a rebalance and transactions (tests/peers/sarama)."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.conftest import RunningBroker
from tests.peers.cache import SARAMA, in_ci, missing_for_go

from .support import unique


@pytest.fixture(autouse=True)
def _present() -> None:
    missing = missing_for_go(SARAMA)
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)


@pytest.mark.both
@pytest.mark.parametrize("story", ["admin", "codecs", "rebalance", "transaction"])
def test_story(broker: RunningBroker, story: str) -> None:
    names = {"topic": unique("sarama"), "group": unique("sarama")}
    given = json.dumps({"bootstrap": broker.bootstrap, "story": story, **names})
    command = [SARAMA / "sarama"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout == "done\n", done.stderr
