"""Access control lists of Ottla and of stock Kafka, side by side: the same requests, tools and answers.

Both brokers have StandardAuthorizer, and the tests are a super user. The last rule that a test adds is removed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from ottla.protocol.message import Message
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from tests.clients.test_answers_in_detail import Asking
from tests.clients.wire import ConnectionClosed
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import StockKafka

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS;User:admin"}
EVERYTHING = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
VERSIONS = (1, 2, 3)
CLOSED = "the connection was closed"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of Ottla and of stock Kafka, with authorizers."""
    directory = tmp_path_factory.mktemp("acls")
    ottla = OttlaProcess(directory / "ottla", SETTINGS)
    ottla.start()
    try:
        with StockKafka(directory / "stock", overrides=SETTINGS) as stock:
            yield ottla.bootstrap, stock.bootstrap
    finally:
        ottla.stop()
        ottla.assert_no_traceback()


@pytest.fixture(autouse=True)
def _no_rules_are_left(both: tuple[str, str]) -> Iterator[None]:
    yield
    for address in both:
        ask(address, DeleteAclsRequest([EVERYTHING]), 3)


def ask(address: str, request: Message, version: int) -> Any:
    """The response as plain values without an order, or CLOSED."""
    with Asking(address) as connection:
        try:
            return plain(connection.send_message(request, version))
        except ConnectionClosed:
            return CLOSED


def plain(value: Any) -> Any:
    """Structs as tuples; lists of rules sorted, because Kafka returns them in the order of a hash table."""
    if isinstance(value, list):
        items = [plain(item) for item in value]
        is_set = (bool(items) and type(value[0]).__name__ in ("DescribeAclsResource", "AclDescription")) or (
            bool(items) and type(value[0]).__name__ == "DeleteAclsMatchingAcl"
        )
        return sorted(items, key=repr) if is_set else items
    names = getattr(type(value), "__annotations__", None)
    if isinstance(value, int | str | None) or names is None:
        return value
    return {name: plain(getattr(value, name)) for name in names if name != "throttle_time_ms" and name[0] != "_"}


def assert_same(both: tuple[str, str], request: Message, versions: tuple[int, ...] = VERSIONS) -> Any:
    """Ask both brokers in each version, and return Ottla's last response."""
    for version in versions:
        mine, stock = (ask(address, request, version) for address in both)
        assert mine == stock, (request, version)
    return mine


def rule(
    name: str = "orders",
    kind: int = 2,
    pattern: int = 3,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = 3,
    permission: int = 3,
) -> AclCreation:
    return AclCreation(kind, name, pattern, principal, host, operation, permission)


