"""Controllers are killed and paused at random, also the active one: no acknowledged change of the metadata is lost.

`OTTLA_CHAOS_MINUTES` is the duration, `OTTLA_CHAOS_SEED` what happens. The time from a kill of the active controller to
the next accepted change is printed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

from ottla.clients import Admin
from ottla.clients.errors import ClientError, TopicAlreadyExists
from tests.cluster.processes import Cluster

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.08")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "7"))
PATIENCE_S = 40.0


class Chaos:
    """One broker, three controllers, and a client that creates topics."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = Random(seed)
        self.created: list[str] = []
        self.failovers_s: list[float] = []

    def create(self, admin: Admin, patience_s: float = PATIENCE_S) -> None:
        """Create a topic. A controller that died may have created it before the retry."""
        name = f"topic-{len(self.created)}"
        deadline = time.monotonic() + patience_s
        while True:
            try:
                admin.create_topic(name, partitions=self.random.randint(1, 5))
            except TopicAlreadyExists:
                break
            except ClientError:
                assert time.monotonic() < deadline, f"{name} is not created within {patience_s} s"
                time.sleep(0.01)
            else:
                break
        self.created.append(name)

    def disturb(self, admin: Admin) -> None:
        """Kill or pause a controller, most often the active one, and let it return."""
        cluster, random = self.cluster, self.random
        active = cluster.active_controller()
        controllers = [node_id for node_id, node in cluster.nodes.items() if node.is_controller]
        victim = active if random.random() < 0.7 else random.choice(controllers)
        if random.random() < 0.7:
            began = time.monotonic()
            cluster.kill(victim)
            self.create(admin)
            if victim == active:
                self.failovers_s.append(time.monotonic() - began)
            self.create(admin)
            cluster.start_node(victim)
        else:
            cluster.pause(victim)
            time.sleep(random.uniform(0.1, 3))
            cluster.resume(victim)
        for _ in range(random.randint(0, 5)):
            self.create(admin)

    def check(self) -> None:
        """All acknowledged topics exist, and all replicas of the metadata reach the same end."""
        with self.cluster.admin() as admin:
            missing = set(self.created) - {topic.name for topic in admin.list_topics()}
            assert not missing, f"{len(missing)} acknowledged topics are lost"

            def level() -> bool:
                quorum = admin.describe_quorum()
                return len({voter.log_end_offset for voter in quorum.voters}) == 1

            self.cluster.wait_until(level)
        for node in self.cluster.nodes.values():
            node.assert_no_traceback()


def test_no_acknowledged_topic_is_lost_when_controllers_die(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=1, controllers=3) as cluster:
        chaos = Chaos(cluster, SEED)
        with cluster.admin() as admin:
            chaos.create(admin)
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline or not chaos.failovers_s:
                chaos.disturb(admin)
        chaos.check()
        for node_id in cluster.nodes:
            cluster.kill(node_id)
        for node in cluster.nodes.values():
            node.launch()
        for node in cluster.nodes.values():
            node.wait_until_ready(PATIENCE_S)
        chaos.check()
    times = ", ".join(f"{seconds * 1000:.0f}" for seconds in sorted(chaos.failovers_s))
    print(f"seed {SEED}: {len(chaos.created)} topics; next change after the kill of the active controller: {times} ms")
