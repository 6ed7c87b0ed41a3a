"""Actions on the logs of a simulated cluster: policies, directories and disks change."""

from __future__ import annotations

from contextlib import suppress

from ottla.clients import AsyncAdmin
from ottla.clients.admin import ConfigResource
from ottla.clients.errors import ClientError
from ottla.network.errors import NetworkError
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.simulation.world.cluster import BROKER_PORT
from tests.simulation.world.cluster_faults import Faults
from tests.simulation.world.cluster_run import ClusterRun
from tests.simulation.world.retained import Retained
from tests.simulation.world.tables import TABLE

COMPACT, DELETE, BOTH = "compact", "delete", "compact,delete"


class StorageFaults:
    """Chooses actions by chance; `policies` are the cleanup policies that the table may have."""

    def __init__(self, run: ClusterRun, retained: Retained, policies: tuple[str, ...]) -> None:
        self._run, self._retained, self._policies = run, retained, policies
        self._cluster, self._random = run.cluster, run.cluster.random
        self.moves = self.replaced = 0

    def all(self) -> Faults:
        """The actions with their weights."""
        change = [(10, self._change_policy)] if len(self._policies) > 1 else []
        return (*change, (8, self._move_directory), (6, self._restart), (4, self._replace_directory))

    def _change_policy(self) -> str:
        policy = self._random.choice(self._policies)
        self.set_policy(policy)
        return f"the policy of {TABLE} becomes {policy}"

    def set_policy(self, policy: str) -> None:
        """Alter cleanup.policy."""
        self._retained.changes(TABLE, policy)
        self._run.faults.do(self._alter(policy))

    async def _alter(self, policy: str) -> None:
        try:
            async with AsyncAdmin(default_api_timeout_ms=5_000, **self._run.work.connection) as admin:
                await admin.alter_config(ConfigResource.topic(TABLE), {"cleanup.policy": policy})
                self._run.work.note_outcome("policy", 0)
        except ClientError as error:
            self._run.work.note(error)

    def _restart(self) -> str | None:
        """Kill a node, or stop it cleanly, and start it at once."""
        node = self._run.faults.chosen()
        if node is None:
            return None
        machine = self._cluster.nodes[node]
        machine.kill(power=self._random.random() < 0.5 and self._run.checks.may_cut_power())
        machine.start()
        return f"restart {node}"

    def _move_directory(self) -> str:
        """Move some replicas of a node to another of its directories."""
        node = self._random.choice(list(self._cluster.nodes))
        path = self._random.choice(self._cluster.nodes[node].log_directories)
        name = self._random.choice(sorted(self._run.checks.partitions))
        topic = AlterReplicaLogDirTopic(name=name.topic, partitions=[name.partition])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        self._run.faults.do(self._move(node, request))
        return f"move {name} to {path} of {node}"

    async def _move(self, node: int, request: AlterReplicaLogDirsRequest) -> None:
        with suppress(NetworkError):
            response = await self._run.faults.ask(node, BROKER_PORT, request)
            code = response.results[0].partitions[0].error_code
            self._run.work.note_outcome("directory", code)
            self.moves += code == 0

    def _replace_directory(self) -> str | None:
        """The second disk of a node is replaced by an empty one."""
        node = self._run.faults.chosen()
        if node is None or not self._run.checks.may_lose_disk(node) or not self._run.checks.may_cut_power():
            return None
        self._cluster.nodes[node].replace_directory()
        self.replaced += 1
        return f"replace the second disk of {node}"