def test_rules_are_checked_as_by_stock_kafka(both: tuple[str, str]) -> None:
    odd = [
        rule(),
        rule(),  # twice
        rule(name=""),
        rule(name="*"),
        rule(name="*", pattern=4),
        rule(kind=1),
        rule(kind=4, name="my-cluster"),
        rule(kind=4, name="kafka-cluster"),
        rule(kind=4, name=""),
        rule(kind=7, name="User:bob", operation=13),
        rule(kind=99),
        rule(pattern=1),
        rule(pattern=2),
        rule(pattern=99),
        rule(operation=1),
        rule(operation=2),
        rule(operation=15, kind=5),
        rule(operation=99),
        rule(permission=1),
        rule(permission=2),
        rule(permission=99),
        rule(principal="alice"),
        rule(principal=""),
        rule(principal=":"),
        rule(principal="Group:staff:x"),
        rule(host=""),
        rule(host="host.example.com"),
        rule(operation=11, kind=3),  # an operation that groups do not have
        rule(name="with space/and \u00fcml\u00e4ut\n"),
    ]
    for one in odd:
        assert_same(both, CreateAclsRequest([one]), (3,))
    assert_same(both, CreateAclsRequest(odd))
    found = assert_same(both, DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    assert len(found["resources"]) > 5


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_number_zero_closes_the_connection(both: tuple[str, str], field: str) -> None:
    created = rule()
    setattr(created, field, 0)
    assert assert_same(both, CreateAclsRequest([created])) == CLOSED
    other = {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}.get(field, field)
    described, deleted = (
        DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        DeleteAclsFilter(1, None, 1, None, None, 1, 1),
    )
    setattr(described, other, 0)
    setattr(deleted, other, 0)
    assert assert_same(both, described) == CLOSED
    assert assert_same(both, DeleteAclsRequest([deleted])) == CLOSED


RULES = [
    rule(name, kind, pattern, principal, host, operation, permission)
    for name, kind, pattern in (("orders", 2, 3), ("ord", 2, 4), ("*", 2, 3), ("orders", 3, 3), ("kafka-cluster", 4, 3))
    for principal, host in (("User:alice", "*"), ("User:*", "10.0.0.7"))
    for operation, permission in ((3, 3), (2, 2), (8, 3))
]
FILTERS = [
    *product((1, 2, 3, 99), (None, "orders", "*", "ordinary", ""), (1, 2, 3, 4, 99), (None,), (None,), (1,), (1,)),
    *product(
        (1,),
        (None,),
        (1,),
        (None, "User:alice", "User:*", "alice"),
        (None, "*", "10.0.0.7"),
        (1, 2, 3, 99),
        (1, 2, 3, 99),
    ),
]


def test_filters_select_the_same_rules(both: tuple[str, str]) -> None:
    assert_same(both, CreateAclsRequest(RULES), (3,))
    for chosen in FILTERS:
        assert_same(both, DescribeAclsRequest(*chosen), (3,))
    found = assert_same(both, DescribeAclsRequest(2, "orders", 2, None, None, 1, 1))
    assert len(found["resources"]) == 3


def test_filters_delete_the_same_rules(both: tuple[str, str]) -> None:
    for chosen in FILTERS[::7]:
        assert_same(both, CreateAclsRequest(RULES), (3,))
        assert_same(both, DeleteAclsRequest([DeleteAclsFilter(*chosen)]), (3,))
        assert_same(both, DescribeAclsRequest(1, None, 1, None, None, 1, 1), (3,))
    assert_same(both, CreateAclsRequest(RULES), (3,))
    # Two filters that select the same rules, one without rules, and none.
    several = [DeleteAclsFilter(2, "orders", each, None, None, 1, 1) for each in (2, 3, 99)]
    assert_same(both, DeleteAclsRequest([*several, DeleteAclsFilter(7, "x", 3, None, None, 1, 1)]), (3,))
    assert_same(both, DeleteAclsRequest([]))
    assert_same(both, CreateAclsRequest([]))


def test_requests_for_too_many_rules_fail_as_a_whole(both: tuple[str, str]) -> None:
    def rules(first: int, count: int) -> CreateAclsRequest:
        return CreateAclsRequest([rule(f"t{number}") for number in range(first, first + count)])

    refused = assert_same(both, rules(0, 10_001), (3,))
    assert {result["error_code"] for result in refused["results"]} == {44}
    assert assert_same(both, DescribeAclsRequest(1, None, 1, None, None, 1, 1), (3,))["resources"] == []
    assert_same(both, rules(0, 10_000), (3,))
    assert_same(both, rules(9_999, 2), (3,))
    refused = assert_same(both, DeleteAclsRequest([EVERYTHING]), (3,))
    assert refused["filter_results"][0]["error_message"] == (
        "Cannot remove more than 10000 acls in a single delete operation."
    )
    one = DeleteAclsRequest([DeleteAclsFilter(2, "t10000", 3, None, None, 1, 1)])
    assert len(assert_same(both, one, (3,))["filter_results"][0]["matching_acls"]) == 1


COMMANDS = [
    ("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders"),
    (
        "--add",
        "--allow-principal",
        "User:alice",
        "--producer",
        "--topic",
        "tx",
        "--transactional-id",
        "tid",
        "--idempotent",
    ),
    (
        "--add",
        "--allow-principal",
        "User:bob",
        "--allow-principal",
        "User:carol",
        "--consumer",
        "--topic",
        "orders",
        "--group",
        "g",
    ),
    (
        "--add",
        "--allow-principal",
        "User:bob",
        "--allow-host",
        "10.0.0.7",
        "--deny-principal",
        "User:bad",
        "--operation",
        "Read",
        "--topic",
        "*",
    ),
    (
        "--add",
        "--allow-principal",
        "User:bob",
        "--operation",
        "All",
        "--topic",
        "pre",
        "--resource-pattern-type",
        "prefixed",
    ),
    ("--add", "--allow-principal", "User:bob", "--operation", "Alter", "--cluster"),
    ("--list",),
    ("--list", "--principal", "User:bob"),
    ("--list", "--topic", "prefer", "--resource-pattern-type", "match"),
    (
        "--remove",
        "--force",
        "--allow-principal",
        "User:bob",
        "--operation",
        "All",
        "--topic",
        "pre",
        "--resource-pattern-type",
        "prefixed",
    ),
    ("--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", "orders"),
    ("--remove", "--force", "--topic", "orders"),
    ("--list",),
]


def test_stock_kafka_acls_tool_prints_the_same(both: tuple[str, str]) -> None:
    for command in COMMANDS:
        mine, stock = (sorted(re.split(r"\n", Tools(address).ok("acls", *command))) for address in both)
        assert mine == stock, command
