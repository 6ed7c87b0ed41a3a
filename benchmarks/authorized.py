"""The cost of users and rules in whole requests: processor time of a broker for a Produce or a Fetch request.

    python -m benchmarks.authorized [--rounds N] [--same] [--older DIRECTORY] [--instructions]

Three brokers run side by side and get the same requests from the same 100 of 1,000 users, over SASL_PLAINTEXT: without
an authorizer, with StandardAuthorizer and 10 rules, and with 10,000 rules of all users. "serial" requests wait for the
previous response, "pipelined" ones are sent 20 at once, where a rule weighs most.

The same code takes a few percent more or less time in each process, by the addresses of its memory. So each round
starts all brokers again and measures them `PASSES` times; each round and each pass has another order of the brokers.
The figures are medians over the rounds: the time of a request, and the ratio to the first broker of the same round with
its quartiles. `--same` adds a second broker without an authorizer: its ratio is the error of the others.

`--instructions` counts instead of measuring, with Valgrind: instructions of the whole process for one request, as the
median of `COUNTS` runs. They do not depend on other load, but know nothing of caches and system calls. A Fetch that has
used up its time, which Valgrind makes likely, is read in slices and has a sixth more of them.

`--older` names a source tree of an older commit with its compiled modules; a broker of it, and one of this tree, are
compared on PLAINTEXT without an authorizer:

    git worktree add /tmp/older 700e426d && (cd /tmp/older && python setup.py -q build_ext --inplace)
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import free_ports

from ottla.clients import Admin
from ottla.clients.admin import Acl, AclOperation, AclPermission, AclResource, NewTopic
from ottla.config import format_properties
from ottla.protocol.frames import decode_response_header, encode_request
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import response_class
from ottla.records import encode_batch

USERS, TEAMS, RULES_OF_A_USER = 1_000, 100, 10
REQUESTS, PIPELINED = 1_000, 20
ROUNDS, PASSES, COUNTS = 15, 12, 3
PRODUCE, FETCH = 9, 12
# The most that 10,000 rules may cost over 10 rules.
LIMIT = 1.05
NO_AUTHORIZER, SAME, FEW, MANY = "no authorizer", "the same again", "10 rules", "10,000 rules"
NOW, OLDER = "this tree", "older tree"
KINDS = [(api, mode) for api in ("Produce", "Fetch") for mode in ("serial", "pipelined")]
_ALLOW, _DENY = AclPermission.ALLOW, AclPermission.DENY


def topic_of(user: int) -> str:
    """The topic of a user's team."""
    return f"team{user % TEAMS}.topic0"


def rules_of(user: int) -> list[Acl]:
    """The rules of one user: a prefix for the team, and literal names that do not apply to the requests."""
    principal, team = f"User:user{user}", AclResource.topic(f"team{user % TEAMS}.", prefixed=True)
    rules = [Acl(team, principal, operation) for operation in (AclOperation.READ, AclOperation.WRITE)]
    literal = [AclResource.topic(f"team{user % TEAMS}.topic{user}-{number}") for number in range(7)]
    rules += [Acl(each, principal, AclOperation.ALL) for each in literal]
    secret = AclResource.topic(f"team{user % TEAMS}.secret", prefixed=True)
    return [*rules, Acl(secret, principal, AclOperation.READ, permission=_DENY)]


def few_rules() -> list[Acl]:
    """Ten rules with the same rights for everyone."""
    team, other = AclResource.topic("team", prefixed=True), AclResource.topic("other", prefixed=True)
    rules = [Acl(team, "User:*", operation) for operation in (AclOperation.READ, AclOperation.WRITE)]
    return rules + [Acl(other, f"User:user{number}", AclOperation.ALL) for number in range(RULES_OF_A_USER - 2)]


class Node(OttlaProcess):
    """A broker with a PLAINTEXT and, unless it is of an older tree, a SASL_PLAINTEXT listener."""

    def __init__(self, directory: Path, *, rules: Sequence[Acl] | None = None, tree: Path | None = None) -> None:
        """`rules` are for the authorizer; None: without an authorizer. `tree` has the source; None: this tree."""
        super().__init__(directory)
        self.prefix: list[str] = []
        """Words before the command line: a program that runs it, such as Valgrind."""
        self._is_prepared = False
        plain, secured = free_ports(2)
        self.addresses = {"PLAINTEXT": ("127.0.0.1", plain), "SASL_PLAINTEXT": ("127.0.0.1", secured)}
        self._rules = rules
        self._tree = tree
        names = ["PLAINTEXT"] if tree else list(self.addresses)
        users = " ".join(f'user_user{number}="pw"' for number in range(USERS))
        self._settings = {
            "log.dirs": str(self.data),
            "listeners": ",".join(f"{name}://127.0.0.1:{self.addresses[name][1]}" for name in names),
        }
        if not tree:
            module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            self._settings |= {
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} {users};",
            }
        if rules is not None:
            self._settings |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }

    def command(self) -> list[str]:
        """The command line that starts it, with the source of its tree."""
        path = self.directory / "server.properties"
        path.touch(0o600)
        path.write_text(format_properties(self._settings))
        words = [sys.executable, "-m", "ottla.cli.main", "up", "--config", str(path)]
        words = self.prefix + words
        return words if self._tree is None else ["env", f"PYTHONPATH={self._tree / 'src'}", *words]

    def prepare(self) -> None:
        """Create the topics and the rules, at the first start."""
        if self._is_prepared:
            return
        self._is_prepared = True
        with Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(topic_of(team), 1, 1) for team in range(TEAMS)])
            rules = list(self._rules or ())
            for begin in range(0, len(rules), 1000):
                admin.create_acls(rules[begin : begin + 1000])

    def cpu_ns(self) -> int:
        """Processor time of all threads of the process so far."""
        # The clock of another process: see clock_getcpuclockid(3).
        return time.clock_gettime_ns(~self.pid << 3 | 2)


