"""Rules that change while clients ask, on a cluster of real nodes.

A changer denies the host of an asker to describe the cluster's rules and to read a topic, and allows both again, by
calls to any node. When a call has returned on a node, each request of the asker to that node must be answered by the
new rules, also after a restart of the node, and on a connection on which the node has allowed the same before. After
each event, the authorizer of each node has exactly the rules that the node published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from ottla.clients.errors import ClientError
from ottla.common.errors import ErrorCode
from ottla.config.authorization import ALLOW_WITHOUT_ACL, STANDARD, SUPER_USERS
from ottla.metadata.acls import acl_of
from ottla.network.client import ClientConnection
from ottla.network.connection import Connection
from ottla.network.errors import NetworkError
from ottla.protocol.message import Message
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.security.acl import Operation, PatternType, PermissionType, ResourceType
from ottla.security.authorizer import StandardAuthorizer
from tests.simulation.world.cluster import BROKER_PORT, NodeRun, SimulatedCluster, host_of
from tests.simulation.world.programs import IN, Program, Work

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage

NODES = "User:nodes"
SETTINGS = {"authorizer.class.name": STANDARD, SUPER_USERS: NODES, ALLOW_WITHOUT_ACL: "true"}
EVERYTHING = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
CLUSTER = (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
TOPIC = (ResourceType.TOPIC, IN, PatternType.LITERAL)
ALLOW_ALL = [AclCreation(*each, "User:*", "*", Operation.ALL, PermissionType.ALLOW) for each in (CLUSTER, TOPIC)]
READ = FetchRequest(
    max_wait_ms=0, topics=[FetchTopic(topic=IN, partitions=[FetchPartition(0, partition_max_bytes=100)])]
)
# The last version that names topics: an answer does not depend on the topic's id.
READ_VERSION = 12


class Ruled(NamedTuple):
    """The last call about an asker that returned: whether its host is denied, and on which node."""

    denied: bool
    node: int
    host: str


class Rules:
    """The calls that returned, and the checks."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.ruled: dict[int, Ruled | None] = {}
        """By asker; None while a call is under way, or its outcome is unknown."""
        self.answers = {True: 0, False: 0}
        """The answers that were checked, by whether the asker was denied."""
        self._images: dict[NodeRun, MetadataImage] = {}
        cluster.on_event.append(self.after_event)

    @contextmanager
    def nodes_known(self) -> Iterator[None]:
        """Authenticate the nodes, which are super users, by their hosts; clients are anonymous."""
        connected = Connection.connection_made
        hosts = {host_of(each) for each in self.cluster.nodes}

        def connection_made(connection: Connection, transport: Any) -> None:
            connected(connection, transport)
            if connection.remote_host in hosts:
                connection.principal = NODES

        with mock.patch.object(Connection, "connection_made", connection_made):
            yield

    def after_event(self, run: NodeRun) -> None:
        """The authorizer follows each published image."""
        node = run.node
        if node is None or not hasattr(node, "broker"):
            return
        image = node.broker.metadata.image
        before = self._images.get(run)
        if before is not None and before.acls is image.acls:
            return
        self._images[run] = image
        authorizer = node.broker.security.authorizer
        assert isinstance(authorizer, StandardAuthorizer)
        wanted = {acl_of(record) for record in image.acls.values()}
        assert authorizer._acls == wanted, self.cluster.fail(f"node {run.machine.node_id} decides by other rules")
        assert authorizer.is_loaded or not node._started, self.cluster.fail(
            f"node {run.machine.node_id} serves before it knows the rules"
        )

    def both_since(self, before: dict[bool, int]) -> bool:
        """Whether askers were denied and allowed since then."""
        return all(self.answers[each] > before[each] for each in before)

    def all_know_the_same(self) -> bool:
        """Whether all nodes that run have the same rules."""
        found = {frozenset(node.broker.metadata.image.acls) for node in self.cluster.running().values()}
        return len(found) == 1


class _AclProgram(Program):
    def __init__(self, work: Work, index: int, rules: Rules) -> None:
        super().__init__(work, index)
        self.rules = rules

    async def send(self, node: int, request: Message) -> Message:
        """Send a request to a node. Raises NetworkError."""
        connection = await ClientConnection.connect(host_of(node), BROKER_PORT, client_id=self.host, timeout_s=2.0)
        try:
            return await connection.send(request, timeout_s=15.0)
        finally:
            connection.close()

    async def main(self) -> None:
        while not (self.work.stopping or self.stopping):
            try:
                await self.step()
            except (NetworkError, ClientError, OSError) as error:
                self.work.note(error)
            await asyncio.sleep(self.work.random.choice((0.01, 0.1, 0.5)))

    async def step(self) -> None:
        raise NotImplementedError


