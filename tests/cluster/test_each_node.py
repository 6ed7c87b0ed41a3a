"""Requests that any replica or broker answers, and stock Kafka's tools, at each of three nodes.

The nodes of Ottla and of stock Kafka are asked the same, one after another, by their own addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ottla.clients import Producer
from ottla.protocol.messages import describe_producers, list_offsets
from tests.clients.support import wait_until
from tests.clients.test_answers_in_detail import Asking
from tests.open_transactions import TIMEOUT_MS
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

from .processes import Cluster

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-kafka"), pytest.mark.timeout(180)]

NODES = (1, 2, 3)
REPLICAS = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
CONSUMER, DEBUGGING = -1, -2
LATEST, EARLIEST = -1, -2
READ_COMMITTED = 1
NOT_LEADER_OR_FOLLOWER = 6
DOWNGRADE = "Unsupported metadata.version downgrade from 30 to 29."


class Nodes:
    """Three brokers with a topic of three partitions, in each of which a transaction is open."""

    def __init__(self, bootstrap: str, topic: str, *, are_stock: bool) -> None:
        self.bootstrap, self.topic, self.are_stock = bootstrap, topic, are_stock
        self.addresses = dict(zip(NODES, bootstrap.split(","), strict=True))

    def tool(self, node: int, name: str, *words: object, code: int = 0) -> str:
        """Return the output of a tool that knows only one node; its exit code must be `code`."""
        address: tuple[object, ...] = ("--bootstrap-server", self.addresses[node])
        if name == "cluster":  # its verb comes first
            address, words = (words[0], *address), words[1:]
        done = kafka.tool(name, *address, *words)
        assert done.returncode == code, f"{done.args} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr if code else done.stdout

    def levels(self, node: int) -> dict[str, str]:
        """The finalized levels of all features, as a node describes them."""
        text = self.tool(node, "features", "describe")
        return dict(re.findall(r"Feature: (\S+) .*FinalizedVersionLevel: (\S+)", text))

    def offset(self, node: int, partition: int, replica_id: int, timestamp: int) -> tuple[int, int]:
        """Error code and offset of a ListOffsets with read_committed."""
        wanted = list_offsets.ListOffsetsPartition(partition, -1, timestamp)
        topics = [list_offsets.ListOffsetsTopic(self.topic, [wanted])]
        with Asking(self.addresses[node]) as connection:
            request = list_offsets.ListOffsetsRequest(replica_id, READ_COMMITTED, topics)
            (found,) = connection.send_message(request, 8).topics[0].partitions
        return found.error_code, found.offset

    def producers(self, node: int, partition: int) -> tuple[int, list[int]]:
        """Error code of a DescribeProducers, and where the open transactions of the producers start."""
        request = describe_producers.DescribeProducersRequest(
            [describe_producers.TopicRequest(self.topic, [partition])]
        )
        with Asking(self.addresses[node]) as connection:
            (found,) = connection.send_message(request, 0).topics[0].partitions
        return found.error_code, [each.current_txn_start_offset for each in found.active_producers]


@pytest.fixture(scope="module", params=["ottla", "stock"])
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    directory = tmp_path_factory.mktemp("each-node")
    cluster = kafka.StockKafka(directory, brokers=3) if request.param == "stock" else Cluster(directory)
    with cluster:
        nodes = Nodes(cluster.bootstrap, "everywhere", are_stock=request.param == "stock")
        assignment = ",".join(":".join(map(str, replicas)) for replicas in REPLICAS.values())
        nodes.tool(1, "topics", "--create", "--topic", nodes.topic, "--replica-assignment", assignment)
        producer: Producer = Producer(
            {"transactional.id": "open", "transaction.timeout.ms": TIMEOUT_MS}, bootstrap_servers=cluster.bootstrap
        )
        with producer:
            producer.init_transactions(30)
            with producer.transaction():
                for partition in REPLICAS:
                    producer.send(nodes.topic, b"committed", partition=partition)
            producer.begin_transaction()
            for partition in REPLICAS:
                producer.send(nodes.topic, b"open", partition=partition)
            producer.flush(30)  # with acks=all: the followers have the records
            yield nodes
            producer.abort_transaction(30)
        if isinstance(cluster, Cluster):
            cluster.assert_no_traceback()


@pytest.mark.parametrize("node", NODES)
def test_any_replica_describes_the_producers(nodes: Nodes, node: int) -> None:
    for partition, replicas in REPLICAS.items():
        expected = (0, [2]) if node in replicas else (NOT_LEADER_OR_FOLLOWER, [])
        assert nodes.producers(node, partition) == expected


@pytest.mark.parametrize("node", NODES)
def test_any_replica_lists_the_offsets_of_its_log_for_debugging(nodes: Nodes, node: int) -> None:
    for partition, (leader, *_) in REPLICAS.items():
        for timestamp, offset in ((LATEST, 3), (EARLIEST, 0)):
            expected = (0, offset) if node in REPLICAS[partition] else (NOT_LEADER_OR_FOLLOWER, -1)
            assert nodes.offset(node, partition, DEBUGGING, timestamp) == expected
        stable = (0, 2) if node == leader else (NOT_LEADER_OR_FOLLOWER, -1)
        assert nodes.offset(node, partition, CONSUMER, LATEST) == stable


@pytest.mark.parametrize("node", NODES)
def test_tools_work_with_each_node(nodes: Nodes, node: int) -> None:
    topic = ("--topic", nodes.topic)
    for broker in NODES:
        hanging = nodes.tool(
            node, "transactions", "find-hanging", "--broker-id", broker, "--max-transaction-timeout", 0
        )
        assert len(hanging.splitlines()) == 1, "the coordinator knows the transaction"
        for partition, replicas in REPLICAS.items():
            if broker in replicas:
                where = (*topic, "--partition", partition, "--broker-id", broker)
                rows = nodes.tool(node, "transactions", "describe-producers", *where).splitlines()
                assert [row.split()[5] for row in rows[1:]] == ["2"]
        directories = nodes.tool(node, "log-dirs", "--describe", "--broker-list", broker, "--topic-list", nodes.topic)
        hosted = {f"{nodes.topic}-{partition}" for partition, replicas in REPLICAS.items() if broker in replicas}
        assert set(re.findall(r'"partition":"([^"]+)"', directories)) == hosted
        configs = ("configs", "--entity-type", "brokers", "--entity-name", broker, "--describe")
        assert f"configs for broker {broker} are:" in nodes.tool(node, *configs)
    assert len(nodes.tool(node, "transactions", "find-hanging", *topic).splitlines()) == 1
    (described,) = nodes.tool(node, "transactions", "describe", "--transactional-id", "open").splitlines()[1:]
    assert described.split()[4] == "Ongoing"
    assert "Ongoing" in nodes.tool(node, "transactions", "list")
    ends = nodes.tool(node, "get-offsets", *topic).splitlines()
    assert ends == [f"{nodes.topic}:{partition}:3" for partition in REPLICAS]
    assert nodes.tool(node, "topics", "--describe", *topic).count("Leader: ") == len(REPLICAS)
    elect = ("leader-election", "--election-type", "preferred", *topic, "--partition", node - 1)
    assert "Valid replica already elected" in nodes.tool(node, *elect)
    assert "metadata.version" in nodes.tool(node, "features", "describe")
    assert "LeaderId" in nodes.tool(node, "metadata-quorum", "describe", "--status")
    assert len(nodes.tool(node, "cluster", "list-endpoints").splitlines()) == 1 + len(NODES)


def test_every_tool_prints_the_same_with_each_node(nodes: Nodes) -> None:
    commands: tuple[tuple[object, ...], ...] = (
        ("topics", "--describe", "--topic", nodes.topic),
        ("transactions", "list"),
        ("cluster", "cluster-id"),
        ("cluster", "list-endpoints"),
        ("groups", "--list"),
        ("consumer-groups", "--list"),
        ("share-groups", "--list"),
        ("configs", "--entity-type", "topics", "--entity-name", nodes.topic, "--describe", "--all"),
        ("broker-api-versions",),
        *(("get-offsets", "--topic", nodes.topic, "--time", time) for time in (-1, -2, -3, -4, 0)),
    )
    for name, *words in commands:
        first, *others = (sorted(nodes.tool(node, str(name), *words).splitlines()) for node in NODES)
        assert others == [first, first], (name, *words)


def test_features_are_upgraded_all_or_none(nodes: Nodes) -> None:
    """Upgrading to a release raises kraft.version too, with static voters, and cannot be undone."""
    before = nodes.levels(1)
    assert before["kraft.version"] == "0"
    kraft = ("--bootstrap-server", nodes.bootstrap, "upgrade", "--feature", "kraft.version=1", "--dry-run")
    wait_until(lambda: kafka.tool("features", *kraft).returncode == 0, "the voters have reported their versions", 20)
    upgrade = ("features", "upgrade", "--release-version", "4.3")
    shown = nodes.tool(2, *upgrade, "--dry-run")
    assert "kraft.version can be upgraded to 1." in shown
    assert "streams.version can be upgraded to 1." in shown
    if not nodes.are_stock:  # stock Kafka upgrades kraft.version although the other feature is refused
        nodes.tool(2, "features", "upgrade", "--feature", "kraft.version=1", "--feature", "nope.version=1", code=1)
    assert [nodes.levels(node) for node in NODES] == [before] * 3
    upgraded = nodes.tool(3, "features", "upgrade", "--feature", "kraft.version=1", "--feature", "share.version=1")
    assert upgraded.splitlines() == ["kraft.version was upgraded to 1.", "share.version was upgraded to 1."]
    assert nodes.levels(1) == before | {"kraft.version": "1"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            "upgrade --feature kraft.version=2",
            "Invalid update version 2 for feature kraft.version. Local controller N only supports versions 0-1",
        ),
        (
            "downgrade --feature nope.version=0",
            "Invalid update version 0 for feature nope.version. Feature nope.version not found.",
        ),
        (
            "upgrade --feature nope.version=1",
            "Invalid update version 1 for feature nope.version. Local controller N does not support this feature.",
        ),
        (
            "downgrade --metadata 4.2-IV1",
            f"{DOWNGRADE} Refusing to perform the requested downgrade because it might delete metadata information.",
        ),
        (
            "downgrade --metadata 4.2-IV1 --unsafe",
            f"{DOWNGRADE} Unsafe metadata downgrade is not supported in this version.",
        ),
    ],
)
def test_refused_features_have_kafkas_message(nodes: Nodes, words: str, problem: str) -> None:
    refused = re.sub(r"controller \d ", "controller N ", nodes.tool(2, "features", *words.split(), code=1))
    text = f"The update failed for all features since the following feature had an error: {problem}"
    assert f". {text}\n" in refused