class Client:
    """A connection of one user."""

    def __init__(self, address: tuple[str, int], user: int, *, logs_in: bool) -> None:
        self._socket = socket.create_connection(address, 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")
        if logs_in:
            self.ask([frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1)])
            token = f"\0user{user}\0pw".encode()
            answer = self.ask([frame_of(SaslAuthenticateRequest(auth_bytes=token), 2)])
            assert b"Authentication failed" not in answer
        topic = topic_of(user)
        # Retention would delete records of 1970 while the rounds go on.
        now_ms = int(time.time() * 1000)
        data = [PartitionProduceData(0, encode_batch([(now_ms, None, bytes(100), [])]))]
        topics = [TopicProduceData(name=topic, partition_data=data)]
        wanted = [FetchTopic(topic=topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=200)])]
        fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=200, topics=wanted)
        self.frames = {
            "Produce": frame_of(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), PRODUCE),
            "Fetch": frame_of(fetch, FETCH),
        }

    def ask(self, frames: Sequence[bytes]) -> bytes:
        """Send the requests at once; the last response."""
        self._socket.sendall(b"".join(frames))
        answer = b""
        for _ in frames:
            answer = self._reader.read(int.from_bytes(self._reader.read(4), "big"))
        return answer

    def check(self) -> None:
        """Both requests succeed: a refused request would be cheap."""
        for api, request, version in (("Produce", ProduceRequest, PRODUCE), ("Fetch", FetchRequest, FETCH)):
            answer = self.ask([self.frames[api]])
            _, position = decode_response_header(answer, request.API_KEY, version)
            response: Any = response_class(request.API_KEY).decode_from(
                memoryview(bytearray(answer)), position, version
            )[0]
            [topic] = response.responses
            [partition] = topic.partition_responses if api == "Produce" else topic.partitions
            assert not partition.error_code, partition

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._socket.close()


def frame_of(request: Message, version: int) -> bytes:
    """The bytes of a request, with their length."""
    return b"".join(encode_request(request, version, 1, "bench"))