class Changer(_AclProgram):
    """Denies and allows the asker of its index, under another host each time.

    A call without an answer may take effect at any later time. Therefore each host is denied and allowed once, and
    given up after such a call.
    """

    name = "changer"

    def __init__(self, work: Work, index: int, rules: Rules) -> None:
        super().__init__(work, index, rules)
        self.hosts = 0

    async def step(self) -> None:
        self.hosts += 1
        host = f"asker{self.index}.{self.hosts}"
        rights = ((CLUSTER, Operation.DESCRIBE), (TOPIC, Operation.READ))
        deny = [AclCreation(*each, "User:ANONYMOUS", host, right, PermissionType.DENY) for each, right in rights]
        node = self.work.random.choice(sorted(self.work.cluster.nodes))
        # The node may remember that it allowed the host before.
        self.rules.ruled[self.index] = Ruled(False, node, host)
        await asyncio.sleep(self.work.random.choice((0.05, 0.5)))
        chosen = DeleteAclsFilter(ResourceType.ANY, None, PatternType.ANY, None, host, Operation.ANY, 1)
        if await self._change(CreateAclsRequest([*ALLOW_ALL, *deny]), Ruled(True, node, host)):
            node = self.work.random.choice(sorted(self.work.cluster.nodes))
            await self._change(DeleteAclsRequest([chosen]), Ruled(False, node, host))

    async def _change(self, request: CreateAclsRequest | DeleteAclsRequest, ruled: Ruled) -> bool:
        """Send it to the node; returns whether it succeeded."""
        self.rules.ruled[self.index] = None
        answer = await self.send(ruled.node, request)
        results = answer.results if isinstance(answer, CreateAclsResponse) else answer.filter_results  # type: ignore[attr-defined]
        for result in results:
            self.work.note_outcome(type(request).__name__, result.error_code)
        if any(result.error_code for result in results):
            return False
        self.work.acknowledged += 1
        self.rules.ruled[self.index] = ruled
        await asyncio.sleep(self.work.random.choice((0.05, 0.5, 2.0)))
        return True


class Asker(_AclProgram):
    """Asks the node on which the last call about it returned, by new connections and by one that it keeps."""

    name = "asker"

    def __init__(self, work: Work, index: int, rules: Rules) -> None:
        super().__init__(work, index, rules)
        self._kept: tuple[str, int, ClientConnection] | None = None

    async def main(self) -> None:
        self._kept = None  # after a crash, the connection is lost
        await super().main()

    async def step(self) -> None:
        rules, index = self.rules, self.index
        ruled = rules.ruled.get(index)
        if ruled is None:
            return
        assert self.process is not None
        self.process.host = ruled.host
        reads = self.work.random.random() < 0.5
        if reads:
            denied = await self._is_read_denied(ruled)
        else:
            answer = await self.send(ruled.node, EVERYTHING)
            code = answer.error_code  # type: ignore[attr-defined]
            denied = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert denied or not code, self.work.cluster.fail(f"DescribeAcls fails with {code}")
        if rules.ruled.get(index) is not ruled:
            return  # The rule may have changed before the request was decided.
        what = f"{'read' if reads else 'describe'} on node {ruled.node}"
        text = f"{ruled.host} is {'denied' if denied else 'allowed'} to {what}, where"
        assert denied == ruled.denied, self.work.cluster.fail(f"{text} the call that changed this returned")
        rules.answers[denied] += 1

    async def _is_read_denied(self, ruled: Ruled) -> bool:
        """Read the topic by the connection of the previous step, if it leads to the same node. Raises NetworkError."""
        if self._kept is None or self._kept[:2] != (ruled.host, ruled.node):
            self._close()
            address = host_of(ruled.node), BROKER_PORT
            opened = await ClientConnection.connect(*address, client_id=self.host, timeout_s=2.0)
            self._kept = (ruled.host, ruled.node, opened)
        try:
            answer: Any = await self._kept[2].send(READ, version=READ_VERSION, timeout_s=15.0)
        except BaseException:
            self._close()
            raise
        return bool(answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _close(self) -> None:
        if self._kept is not None:
            self._kept[2].close()
            self._kept = None
