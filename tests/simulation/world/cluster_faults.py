"""The faults of a simulated cluster, and an administrator's actions meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.clients import AsyncAdmin
from ottla.clients.errors import ClientError
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.network.client import ClientConnection
from ottla.network.errors import NetworkError
from ottla.protocol.message import Message
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.add_raft_voter import Listener as VoterListener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.simulation.world.cluster import CLUSTER_ID, CONTROLLER_PORT, LISTENER, SimulatedCluster, host_of
from tests.simulation.world.process_loop import ProcessLoop

if TYPE_CHECKING:
    from tests.simulation.world.cluster_checks import ClusterChecks
    from tests.simulation.world.programs import Program, Work

MOST_DOWN = 2
Fault: TypeAlias = Callable[[], "str | None"]
"""Lets something happen and describes it; None if it was not possible."""
Faults: TypeAlias = Sequence[tuple[int, Fault]]


class ClusterFaults:
    """Chooses faults by chance."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        checks: ClusterChecks,
        work: Work,
        programs: list[Program],
        more: Faults = (),
    ) -> None:
        """`more` faults of a world, with their weights."""
        self.cluster, self.checks, self.work, self.programs = cluster, checks, work, programs
        self.random = cluster.random
        self.network = cluster.machines.network
        self.console: ProcessLoop | None = None
        self.log: list[str] = []
        self._actions = self._chosen_actions(more)

    def _chosen_actions(self, more: Faults) -> dict[Fault, int]:
        """Choose the actions of this seed, with weights. A seed with few kinds of faults has more of each."""
        faults = (
            (10, self._kill), (4, self._cut_power), (3, self._shut_down),
            (4, self._crash_in_a_write), (4, self._fail_disk), (3, self._slow_disk),
            (6, self._isolate), (5, self._cut_one_way), (6, self._break_connections),
            (3, self._slow_link), (6, self._pause), (3, self._jump), (6, self._kill_program),
            (5, self._reassign), (3, self.elect), (5, self._change_voters), (8, self._replace_disk),
        )  # fmt: skip
        share = self.random.choice((1.0, 0.7, 0.4))
        chosen = {fault: weight for weight, fault in faults if self.random.random() < share}
        chosen |= {fault: weight for weight, fault in more}
        faulty = sum(chosen.values()) or 1
        return {**chosen, self._start: faulty * 22 // 75 + 1, self._repair: faulty * 10 // 75 + 1}

    def happen(self) -> None:
        """One fault, one action of an administrator, or a repair."""
        [chosen] = self.random.choices(list(self._actions), list(self._actions.values()))
        what = chosen()
        if what:
            self.log.append(f"{self.cluster.machines.schedule.now_us // 1000} ms: {what}")

    def states(self) -> str:
        """The state of everything, for the text of a failure."""
        nodes = {each: machine.run is not None and machine.run.serves for each, machine in self.cluster.nodes.items()}
        return f"serving: {nodes}, errors: {self.work.errors}, last: {self.log[-12:]}, {self.cluster.endings[-4:]}"

    def heal(self) -> None:
        """End all faults."""
        self._repair()
        for machine in self.cluster.nodes.values():
            machine.slowness_us = 0
            disk = machine.disk
            disk.fail_writes = disk.fail_syncs = disk.crash_after = None
            if machine.run is not None:
                machine.run.process.slowness_us = 0
            machine.start()
        for program in self.programs:
            program.start()

    # -- nodes and programs ------------------------------------------------------------------------------------------

    def chosen(self) -> int | None:
        """A running node that may stop: a majority keeps running."""
        down = [each for each, machine in self.cluster.nodes.items() if machine.run is None]
        running = sorted(self.cluster.nodes.keys() - set(down))
        return self.random.choice(running) if running and len(down) < MOST_DOWN else None

    def _kill(self) -> str | None:
        node = self.chosen()
        if node is None:
            return None
        self.cluster.nodes[node].kill()
        return f"kill {node}"

    def _cut_power(self) -> str | None:
        node = self.chosen()
        if node is None or not self.checks.may_cut_power():
            return None
        self.cluster.nodes[node].kill(power=True)
        return f"power cut of {node}"

    def _shut_down(self) -> str | None:
        node = self.chosen()
        if node is None:
            return None
        self.cluster.nodes[node].shut_down()
        return f"shut down {node}"

    def _start(self) -> str | None:
        down = [machine for machine in self.cluster.nodes.values() if machine.run is None]
        for machine in down:
            machine.start()
        for program in self.programs:
            program.start()
        return f"start {[machine.node_id for machine in down]}" if down else None

    def _kill_program(self) -> str:
        program = self.random.choice(self.programs)
        program.kill()
        return f"kill {program.host}"

    def _pause(self) -> str:
        for_us = self.random.choice((20_000, 300_000, 2_000_000, 6_000_000))
        machines = [machine for machine in self.cluster.nodes.values() if machine.run is not None]
        processes = [machine.run.process for machine in machines if machine.run is not None]
        processes += [program.process for program in self.programs if program.process is not None]
        process = self.random.choice(processes)
        process.pause(for_us)
        return f"pause {process.host} for {for_us // 1000} ms"

    def _jump(self) -> str:
        machine = self.random.choice(list(self.cluster.nodes.values()))
        machine.ahead_ms = self.random.choice((-1_800_000, -5_000, 0, 5_000, 1_800_000))
        if machine.run is not None:
            machine.run.clock.ahead_ms = machine.ahead_ms
        return f"clock of {machine.node_id} is {machine.ahead_ms} ms ahead"

    # -- disks -------------------------------------------------------------------------------------------------------

    def _crash_in_a_write(self) -> str | None:
        node = self.chosen()
        if node is None:
            return None
        self.cluster.nodes[node].disk.crash_after = self.random.randint(0, 30)
        return f"{node} is killed in one of its next writes"

    def _fail_disk(self) -> str | None:
        node = self.chosen()
        if node is None:
            return None
        disk = self.cluster.nodes[node].disk
        name = self.random.choice(("fail_writes", "fail_syncs"))
        setattr(disk, name, self.random.choice((errno.EIO, errno.ENOSPC)))
        return f"disk of {node}: {name}"

    def _replace_disk(self) -> str | None:
        """Replace the disk of a node that is not a voter: a voter would have to be removed and added again."""
        others = sorted(self.cluster.nodes.keys() - set(self._voters()))
        if self.chosen() is None or not others or not self.checks.may_lose_disk(node := self.random.choice(others)):
            return None
        self.cluster.nodes[node].replace_disk()
        return f"replace the disk of {node}"

    def _slow_disk(self) -> str:
        machine = self.random.choice(list(self.cluster.nodes.values()))
        machine.slowness_us = self.random.choice((0, 30_000, 500_000))
        if machine.run is not None:
            machine.run.process.slowness_us = machine.slowness_us
        return f"threads of {machine.node_id} take {machine.slowness_us // 1000} ms"

    # -- the network -------------------------------------------------------------------------------------------------

    def _hosts(self) -> list[str]:
        return [*map(host_of, self.cluster.nodes), *(program.host for program in self.programs)]

    def _isolate(self) -> str:
        host = host_of(self.random.choice(list(self.cluster.nodes)))
        others = [each for each in self._hosts() if each != host]
        if self.random.random() < 0.5:
            others = [each for each in others if each.startswith("node")]
        self.network.blocked = {pair for each in others for pair in ((host, each), (each, host))}
        self.network.released()
        return f"isolate {host} from {len(others)}"

    def _cut_one_way(self) -> str:
        source, target = self.random.sample([host_of(each) for each in self.cluster.nodes], 2)
        self.network.blocked |= {(source, target)}
        return f"cut {source} -> {target}"

    def _repair(self) -> str:
        self.network.blocked = set()
        self.network.slow_links = {}
        self.network.released()
        return "repair the network"

    def _break_connections(self) -> str:
        count = self.random.randint(1, 10)
        for _ in range(count):
            self.network.break_connection()
        return f"break {count} connections"

    def _slow_link(self) -> str:
        source, target = self.random.sample(self._hosts(), 2)
        self.network.slow_links[source, target] = 400_000
        return f"{source} -> {target} is slow"

    # -- the administrator -------------------------------------------------------------------------------------------

    def do(self, coroutine: object) -> None:
        """Run a coroutine in the process of the administrator."""
        if self.console is None:
            self.console = self.cluster.machines.start_process("console")
        self.console.start(coroutine, "console")  # type: ignore[arg-type]

    def _partitions(self) -> list[TopicPartition]:
        return sorted(self.checks.partitions)

    def _reassign(self) -> str:
        partition = self.random.choice(self._partitions())
        replicas = self.random.sample(list(self.cluster.nodes), 3)
        self.do(self._admin("reassign", {partition: replicas}))
        return f"move {partition} to {replicas}"

    def elect(self) -> str:
        """Elect the preferred leaders."""
        self.do(self._admin("elect", {each: [] for each in self._partitions()}))
        return "elect preferred leaders"

    async def _admin(self, what: str, partitions: dict[TopicPartition, list[int]]) -> None:
        try:
            async with AsyncAdmin(default_api_timeout_ms=5_000, **self.work.connection) as admin:
                if what == "reassign":
                    await admin.alter_partition_reassignments(partitions)
                else:
                    await admin.elect_leaders(partitions)
                self.work.note_outcome(what, 0)
        except* ClientError as errors:
            self.work.note(errors.exceptions[0])

    def _change_voters(self) -> str:
        """Add a node to the voters, or remove a voter if at least two others are left."""
        voters = self._voters()
        others = sorted(self.cluster.nodes.keys() - set(voters))
        removes = len(voters) > 2 and (not others or self.random.random() < 0.5)
        node = self.random.choice(voters if removes else others)
        self.do(self._voter_request(node, removes=removes))
        return f"{'remove' if removes else 'add'} voter {node}"

    def _voters(self) -> list[int]:
        """The voters of the latest epoch, as a running node knows them."""
        cores = [
            node._metadata.shell.raft for node in self.cluster.running().values() if node._metadata.shell is not None
        ]
        if not cores:
            return sorted(self.cluster.voters.ids)
        return sorted(max(cores, key=lambda core: core.epoch).voters.ids)

    async def _voter_request(self, node: int, *, removes: bool) -> None:
        directory = self.cluster.directories[node]
        listeners = [VoterListener(LISTENER, host_of(node), CONTROLLER_PORT)]
        request = (
            RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=node, voter_directory_id=directory)
            if removes
            else AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout_ms=5_000,
                voter_id=node,
                voter_directory_id=directory,
                listeners=listeners,
            )
        )
        for each in self.cluster.nodes:
            with suppress(NetworkError):
                response = await self.ask(each, CONTROLLER_PORT, request)
                if response.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self.work.note_outcome("voters", response.error_code)
                    return

    @staticmethod
    async def ask(node: int, port: int, request: Message) -> Any:
        """Send a request to a node. Raises NetworkError."""
        connection = await ClientConnection.connect(host_of(node), port, client_id="console", timeout_s=2.0)
        try:
            return await connection.send(request, timeout_s=10.0)
        finally:
            connection.close()