class Contender(NamedTuple):
    """A broker, and the clients that send its requests."""

    name: str
    node: Node
    clients: list[Client]

    def microseconds(self, api: str, mode: str) -> float:
        """Processor time of the broker for one request."""
        began = self.node.cpu_ns()
        size = PIPELINED if mode == "pipelined" else 1
        for number in range(REQUESTS // size):
            client = self.clients[number % len(self.clients)]
            client.ask([client.frames[api]] * size)
        return (self.node.cpu_ns() - began) / REQUESTS / 1000


Kind = tuple[str, str]
"""The API, and "serial" or "pipelined"."""
Figures = dict[str, dict[Kind, list[float]]]
"""Costs by contender and kind, one for each round."""


def measure(contenders: Sequence[Contender]) -> dict[str, dict[Kind, float]]:
    """Microseconds of each contender and kind of request: medians of `PASSES` runs in changing order."""
    costs: dict[str, dict[Kind, list[float]]] = {each.name: {kind: [] for kind in KINDS} for each in contenders}
    orders = itertools.cycle(itertools.permutations(contenders))
    for number, order in zip(range(PASSES + 1), orders, strict=False):
        for kind in KINDS:
            for each in order:
                cost = each.microseconds(*kind)
                if number:  # the first pass warms up
                    costs[each.name][kind].append(cost)
    return {name: {kind: statistics.median(each[kind]) for kind in KINDS} for name, each in costs.items()}


@contextlib.contextmanager
def contender(name: str, node: Node, listener: str) -> Iterator[Contender]:
    """Start a broker, and connect its clients: each of another user, and each team has one."""
    with node, contextlib.ExitStack() as stack:
        node.prepare()
        users = range(0, USERS, USERS // TEAMS + 1)
        clients = [Client(node.addresses[listener], user, logs_in=listener != "PLAINTEXT") for user in users]
        for client in clients:
            stack.callback(client.close)
            client.check()
        yield Contender(name, node, clients)


def compare(nodes: dict[str, Node], listener: str, rounds: int) -> Figures:
    """Start and measure the brokers in each round; the first round only prepares them."""
    found: Figures = {name: {kind: [] for kind in KINDS} for name in nodes}
    for number, names in zip(range(rounds + 1), itertools.cycle(itertools.permutations(nodes)), strict=False):
        with contextlib.ExitStack() as stack:
            contenders = [stack.enter_context(contender(name, nodes[name], listener)) for name in names]
            for name, costs in measure(contenders).items() if number else ():
                for kind, cost in costs.items():
                    found[name][kind].append(cost)
    return found


def instructions(nodes: dict[str, Node], listener: str, directory: Path) -> Figures:
    """Instructions of each broker for one request, counted by Callgrind."""
    found: Figures = {}
    for name, node in nodes.items():
        # The topics and the rules are created without Valgrind, which would take minutes.
        with contender(name, node, listener):
            pass
        counts = directory / f"{len(found)}.callgrind"
        node.prefix = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}"]
        with contender(name, node, listener) as each:
            found[name] = {kind: [_counted(each, kind, counts)] for kind in KINDS}
        node.prefix = []
    return found


def _counted(contender: Contender, kind: Kind, counts: Path) -> float:
    contender.microseconds(*kind)  # it warms up
    return statistics.median(_count(contender, kind, counts) for _ in range(COUNTS))


def _count(contender: Contender, kind: Kind, counts: Path) -> float:
    def control(*words: str) -> None:
        command = ["callgrind_control", *words, str(contender.node.pid)]
        subprocess.run(command, check=True, timeout=60, capture_output=True)

    control("-i", "on")
    contender.microseconds(*kind)
    control("-d")
    control("-i", "off")
    newest = max(counts.parent.glob(f"{counts.name}.*"), key=lambda path: path.stat().st_mtime_ns)
    total = re.findall(r"^(?:totals|summary): (\d+)", newest.read_text(), re.MULTILINE)[-1]
    return int(total) / REQUESTS


def ratios(found: Figures, name: str, base: str, kind: Kind) -> list[float]:
    """The cost of one contender over another's in each round, ascending."""
    return sorted(each / other for each, other in zip(found[name][kind], found[base][kind], strict=True))


def _cell(found: Figures, name: str, kind: Kind) -> str:
    """The median, and the ratio to the first contender with its quartiles."""
    base = next(iter(found))
    cost = statistics.median(found[name][kind])
    text = f"{cost:,.0f}" if cost > 1000 else f"{cost:.1f} us"
    if name == base:
        return text
    every = ratios(found, name, base, kind)
    if len(every) == 1:
        return f"{text} {every[0]:.3f}"
    low, middle, high = statistics.quantiles(every, n=4, method="inclusive")
    return f"{text} {middle:.3f} ({low:.3f}-{high:.3f})"


def show(title: str, found: Figures) -> None:
    """Print the figures; the first contender is the base of the ratios."""
    table = Table(title=title, title_justify="left")
    for heading in ("broker", *(f"{api}, {mode}" for api, mode in KINDS)):
        table.add_column(heading, justify="left" if heading == "broker" else "right")
    for name in found:
        table.add_row(name, *(_cell(found, name, kind) for kind in KINDS))
    Console(width=140).print(table)


def main() -> int:
    """Print the tables; exit code 1 if many rules cost more than few of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--same", action="store_true", help="compare two brokers without an authorizer, too")
    parser.add_argument("--older", type=Path, help="a source tree of an older commit, with its compiled modules")
    parser.add_argument("--instructions", action="store_true", help="count instructions with Valgrind")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        home = Path(name)

        def cost(title: str, nodes: dict[str, Node], listener: str) -> Figures:
            if arguments.instructions:
                found = instructions(nodes, listener, home)
            else:
                found = compare(nodes, listener, arguments.rounds)
            show(title, found)
            return found

        many = [rule for user in range(USERS) for rule in rules_of(user)]
        nodes = {
            NO_AUTHORIZER: Node(home / "none"),
            FEW: Node(home / "few", rules=few_rules()),
            MANY: Node(home / "many", rules=many),
        }
        if arguments.same:
            nodes[SAME] = Node(home / "same")
        found = cost("One request, SASL_PLAINTEXT", nodes, "SASL_PLAINTEXT")
        if arguments.older is not None:
            trees = {OLDER: Node(home / "older", tree=arguments.older.absolute()), NOW: Node(home / "now")}
            cost("The same, PLAINTEXT without an authorizer", trees, "PLAINTEXT")
    return int(any(statistics.median(ratios(found, MANY, FEW, kind)) > LIMIT for kind in KINDS))


if __name__ == "__main__":
    sys.exit(main())
