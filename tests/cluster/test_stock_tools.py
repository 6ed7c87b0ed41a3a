"""Stock Kafka's tools against a cluster of three nodes with two log directories each.

The nodes and the JVM of the tools are shared by the tests of this file. Each test has topics of its own, and leaves the
cluster as it found it.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Producer
from ottla.clients.admin import OffsetSpec
from ottla.common.ids import TopicPartition
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

from .processes import Cluster, ClusterNode

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-tools"), pytest.mark.timeout(180)]

JOINING = 104
RECORDS, RECORD_BYTES = 150, 10_000
SLOW, FAST = 1_000, 100_000_000
REPLICATED = ("topics", "--create", "--partitions", 2, "--replication-factor", 3, "--topic")
VERIFIED = re.compile(r"max lag is 0 for partition \S+ at offset (\d+) among (\d+) partitions")


class Tools:
    """The tools with the addresses of the brokers, or of the controllers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def run(self, name: str, *words: object, controllers: bool = False) -> subprocess.CompletedProcess[str]:
        address: tuple[object, ...] = ("--bootstrap-server", self.cluster.bootstrap)
        if controllers:
            address = ("--bootstrap-controller", self.cluster.controller_bootstrap)
        if name == "cluster":  # its verb comes first
            address, words = (words[0], *address), words[1:]
        return kafka.tool(name, *address, *words)

    def ok(self, name: str, *words: object, controllers: bool = False) -> str:
        done = self.run(name, *words, controllers=controllers)
        assert done.returncode == 0, f"{done.args} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fails(self, name: str, *words: object, controllers: bool = False) -> str:
        done = self.run(name, *words, controllers=controllers)
        assert done.returncode != 0, f"{done.args} succeeded\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def both(self, name: str, *words: object) -> tuple[str, str]:
        """Return the tool's outputs with brokers and with controllers."""
        return self.ok(name, *words), self.ok(name, *words, controllers=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    cluster = Cluster(
        tmp_path_factory.mktemp("tools"), dynamic=True, properties={"auto.leader.rebalance.enable": "false"}
    )
    for node in cluster.nodes.values():
        node.settings["log.dirs"] = ",".join(directories(node))
    with cluster:
        yield cluster
        cluster.assert_no_traceback()


@pytest.fixture
def tools(cluster: Cluster) -> Tools:
    return Tools(cluster)


def directories(node: ClusterNode) -> list[str]:
    return [str(node.data), str(node.directory / "disk")]


def create(cluster: Cluster, topic: str, assignment: str) -> None:
    """Create a topic and send `RECORDS` records to each of its partitions."""
    words = ("--create", "--topic", topic, "--replica-assignment", assignment, "--config", "min.insync.replicas=1")
    Tools(cluster).ok("topics", *words)
    partitions = assignment.count(",") + 1
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(RECORDS * partitions):
            producer.send(topic, b"%d".ljust(RECORD_BYTES, b".") % number, partition=number % partitions)
        producer.flush(30)


def ends(cluster: Cluster, topic: str, partitions: int) -> list[int]:
    with cluster.admin() as admin:
        wanted = {TopicPartition(topic, index): OffsetSpec.LATEST for index in range(partitions)}
        return [end.offset for end in admin.list_offsets(wanted).values()]


def write_plan(path: Path, topic: str, rows: Sequence[tuple[list[int], list[str]]]) -> Path:
    """A plan of kafka-reassign-partitions: the replicas of each partition, and their log directories."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": replicas, "log_dirs": log_dirs}
        for index, (replicas, log_dirs) in enumerate(rows)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def replicas_by_directory(tools: Tools, topic: str) -> dict[tuple[int, str], list[tuple[str, bool]]]:
    """Run kafka-log-dirs: (broker, directory) -> [(partition, whether it is a future replica)]."""
    listing = json.loads(tools.ok("log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
    return {
        (broker["broker"], directory["logDir"]): [(each["partition"], each["isFuture"]) for each in found]
        for broker in listing["brokers"]
        for directory in broker["logDirs"]
        if (found := directory["partitions"])
    }


def throttles(tools: Tools, topic: str) -> set[str]:
    text = tools.ok("configs", "--entity-type", "topics", "--entity-name", topic, "--describe")
    text += tools.ok("configs", "--entity-type", "brokers", "--describe")
    return set(re.findall(r"^  ((?:leader|follower|replica\.alter)\S*)=", text, re.MULTILINE))


# -- kafka-reassign-partitions, kafka-log-dirs -------------------------------------------------------------------------


def test_throttled_reassignment_is_listed_changed_and_verified(cluster: Cluster, tools: Tools, tmp_path: Path) -> None:
    create(cluster, "moved", "1:2,2:3")
    before = replicas_by_directory(tools, "moved")
    # Partition 0 leaves broker 1, comes to broker 3, and on broker 2 it changes its directory.
    to_2 = next(path for path in directories(cluster.nodes[2]) if ("moved-0", False) not in before.get((2, path), []))
    to_1, to_3 = directories(cluster.nodes[1])[1], directories(cluster.nodes[3])[1]
    plan = write_plan(tmp_path / "plan", "moved", [([2, 3], [to_2, to_3]), ([3, 1], ["any", to_1])])
    file = ("--reassignment-json-file", plan)
    rates = ("--throttle", SLOW, "--replica-alter-log-dirs-throttle", SLOW)
    started = tools.ok("reassign-partitions", "--execute", *file, *rates)
    assert "Successfully started partition reassignments for moved-0,moved-1" in started
    for broker, partition, path in ((1, 1, to_1), (2, 0, to_2), (3, 0, to_3)):
        assert f"started moving log directory to {path} for replica moved-{partition} with broker {broker}" in started
    for listing in tools.both("reassign-partitions", "--list"):
        assert "moved-0: replicas: 2,3,1. adding: 3. removing: 1." in listing
    assert len(throttles(tools, "moved")) == 5
    waiting = tools.ok("reassign-partitions", "--verify", *file)
    assert "Reassignment of partition moved-0 is still in progress" in waiting
    assert "Clearing" not in waiting
    assert ("moved-0", True) in replicas_by_directory(tools, "moved")[2, to_2]

    refused = tools.fails("reassign-partitions", "--execute", *file)
    assert "there is an existing partition assignment" in refused
    rates = ("--throttle", FAST, "--replica-alter-log-dirs-throttle", FAST)
    assert "Successfully started" in tools.ok("reassign-partitions", "--execute", "--additional", *file, *rates)
    cluster.wait_until(lambda: "progress" not in tools.ok("reassign-partitions", "--verify", *file))
    assert throttles(tools, "moved") == set()
    found = {
        (broker, path, *each) for (broker, path), rows in replicas_by_directory(tools, "moved").items() for each in rows
    }
    assert {(2, to_2, "moved-0", False), (3, to_3, "moved-0", False), (1, to_1, "moved-1", False)} <= found
    assert len(found) == 4
    assert ends(cluster, "moved", 2) == [RECORDS, RECORDS]


def test_cancelled_reassignment_leaves_the_replicas_where_they_were(
    cluster: Cluster, tools: Tools, tmp_path: Path
) -> None:
    create(cluster, "stays", "1:2,3:1")
    disk = directories(cluster.nodes[2])[1]
    before = replicas_by_directory(tools, "stays")
    plan = write_plan(tmp_path / "plan", "stays", [([1, 3], ["any", "any"]), ([3, 2], ["any", disk])])
    file = ("--reassignment-json-file", plan)
    tools.ok("reassign-partitions", "--execute", *file, "--throttle", SLOW)
    assert "stays-1: replicas: 3,2,1. adding: 2. removing: 1." in tools.ok("reassign-partitions", "--list")
    cluster.wait_until(lambda: replicas_by_directory(tools, "stays") != before)
    # It then waits for the replica that it moves between directories, which may be deleted by then.
    cancelled = tools.run("reassign-partitions", "--cancel", *file).stdout
    assert "Successfully cancelled partition reassignments for: stays-0,stays-1" in cancelled
    assert "No partition reassignments found" in tools.ok("reassign-partitions", "--list")
    cluster.wait_until(lambda: replicas_by_directory(tools, "stays") == before)
    assert throttles(tools, "stays") == set()
    assert ends(cluster, "stays", 2) == [RECORDS, RECORDS]


def test_generated_plan_is_executed(cluster: Cluster, tools: Tools, tmp_path: Path) -> None:
    create(cluster, "spread", "1,1,1")
    topics = tmp_path / "topics"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "spread"}]}))
    words = ("--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3")
    present, proposed = map(json.loads, re.findall(r"^\{.*\}$", tools.ok("reassign-partitions", *words), re.MULTILINE))
    own = directories(cluster.nodes[1])
    assert all(each["replicas"] == [1] and each["log_dirs"][0] in own for each in present["partitions"])
    plan = tmp_path / "plan"
    plan.write_text(json.dumps(proposed))
    tools.ok("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    file = ("--reassignment-json-file", plan)
    cluster.wait_until(lambda: "progress" not in tools.ok("reassign-partitions", "--verify", *file))
    described = tools.ok("topics", "--describe", "--topic", "spread")
    assert set(re.findall(r"Replicas: (\d)", described)) == {"2", "3"}
    assert ends(cluster, "spread", 3) == [RECORDS] * 3


def test_cordoned_directories_take_no_new_replicas(cluster: Cluster, tools: Tools) -> None:
    first, second = directories(cluster.nodes[2])
    which = ("configs", "--entity-type", "brokers", "--entity-name", 2)

    def cordon(*paths: str) -> None:
        """In brackets, because the tool splits settings at commas."""
        tools.ok(*which, "--alter", "--add-config", f"cordoned.log.dirs=[{','.join(paths)}]")

    cordon(first, second)
    attempts = itertools.count()

    def is_refused() -> bool:
        done = tools.run(*REPLICATED, f"early-{next(attempts)}")
        return "all their log directories cordoned" in done.stdout + done.stderr

    cluster.wait_until(is_refused)
    cordon(first)
    cluster.wait_until(lambda: tools.run(*REPLICATED, "cordoned").returncode == 0)
    assert {path for broker, path in replicas_by_directory(tools, "cordoned") if broker == 2} == {second}
    wrong = tools.fails(*which, "--alter", "--add-config", "cordoned.log.dirs=/nowhere")
    assert "Missing entries : /nowhere" in wrong
    grown = ("--alter", "--add-config", f"cordoned.log.dirs=[{first},{second}]")
    assert "must be a subset of the current" in tools.fails(*which, *grown, controllers=True)
    tools.ok(*which, "--alter", "--delete-config", "cordoned.log.dirs", controllers=True)
    assert "cordoned" not in tools.ok(*which, "--describe")


# -- kafka-replica-verification ----------------------------------------------------------------------------------------


def test_replicas_are_verified(cluster: Cluster) -> None:
    create(cluster, "verified", "1:2:3,2:3:1")
    words = ("--broker-list", cluster.bootstrap, "--topics-include", "verified", "--time", -2)
    command = kafka.java(
        "org.apache.kafka.tools.ReplicaVerificationTool",
        *map(str, (*words, "--report-interval-ms", 200, "--max-wait-ms", 50)),
        heap="256m",
    )
    pipe = subprocess.PIPE
    tool = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True)
    deadline = threading.Timer(30, tool.kill)
    deadline.start()
    lines: list[str] = []
    with tool:
        assert tool.stdout is not None
        for line in tool.stdout:
            lines.append(line)
            found = VERIFIED.search(line)
            if found is not None and found[1] == str(RECORDS):
                tool.kill()
                break
        deadline.cancel()
    assert found is not None, "".join(lines)
    assert found.groups() == (str(RECORDS), "2")
    assert not any("doesn't match" in line or "unmatched" in line for line in lines)


# -- kafka-metadata-quorum ---------------------------------------------------------------------------------------------


def status(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+): +(.*)$", text, re.MULTILINE))


def voters(tools: Tools) -> dict[int, str]:
    """The directories of the voters."""
    found = status(tools.ok("metadata-quorum", "describe", "--status"))["CurrentVoters"]
    return {each["id"]: each["directoryId"] for each in json.loads(found)}


def test_quorum_is_described_by_brokers_and_controllers(cluster: Cluster, tools: Tools) -> None:
    addresses = [f"CONTROLLER://{each}" for each in cluster.controller_bootstrap.split(",")]
    for text in tools.both("metadata-quorum", "describe", "--status"):
        described = status(text)
        assert [each["endpoints"] for each in json.loads(described["CurrentVoters"])] == [[each] for each in addresses]
        assert described["ClusterId"] == cluster.cluster_id
    for text in tools.both("metadata-quorum", "describe", "--replication"):
        rows = [line.split() for line in text.splitlines()[1:] if line]
        assert sorted(int(row[0]) for row in rows) == [1, 2, 3]
        assert sorted(row[-1] for row in rows) == ["Follower", "Follower", "Leader"]
        assert all(int(row[4]) > 0 and int(row[5]) > 0 for row in rows)
    assert "ms ago" in tools.ok("metadata-quorum", "describe", "--replication", "--human-readable")


def test_controller_is_added_and_removed_through_brokers_and_controllers(
    cluster: Cluster, tools: Tools, tmp_path: Path
) -> None:
    (port,) = kafka.free_ports(1)
    settings = cluster.nodes[1].settings | {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
    }
    joining = ClusterNode(JOINING, tmp_path / "joining", settings)
    joining.format(cluster.cluster_id, "--no-initial-controllers")
    joining.start()
    observed = re.compile(rf"^{JOINING}\s.*\s0\s.*Observer", re.MULTILINE)
    cluster.wait_until(lambda: observed.search(tools.ok("metadata-quorum", "describe", "--replication")) is not None)
    add: tuple[Any, ...] = ("--command-config", joining.properties_path, "add-controller")
    for controllers in (False, True):
        assert "DRY RUN" in tools.ok("metadata-quorum", *add, "--dry-run", controllers=controllers)
        assert f"Added controller {JOINING}" in tools.ok("metadata-quorum", *add, controllers=controllers)
        assert f"The voter id {JOINING} is already part" in tools.fails(
            "metadata-quorum", *add, controllers=controllers
        )
        directory = voters(tools)[JOINING]
        which = ("--controller-id", JOINING, "--controller-directory-id", directory)
        removed = tools.ok("metadata-quorum", "remove-controller", *which, controllers=controllers)
        assert f"Removed  KRaft controller {JOINING}" in removed
        refused = tools.fails("metadata-quorum", "remove-controller", *which, controllers=controllers)
        assert f"Cannot remove voter {JOINING} from the set of voters" in refused
        assert set(voters(tools)) == {1, 2, 3}
    assert joining.stop() == 0
    joining.assert_no_traceback()


# -- kafka-features, kafka-configs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("controllers", [False, True])
def test_features_are_downgraded_and_upgraded(tools: Tools, controllers: bool) -> None:
    def level(name: str, *words: object) -> str:
        text = tools.ok("features", "describe", *words, controllers=controllers)
        return dict(re.findall(r"Feature: (\S+) .*FinalizedVersionLevel: (\S+)", text))[name]

    def change(*words: object) -> str:
        return tools.ok("features", *words, controllers=controllers)

    assert "can be downgraded to 0" in change("downgrade", "--feature", "share.version=0", "--dry-run")
    assert level("share.version", "--node-id", 2) == "1"
    assert "was downgraded to 0" in change("downgrade", "--feature", "share.version=0")
    assert level("share.version") == "0"
    assert "was upgraded to 1" in change("upgrade", "--feature", "share.version=1")
    assert "was disabled" in change("disable", "--feature", "eligible.leader.replicas.version")
    assert "was upgraded to 1" in change("upgrade", "--feature", "eligible.leader.replicas.version=1")
    words = ("downgrade", "--release-version", "4.0-IV0", "--dry-run")
    assert "might delete metadata information" in tools.fails("features", *words, controllers=controllers)
    assert level("kraft.version") == "1"
    levels = {"eligible.leader.replicas": 1, "group": 1, "kraft": 1, "metadata": 27, "transaction": 2}
    change("downgrade", "--feature", "share.version=0")
    words = ("--release-version", "4.1", "--dry-run")
    refused = tools.fails("features", "upgrade", *words, controllers=controllers)
    assert "Can't downgrade the version of this feature without" in refused
    levels["metadata"] = 30
    single = [word for name, number in levels.items() for word in ("--feature", f"{name}.version={number}")]
    lines = change("upgrade", *single).splitlines()
    assert lines == [f"{name}.version was upgraded to {number}." for name, number in levels.items()]
    for release in ("4.3", "4.3-IV0"):
        assert "Could not upgrade " not in change("upgrade", "--release-version", release)
        assert (level("streams.version"), level("share.version")) == ("1", "1")


def test_settings_of_each_broker_are_changed_by_any_node(tools: Tools) -> None:
    name = "log.cleaner.backoff.ms"

    def configs(broker: int | None, *words: object, controllers: bool = False) -> str:
        which = ("--entity-default",) if broker is None else ("--entity-name", broker)
        return tools.ok("configs", "--entity-type", "brokers", *which, *words, controllers=controllers)

    for broker, controllers in ((2, False), (3, True)):
        configs(broker, "--alter", "--add-config", f"{name}={20_000 + broker}", controllers=controllers)
        for text in (configs(broker, "--describe"), configs(broker, "--describe", controllers=True)):
            assert f"{name}={20_000 + broker} " in text
    configs(None, "--alter", "--add-config", f"{name}=20000")
    synonyms = f"DYNAMIC_BROKER_CONFIG:{name}=20002, DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=20000"
    assert synonyms in tools.ok("configs", "--entity-type", "brokers", "--describe")
    for which in (2, 3, None):
        configs(which, "--alter", "--delete-config", name)
        assert name not in configs(which, "--describe")
    rate = ("--alter", "--add-config", "min.insync.replicas=2")
    refused = tools.fails("configs", "--entity-type", "brokers", "--entity-name", 2, *rate)
    assert "Broker-level min.insync.replicas cannot be altered while ELR is enabled" in refused


# -- kafka-cluster, kafka-leader-election, kafka-topics: with a broker that is down ------------------------------------


def endpoints(tools: Tools, *words: object) -> dict[int, str]:
    rows = [line.split() for line in tools.ok("cluster", "list-endpoints", *words).splitlines()[1:]]
    return {int(row[0]): row[4] for row in rows}


def test_leaders_are_elected_after_a_restart(cluster: Cluster, tools: Tools, tmp_path: Path) -> None:
    create(cluster, "led", "1:2:3,2:3:1,1:3:2")
    cluster.stop_node(1)
    assert endpoints(tools, "--include-fenced-brokers") == {1: "fenced", 2: "unfenced", 3: "unfenced"}
    assert endpoints(tools) == {2: "unfenced", 3: "unfenced"}
    # Its replicas wait for the broker, and it leads none of them.
    tools.ok("topics", "--create", "--topic", "waiting", "--partitions", 3, "--replication-factor", 3)
    rows = re.findall(r"Replicas: (\S+)\tIsr: (\S+)", tools.ok("topics", "--describe", "--topic", "waiting"))
    assert [(sorted(every), sorted(isr)) for every, isr in rows] == [(list(",,123"), list(",23"))] * 3
    assert tools.ok("topics", "--describe", "--under-replicated-partitions").count("Topic: led") == 3
    cluster.start_node(1)
    cluster.wait_until(lambda: not tools.ok("topics", "--describe", "--under-replicated-partitions"))
    assert cluster.leader("led", 0) != 1
    elect = ("leader-election", "--election-type", "preferred")
    one = tmp_path / "partitions"
    one.write_text(json.dumps({"partitions": [{"topic": "led", "partition": index} for index in (0, 1)]}))
    done = tools.ok(*elect, "--path-to-json-file", one)
    assert "Successfully completed leader election (PREFERRED) for partitions led-0" in done
    assert "Valid replica already elected for partitions led-1" in done
    assert "led-2" in tools.ok(*elect, "--all-topic-partitions")
    assert [cluster.leader("led", index) for index in range(3)] == [1, 2, 1]
    unclean = ("leader-election", "--election-type", "unclean", "--topic", "led", "--partition", 2)
    assert "Valid replica already elected for partitions led-2" in tools.ok(*unclean)


def test_broker_is_unregistered_and_returns(cluster: Cluster, tools: Tools) -> None:
    other = next(node_id for node_id in (1, 2, 3) if node_id != cluster.active_controller())
    cluster.stop_node(other)
    removed = tools.ok("cluster", "unregister", "--id", other)
    assert f"Broker {other} is no longer registered" in removed
    assert other not in endpoints(tools, "--include-fenced-brokers")
    for controllers in (False, True):
        refused = tools.fails("cluster", "unregister", "--id", other, controllers=controllers)
        assert f"Broker ID {other} is not currently registered" in refused
    cluster.start_node(other)
    assert endpoints(tools)[other] == "unfenced"
    listed = tools.ok("cluster", "list-endpoints", controllers=True).splitlines()[1:]
    assert {row.split()[0] for row in listed} >= {"1", "2", "3"}
