"""Settings at the controller: both requests to alter them, edited lists, names of resources, cordoned directories."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode
from ottla.common.slices import finish
from ottla.controller import Outcome
from ottla.controller.configs import CORDONED
from ottla.controller.state import MAX_RECORDS_PER_REQUEST
from ottla.metadata.features import CORDONED_FROM
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from ottla.protocol import metadata_records as m
from ottla.protocol.messages import alter_configs as legacy
from ottla.protocol.messages import incremental_alter_configs as incremental

from .support import Cluster
from .test_cluster import APPEND, DELETE, SET, SUBTRACT, alter, with_topic

NAMES = ["retention.ms", "segment.ms", "max.message.bytes", "preallocate.enable"]


def replace_all(cluster: Cluster, kind: int, name: str, values: dict[str, str | None]) -> tuple[int, str | None]:
    """Send AlterConfigs for one resource; return its error."""
    configs = [legacy.AlterableConfig(key, value) for key, value in values.items()]
    request = legacy.AlterConfigsRequest(resources=[legacy.AlterConfigsResource(kind, name, configs)])
    [result] = cluster.do(cluster.controller.alter_configs(request)).responses
    return result.error_code, result.error_message


# -- one path for both requests --------------------------------------------------------------------------------------

VALUES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3).map(str))


@settings(max_examples=20, deadline=None)
@given(before=VALUES, after=VALUES)
def test_replacing_all_settings_has_the_effect_of_single_changes(before: dict[str, str], after: dict[str, str]) -> None:
    replaced, changed = with_topic(), with_topic()
    for cluster in (replaced, changed):
        assert alter(cluster, TOPIC, "t", *((name, SET, value) for name, value in before.items())) == (0, None)
    replacement: dict[str, str | None] = dict(after)
    assert replace_all(replaced, TOPIC, "t", replacement) == (0, None)
    single = [(name, SET, value) for name, value in after.items()]
    deleted = [(name, DELETE, None) for name in before if name not in after]
    assert alter(changed, TOPIC, "t", *single, *deleted) == (0, None)
    assert replaced.controller.image.config(TOPIC, "t") == after
    assert replaced.controller.image.configs == changed.controller.image.configs


@settings(max_examples=20, deadline=None)
@given(values=VALUES)
def test_setting_of_a_topic_is_written_only_if_it_changes(values: dict[str, str]) -> None:
    cluster = with_topic()
    alter(cluster, TOPIC, "t", *((name, SET, value) for name, value in values.items()))
    configs = [incremental.AlterableConfig(name, SET, value) for name, value in values.items()]
    resource = incremental.AlterConfigsResource(TOPIC, "t", configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    assert finish(cluster.controller.incremental_alter_configs(request)).records == []


def test_setting_of_a_broker_is_written_again_so_that_it_reloads_its_files() -> None:
    cluster = with_topic()
    config = incremental.AlterableConfig("log.retention.ms", SET, "5")
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[incremental.AlterConfigsResource(BROKER, "1", [config])]
    )
    for _ in range(2):
        outcome = finish(cluster.controller.incremental_alter_configs(request))
        assert outcome.records == [m.ConfigRecord(BROKER, "1", "log.retention.ms", "5")]
        cluster.do(outcome)


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        ({"retention.ms": None}, ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        ({"retention.ms": "x"}, ErrorCode.INVALID_CONFIG, "Invalid value x"),
        ({"retention.ms": "7", "nonsense": "1"}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: nonsense"),
    ],
)
def test_replacement_with_a_wrong_setting_deletes_nothing(
    values: dict[str, str | None], code: ErrorCode, words: str
) -> None:
    cluster = with_topic()
    alter(cluster, TOPIC, "t", ("segment.ms", SET, "5"))
    found, message = replace_all(cluster, TOPIC, "t", values)
    assert found == code
    assert words in (message or "")
    assert cluster.controller.image.config(TOPIC, "t") == {"segment.ms": "5"}


def test_setting_that_is_named_twice_is_rejected_by_both_requests() -> None:
    cluster = with_topic()
    assert alter(cluster, TOPIC, "t", ("segment.ms", SET, "5"), ("segment.ms", DELETE, None)) == (
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    )
    twice = [legacy.AlterableConfig("segment.ms", value) for value in ("5", "6")]
    request = legacy.AlterConfigsRequest(resources=[legacy.AlterConfigsResource(TOPIC, "t", twice)])
    [result] = cluster.do(cluster.controller.alter_configs(request)).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert not cluster.controller.image.configs


def test_resource_with_too_many_settings_fails_and_the_others_change() -> None:
    cluster = with_topic()
    many = [legacy.AlterableConfig(f"x{n}.ms", "1") for n in range(MAX_RECORDS_PER_REQUEST + 1)]
    rows = [
        legacy.AlterConfigsResource(TOPIC, "t", many),
        legacy.AlterConfigsResource(GROUP, "g", [legacy.AlterableConfig("session.ms", "5")]),
    ]
    results = cluster.do(cluster.controller.alter_configs(legacy.AlterConfigsRequest(resources=rows))).responses
    assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]
    assert dict(cluster.controller.image.configs) == {(GROUP, "g"): {"session.ms": "5"}}


# -- lists -----------------------------------------------------------------------------------------------------------

ITEMS = st.lists(st.sampled_from(["compact", "delete", "a", "b"]), max_size=4)


@settings(max_examples=30, deadline=None)
@given(first=ITEMS.filter(bool), added=ITEMS, removed=ITEMS)
def test_list_is_a_set_in_the_order_in_which_items_were_added(
    first: list[str], added: list[str], removed: list[str]
) -> None:
    cluster = with_topic()
    assert alter(cluster, TOPIC, "t", ("cleanup.policy", SET, " , ".join(first))) == (0, None)
    assert alter(cluster, TOPIC, "t", ("cleanup.policy", APPEND, ",".join(added)))[0] == 0
    present = list(dict.fromkeys([*first, *added]))
    assert cluster.controller.image.config(TOPIC, "t")["cleanup.policy"] == ",".join(present)
    assert alter(cluster, TOPIC, "t", ("cleanup.policy", SUBTRACT, ", ".join(removed)))[0] == 0
    left = ",".join(item for item in present if item not in removed)
    assert cluster.controller.image.config(TOPIC, "t")["cleanup.policy"] == left


@pytest.mark.parametrize(
    ("kind", "name", "operation", "message"),
    [
        (TOPIC, "t", APPEND, "Can't APPEND to key retention.ms because its type is not LIST."),
        (GROUP, "g", SUBTRACT, "Can't SUBTRACT to key retention.ms because its type is not LIST."),
        (BROKER, "1", APPEND, "Config value append is not allowed for config key: retention.ms"),
    ],
)
def test_edit_of_a_setting_that_is_not_a_list_has_kafkas_message(
    kind: int, name: str, operation: int, message: str
) -> None:
    assert alter(with_topic(), kind, name, ("retention.ms", operation, "5")) == (ErrorCode.INVALID_CONFIG, message)


# -- resources -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["9" * 5000, "0" * 5000 + "9" * 11, str(1 << 31), "-", "1.0", "\u00b2", " 1"])
def test_broker_name_that_is_not_a_number_of_32_bits_is_an_invalid_request(name: str) -> None:
    cluster = with_topic()
    code, message = alter(cluster, BROKER, name, ("log.retention.ms", SET, "5"))
    assert (code, message) == (ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    assert not cluster.controller.image.configs


@pytest.mark.parametrize("name", ["1", "2", "", "0" * 5000 + "2"])
def test_settings_of_registered_brokers_and_of_all_brokers_can_change(name: str) -> None:
    cluster = with_topic(brokers=2)
    assert alter(cluster, BROKER, name, ("log.retention.ms", SET, "5")) == (0, None)
    assert cluster.controller.image.config(BROKER, name) == {"log.retention.ms": "5"}


def test_largest_node_id_is_a_number_but_not_registered() -> None:
    code, message = alter(with_topic(), BROKER, str((1 << 31) - 1), ("log.retention.ms", SET, "5"))
    assert (code, message) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "No node with id 2147483647 found.")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (GROUP, "new-group", ErrorCode.NONE),
        (CLIENT_METRICS, "subscription", ErrorCode.NONE),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (TOPIC, "..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_groups_and_subscriptions_need_not_exist_but_need_a_name(kind: int, name: str, code: ErrorCode) -> None:
    cluster = with_topic()
    assert alter(cluster, kind, name, ("interval.ms", SET, "5"))[0] == code
    assert bool(cluster.controller.image.configs) == (code == ErrorCode.NONE)


# -- cordoned directories (KIP-1066) ---------------------------------------------------------------------------------


def cordon(cluster: Cluster, value: str | None, *, is_direct: bool, name: str = "1") -> ErrorCode:
    """Alter `cordoned.log.dirs`, of one broker by default, and return the error code."""
    config = incremental.AlterableConfig(CORDONED, DELETE if value is None else SET, value)
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[incremental.AlterConfigsResource(BROKER, name, [config])]
    )
    [result] = cluster.do(cluster.controller.incremental_alter_configs(request, is_direct=is_direct)).responses
    return ErrorCode(result.error_code)


DIRECTORIES = st.sets(st.sampled_from(["/a", "/b", "/c"]))


@settings(max_examples=30, deadline=None)
@given(present=DIRECTORIES, wanted=DIRECTORIES)
def test_client_of_the_controller_can_only_remove_directories(present: set[str], wanted: set[str]) -> None:
    cluster = Cluster()
    assert cordon(cluster, ", ".join(sorted(present)), is_direct=False) == ErrorCode.NONE
    code = cordon(cluster, ",".join(sorted(wanted)), is_direct=True)
    assert (code == ErrorCode.NONE) == (wanted <= present)
    assert code in (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
    shown = cluster.controller.image.config(BROKER, "1")[CORDONED]
    after = wanted if code == ErrorCode.NONE else present
    assert {item.strip() for item in shown.split(",") if item} == after


def test_client_of_the_controller_can_delete_the_setting_and_cannot_cordon_all_directories() -> None:
    cluster = Cluster()
    assert cordon(cluster, "/a", is_direct=False) == ErrorCode.NONE
    assert cordon(cluster, "*", is_direct=True) == ErrorCode.INVALID_CONFIG
    assert cordon(cluster, None, is_direct=True) == ErrorCode.NONE
    assert not cluster.controller.image.config(BROKER, "1")


@pytest.mark.parametrize(("level", "code"), [(CORDONED_FROM, 0), (CORDONED_FROM - 1, ErrorCode.INVALID_CONFIG)])
def test_cordoned_directories_need_a_metadata_version(level: int, code: int) -> None:
    cluster = Cluster()
    cluster.do(Outcome([m.FeatureLevelRecord("metadata.version", level)], None))
    assert cordon(cluster, "/a", is_direct=False) == code
    assert bool(cluster.controller.image.configs) == (code == 0)


def test_replacement_of_a_brokers_settings_also_removes_its_cordoned_directories() -> None:
    cluster = Cluster()
    assert cordon(cluster, "/a", is_direct=False) == ErrorCode.NONE
    assert replace_all(cluster, BROKER, "1", {"log.retention.ms": "5"}) == (0, None)
    assert cluster.controller.image.config(BROKER, "1") == {"log.retention.ms": "5"}
