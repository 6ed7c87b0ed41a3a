"""DescribeClientQuotas and AlterClientQuotas in all versions: validation, messages, filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.messages import alter_client_quotas as alter
from ottla.protocol.messages import describe_client_quotas as describe
from tests.conftest import RunningBroker

from .support import unique, wait_until
from .test_answers_in_detail import Asking
from .test_refused_requests import every_version

pytestmark = pytest.mark.both

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
INVALID_REQUEST, UNSUPPORTED_VERSION = 42, 35
COMBINED = (
    "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
    "component."
)
Entity = dict[str, str | None]


@pytest.fixture
def asking(broker: RunningBroker) -> Iterator[Asking]:
    with Asking(broker.bootstrap) as connection:
        yield connection


def entry(entity: Entity, *operations: tuple[str, float | None]) -> alter.RequestEntryData:
    """An entry that sets quotas, or removes them with None."""
    return alter.RequestEntryData(
        [alter.RequestEntityData(kind, name) for kind, name in entity.items()],
        [alter.OpData(key, value or 0.0, value is None) for key, value in operations],
    )


def altered(
    asking: Asking, *entries: alter.RequestEntryData, validate_only: bool = False, version: int = 1
) -> list[tuple[Entity, int, str | None]]:
    response: Any = asking.send_message(alter.AlterClientQuotasRequest(list(entries), validate_only), version)
    assert response.throttle_time_ms == 0
    return [
        ({part.entity_type: part.entity_name for part in each.entity}, each.error_code, each.error_message)
        for each in response.entries
    ]


def described(asking: Asking, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    """The entities and their quotas, or the error and its message."""
    rows = [describe.ComponentData(*component) for component in components]
    response: Any = asking.send_message(describe.DescribeClientQuotasRequest(rows, strict), version)
    if response.entries is None:
        return response.error_code, response.error_message
    assert (response.error_code, response.error_message) == (0, "")
    found = [
        (
            frozenset((part.entity_type, part.entity_name) for part in each.entity),
            {pair.key: pair.value for pair in each.values},
        )
        for each in response.entries
    ]
    assert len(found) == len(dict(found))
    return dict(found)


def comes_to(asking: Asking, expected: Any, *components: tuple[str, int, str | None], strict: bool = False) -> None:
    """A broker of stock Kafka applies quotas a moment after they were answered."""
    wait_until(lambda: described(asking, *components, strict=strict) == expected, "the quotas are described")


def key(**names: str | None) -> frozenset[tuple[str, str | None]]:
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


INVALID: list[tuple[Entity, tuple[str, float | None], str]] = [
    ({}, ("producer_byte_rate", 1), "Invalid empty client quota entity"),
    ({"user": ""}, ("producer_byte_rate", 1), "Empty user not supported"),
    ({"client-id": ""}, ("producer_byte_rate", 1), "Empty client-id not supported"),
    ({"ip": ""}, ("connection_creation_rate", 1), "Empty ip not supported"),
    ({"group": "g"}, ("producer_byte_rate", 1), "Unhandled client quota entity type: group"),
    (
        {"user": "u", "ip": "1.2.3.4"},
        ("producer_byte_rate", 1),
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    ({"ip": "not an address"}, ("connection_creation_rate", 1), "not an address is not a valid IP or resolvable host."),
    ({"ip": "1.2.3.4"}, ("producer_byte_rate", 1), "Invalid configuration key producer_byte_rate"),
    ({"ip": "1.2.3.4"}, ("connection_creation_rate", 1.5), "connection_creation_rate cannot be a fractional value."),
    (
        {"ip": None},
        ("connection_creation_rate", 2.0**31),
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
    ({"user": "u"}, ("connection_creation_rate", 1), "Invalid configuration key connection_creation_rate"),
    ({"user": "u"}, ("bandwidth", 1), "Invalid configuration key bandwidth"),
    ({"user": "u"}, ("SCRAM-SHA-256", 1), "Invalid configuration key SCRAM-SHA-256"),
    ({"user": "u"}, ("producer_byte_rate", 0), "Quota producer_byte_rate must be greater than 0"),
    ({"user": None}, ("request_percentage", -1), "Quota request_percentage must be greater than 0"),
    ({"client-id": "c"}, ("producer_byte_rate", 1.5), "producer_byte_rate cannot be a fractional value."),
    (
        {"client-id": None},
        ("consumer_byte_rate", 2.0**64),
        "Proposed value for consumer_byte_rate is too large for a LONG.",
    ),
]


def test_invalid_changes_are_refused_with_the_messages_of_kafka(asking: Asking) -> None:
    wrong = []
    for entity, operation, message in INVALID:
        for version in every_version(alter.AlterClientQuotasRequest.API_KEY):
            found = altered(asking, entry(entity, operation), validate_only=True, version=version)
            if found != [(entity, INVALID_REQUEST, message)]:
                wrong.append((found, message))
    assert not wrong
    # No value is checked for a removal, not even the name of the quota.
    assert altered(asking, entry({"user": "u"}, ("bandwidth", None))) == [({"user": "u"}, 0, None)]


def test_quotas_are_set_changed_described_and_removed(asking: Asking) -> None:
    user, client = unique("user"), unique("client")
    both: Entity = {"user": user, "client-id": client}
    pair = key(user=user, client_id=client)
    for version in every_version(alter.AlterClientQuotasRequest.API_KEY):
        for value in (1000.0, 2000.0):
            set_now = entry(both, ("producer_byte_rate", value), ("request_percentage", 12.5))
            assert altered(asking, set_now, version=version) == [(both, 0, None)]
            comes_to(asking, {pair: {"producer_byte_rate": value, "request_percentage": 12.5}}, ("user", EXACT, user))
        assert described(asking, ("user", EXACT, user), version=0) == described(asking, ("user", EXACT, user))
        assert altered(asking, entry(both, ("producer_byte_rate", None)), version=version) == [(both, 0, None)]
        comes_to(asking, {pair: {"request_percentage": 12.5}}, ("user", EXACT, user))
        assert altered(asking, entry(both, ("request_percentage", None)), version=version) == [(both, 0, None)]
        comes_to(asking, {}, ("user", EXACT, user))


def test_change_that_is_only_validated_has_no_effect(asking: Asking) -> None:
    user = unique("user")
    change = entry({"user": user}, ("controller_mutation_rate", 0.5))
    assert altered(asking, change, validate_only=True) == [({"user": user}, 0, None)]
    assert described(asking, ("user", EXACT, user)) == {}


def test_entity_changes_completely_or_not_at_all(asking: Asking) -> None:
    first, second = unique("first"), unique("second")
    results = altered(
        asking,
        entry({"user": first}, ("producer_byte_rate", 5), ("consumer_byte_rate", -5)),
        entry({"user": second}, ("consumer_byte_rate", 7)),
    )
    expected = {
        (first, INVALID_REQUEST, "Quota consumer_byte_rate must be greater than 0"),
        (second, 0, None),
    }
    assert {(entity["user"], code, message) for entity, code, message in results} == expected
    comes_to(asking, {key(user=second): {"consumer_byte_rate": 7.0}}, ("user", EXACT, second))
    assert described(asking, ("user", EXACT, first)) == {}
    altered(asking, entry({"user": second}, ("consumer_byte_rate", None)))


def test_entity_or_quota_that_appears_again_is_an_error(asking: Asking) -> None:
    user = unique("user")
    message = f"Ignoring duplicate entity ClientQuotaEntity(entries={{user={user}}})"
    twice = entry({"user": user}, ("producer_byte_rate", 5), ("producer_byte_rate", 6))
    assert altered(asking, twice) == [({"user": user}, INVALID_REQUEST, message)]
    assert described(asking, ("user", EXACT, user)) == {}
    changes = [entry({"user": user}, ("producer_byte_rate", value)) for value in (5, 6)]
    assert altered(asking, *changes) == [({"user": user}, INVALID_REQUEST, message)]
    comes_to(asking, {key(user=user): {"producer_byte_rate": 5.0}}, ("user", EXACT, user))
    altered(asking, entry({"user": user}, ("producer_byte_rate", None)))


def test_filters_find_names_defaults_and_types(asking: Asking) -> None:
    user, client, address = unique("user"), unique("client"), "203.0.113.7"
    entities: list[Entity] = [
        {"user": user},
        {"user": user, "client-id": None},
        {"user": user, "client-id": client},
        {"client-id": client},
        {"user": None, "client-id": client},
    ]
    for entity in entities:
        altered(asking, entry(entity, ("consumer_byte_rate", 9)))
    altered(
        asking,
        entry({"ip": address}, ("connection_creation_rate", 9)),
        entry({"ip": None}, ("connection_creation_rate", 8)),
    )
    nine = {"consumer_byte_rate": 9.0}
    of_user = {
        key(user=user): nine,
        key(user=user, client_id=None): nine,
        key(user=user, client_id=client): nine,
    }
    comes_to(asking, {key(ip=address): {"connection_creation_rate": 9.0}}, ("ip", EXACT, address))
    assert described(asking, ("user", EXACT, user)) == of_user
    assert described(asking, ("user", EXACT, user), strict=True) == {key(user=user): nine}
    found = described(asking, ("user", EXACT, user), ("client-id", SPECIFIED, None))
    assert found == {key(user=user, client_id=None): nine, key(user=user, client_id=client): nine}
    found = described(asking, ("user", EXACT, user), ("client-id", DEFAULT, None))
    assert found == {key(user=user, client_id=None): nine}
    found = described(asking, ("client-id", EXACT, client), strict=True)
    assert found == {key(client_id=client): nine}
    found = described(asking, ("user", DEFAULT, None), ("client-id", EXACT, client))
    assert found == {key(user=None, client_id=client): nine}
    assert described(asking, ("ip", DEFAULT, None)) == {key(ip=None): {"connection_creation_rate": 8.0}}
    assert described(asking, ("ip", SPECIFIED, None)).keys() >= {key(ip=None), key(ip=address)}
    everything = described(asking)
    assert everything.keys() >= {frozenset(entity.items()) for entity in entities}
    assert described(asking, strict=True) == {}
    for entity in entities:
        altered(asking, entry(entity, ("consumer_byte_rate", None)))
    removed = "connection_creation_rate", None
    altered(asking, entry({"ip": address}, removed), entry({"ip": None}, removed))
    comes_to(asking, {}, ("ip", SPECIFIED, None))


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", EXACT, "x")], INVALID_REQUEST, "Invalid empty entity type."),
        ([("group", EXACT, "x")], UNSUPPORTED_VERSION, "Unsupported entity type group"),
        (
            [("user", EXACT, "x"), ("user", SPECIFIED, None)],
            INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("user", EXACT, None)],
            INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT, "x")],
            INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", SPECIFIED, "x")],
            INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 3, "x")], INVALID_REQUEST, "Unknown match type 3"),
        (
            [("ip", EXACT, "x"), ("client-id", SPECIFIED, None)],
            INVALID_REQUEST,
            COMBINED,
        ),
    ],
)
def test_invalid_filters_are_refused_with_the_messages_of_kafka(
    asking: Asking, components: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    for version in every_version(describe.DescribeClientQuotasRequest.API_KEY):
        assert described(asking, *components, version=version) == (code, message)
