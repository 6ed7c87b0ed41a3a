"""Settings: their rows, the configurations that a broker accepts, and effective values."""

import pytest
from tools.pages.configuration import markdown

from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    OTTLA_DEFAULTS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    Listener,
    check_broker,
    check_broker_together,
    check_group_together,
    check_topic,
    check_topic_together,
    parse_properties,
    parse_value,
    resolve_broker,
    resolve_broker_default,
    resolve_group,
    resolve_topic,
)

ALL = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()]

# The server.properties of Kafka's download for one node, without comments.
SAMPLE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


# -- rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_row_is_complete_and_its_default_is_allowed(setting) -> None:
    assert setting.type_code in range(1, 10)
    assert setting.importance in {"high", "medium", "low"}
    assert setting.update in {"read-only", "per-broker", "cluster-wide"}
    assert setting.status in {"works", "reported", "refused"}
    assert setting.doc.endswith(".")
    if setting.default is not None:
        assert parse_value(setting, setting.default_text or "") == setting.default


def test_defaults_that_differ_from_kafkas_are_valid() -> None:
    config = BrokerConfig({})
    for name, (text, reason) in OTTLA_DEFAULTS.items():
        assert config[name] == parse_value(BROKER_SETTINGS[name], text)
        assert reason.endswith(".")


def test_page_of_settings_has_every_row() -> None:
    page = markdown()
    assert all(f"| `{setting.name}` |" in page for setting in ALL)


def test_password_is_never_shown() -> None:
    setting = BROKER_SETTINGS["ssl.key.password"]
    config = BrokerConfig({"ssl.key.password": "hunter2"})
    resolved = resolve_broker({}, {}, config)["ssl.key.password"]
    assert setting.sensitive
    assert resolved.text is None
    assert [synonym.text for synonym in resolved.synonyms] == [None]
    assert not any("hunter2" in warning for warning in config.warnings)


COMBINED = {
    "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
}
ONLY_BROKER = {"process.roles": "broker", "node.id": "4", "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093"}
ONLY_CONTROLLER = {
    "process.roles": "controller",
    "controller.quorum.bootstrap.servers": "a:9093,[::1]:9093",
    "listeners": "CONTROLLER://127.0.0.1:9093",
}


# -- a broker --------------------------------------------------------------------------------------------------


def test_default_broker_listens_only_on_this_machine() -> None:
    config = BrokerConfig({})
    assert config.listeners == config.advertised == [Listener("PLAINTEXT", "127.0.0.1", 9092)]
    assert (config.node_id, config.controller_listeners, config.warnings) == (1, [], [])
    assert config.int("offsets.topic.replication.factor") == 1


def test_kafkas_sample_configuration_is_accepted() -> None:
    config = BrokerConfig(parse_properties(SAMPLE))
    assert config.listeners == [Listener("PLAINTEXT", "", 9092)]
    assert config.controller_listeners == [Listener("CONTROLLER", "", 9093)]
    assert config.advertised == [Listener("PLAINTEXT", "localhost", 9092)]
    assert config.advertised_controllers == [Listener("CONTROLLER", "localhost", 9093)]
    assert config.log_dirs == ["/tmp/kraft-combined-logs"]
    # One recovery thread is not the default and has no effect here.
    assert [warning.partition("=")[0] for warning in config.warnings] == ["num.recovery.threads.per.data.dir"]


def test_listeners_are_split_into_clients_and_controllers() -> None:
    config = BrokerConfig(
        {
            "listeners": "inside://[::1]:0,OUTSIDE://0.0.0.0:9094",
            "advertised.listeners": "OUTSIDE://kafka.example.org:443,INSIDE://:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert config.listeners == [Listener("INSIDE", "::1", 0), Listener("OUTSIDE", "0.0.0.0", 9094)]
    assert [listener.name for listener in config.advertised] == ["INSIDE", "OUTSIDE"]
    assert config.advertised[0].host
    assert config.advertised[1] == Listener("OUTSIDE", "kafka.example.org", 443)
    assert config.inter_broker_listener == "INSIDE"
    assert str(config.listeners[0]) == "INSIDE://[::1]:0"


def test_nodes_of_a_cluster_have_kafkas_defaults_of_replication() -> None:
    for properties in (COMBINED, ONLY_BROKER, ONLY_CONTROLLER):
        config = BrokerConfig(properties)
        assert config.int("offsets.topic.replication.factor") == 3
        assert config.int("transaction.state.log.min.isr") == 2
        assert not config.formats_itself
        described = resolve_broker({}, {}, config)["offsets.topic.replication.factor"]
        assert (described.text, described.source) == ("3", ConfigSource.DEFAULT)
    alone = BrokerConfig({**COMBINED, "controller.quorum.voters": "1@a:9093"})
    assert (alone.int("offsets.topic.replication.factor"), alone.formats_itself) == (1, True)
    assert (
        BrokerConfig(COMBINED | {"offsets.topic.replication.factor": "2"}).int("offsets.topic.replication.factor") == 2
    )


def test_roles_and_quorum_are_parsed() -> None:
    combined, broker, controller = (BrokerConfig(each) for each in (COMBINED, ONLY_BROKER, ONLY_CONTROLLER))
    assert combined.roles.is_broker
    assert combined.roles.is_controller
    assert combined.roles.voters == {1: ("a", 9093), 2: ("b", 9093), 3: ("c", 9093)}
    assert (broker.roles.is_broker, broker.roles.is_controller, broker.controller_listeners) == (True, False, [])
    assert (controller.roles.is_broker, controller.roles.is_controller, controller.listeners) == (False, True, [])
    assert controller.roles.bootstrap_servers == (("a", 9093), ("::1", 9093))
    assert controller.inter_broker_listener == ""


@pytest.mark.parametrize(
    ("server", "is_own"), [("localhost:9093", True), ("localhost:9095", False), ("other:9093", False)]
)
def test_node_that_is_its_own_only_bootstrap_server_formats_itself(server: str, is_own: bool) -> None:
    listeners = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "node.id": "2"}
    assert BrokerConfig({**listeners, "controller.quorum.bootstrap.servers": server}).formats_itself == is_own


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"num.partitions": "zero"}, "num.partitions"),
        ({"num.partitions": "0"}, "at least 1"),
        ({"node.id": "1", "broker.id": "2"}, "`broker.id`"),
        ({"node.id": "-3"}, "at least 0"),
        ({"process.roles": "broker"}, "either controller.quorum.bootstrap.servers must contain"),
        ({"process.roles": "controller"}, "either controller.quorum.bootstrap.servers must contain"),
        ({"process.roles": "proxy"}, "String must be one of: broker, controller"),
        ({"process.roles": "broker", "controller.quorum.voters": "1@a:1"}, "must not be included in the set of voters"),
        (ONLY_BROKER | {"listeners": "PLAINTEXT://:1,CONTROLLER://:2"}, "must not contain a value appearing in"),
        (ONLY_BROKER | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "name CONTROLLER defined in"),
        (ONLY_CONTROLLER | {"listeners": "PLAINTEXT://:1,CONTROLLER://:2"}, "must only contain KRaft controller"),
        ({"listeners": "PLAINTEXT://host"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999"}, "65535"),
        ({"listeners": "FRONT://:9092"}, "listener.security.protocol.map"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "TLS of PLAINTEXT is not one of PLAINTEXT, SSL"),
        (ONLY_BROKER | {"listeners": "SSL://:9092"}, "an explicit security mapping"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "name"),
        ({"listeners": "CONTROLLER://:9093"}, "at least one must not be in"),
        ({"listeners": ""}, "must not be empty"),
        ({"listeners": "PLAINTEXT://:1", "controller.listener.names": "OTHER"}, "controller.listener.names=OTHER"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot connect to 0.0.0.0"),
        ({"advertised.listeners": "SSL://host:1"}, "same listeners"),
        ({"inter.broker.listener.name": "SSL"}, "inter.broker.listener.name=SSL"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "NAME:PROTOCOL"),
        ({"controller.quorum.voters": "1@a:1,2@b:1"}, "must contain at least one value appearing in the 'listeners'"),
        (COMBINED | {"controller.listener.names": "CONTROLLER,OTHER"}, "must only contain values appearing in"),
        ({"controller.quorum.voters": "7@a:1,8@b:2"}, "the node id 1 must be included in the set of voters"),
        ({"controller.quorum.voters": "a:1"}, "in the form `{id}@{host}:{port}`"),
        ({"controller.quorum.voters": "1@2@a:1"}, "in the form `{id}@{host}:{port}`"),
        ({"controller.quorum.voters": "x@a:1"}, "Failed to parse voter ID as an integer from x"),
        ({"controller.quorum.voters": "1@a"}, "Failed to parse host name from entry 1@a"),
        ({"controller.quorum.bootstrap.servers": "a"}, "Failed to parse host name from a"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "HOST:COUNT"),
        ({"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"}, "greater than"),
        ({"log.dirs": ""}, "log.dir"),
        ({"broker.id": "-7"}, "at least 0"),
        ({"broker.id": "-1"}, "at least 0"),
        ({"offsets.topic.compression.codec": "9"}, "Unknown compression type id: 9"),
        ({"share.coordinator.state.topic.compression.codec": "-1"}, "Unknown compression type id: -1"),
        ({"log.cleaner.io.buffer.load.factor": "nan"}, "Not a number of type DOUBLE"),
        ({"log.cleaner.io.buffer.load.factor": "inf"}, "Not a number of type DOUBLE"),
        ({"log.roll.ms": "-7"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": "-7"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        ({"log.retention.hours": "0"}, "log.retention.ms must be unlimited (-1)"),
        ({"log.flush.interval.ms": "-7"}, "at least 0"),
        ({"log.cleaner.threads": "0"}, "1MB per cleaner thread"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "1MB per cleaner thread"),
        ({"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"}, "conflict topic config"),
        ({"replica.fetch.wait.max.ms": "30001"}, "replica.socket.timeout.ms should always be at least"),
        ({"replica.lag.time.max.ms": "499"}, "less than or equal to replica.lag.time.max.ms"),
        ({"queued.max.request.bytes": "1"}, "larger or equal to socket.request.max.bytes"),
        ({"connections.max.idle.ms": "100"}, "connections.max.idle.ms=100"),
        ({"max.connections.per.ip": "0"}, "can be set to zero only if max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "x:y"}, "HOST:COUNT"),
        ({"max.connections.per.ip.overrides": "b@d:3"}, "contains invalid addresses : b@d"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "Disabling the 'classic' protocol"),
        ({"group.coordinator.rebalance.protocols": ""}, "[consumer, classic, share, streams]"),
        ({"group.consumer.assignors": "mine"}, "Class mine cannot be found"),
        ({"group.consumer.min.session.timeout.ms": "60001"}, "must be greater than or equal to"),
        ({"group.share.max.share.sessions": "1"}, "group.share.max.size"),
        ({"cordoned.log.dirs": "/elsewhere"}, "Missing entries : /elsewhere"),
        ({"sasl.login.class": "no class"}, "Class no class could not be found."),
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, "Java class, which cannot run here"),
        (
            {"authorizer.class.name": "a:b", "super.users": "User:a,admin;admin"},
            "expected a string in format principalType:principalName but got admin",
        ),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol=SSL is not one of the listeners"),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        ({"listener.name.plaintext.ssl.client.auth": "maybe"}, "String must be one of: required, requested, none"),
        ({"remote.log.storage.system.enable": "true"}, "not supported"),
    ],
)
def test_unsupported_configuration_is_an_error_in_one_line(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(properties)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("num.partition", "3", "did you mean num.partitions?"),
        ("retention.ms", "3", "did you mean log.retention.ms?"),
        ("zookeeper.connect", "x", "unknown"),
        ("zookeeper.connection.timeout.ms", "6000", "there is no ZooKeeper"),
        ("listener.name.plaintext.connections.max.idle.ms", "3", "no effect"),
        ("listener.name.PLAINTEXT.max.connections", "3", "lower case, listener.name.plaintext.max.connections"),
        ("listener.name.ssl.ssl.provider", "SunJSSE", "no effect here"),
        ("num.io.threads", "16", "no effect"),
        ("super.users", "User:admin", "authorizer.class.name is empty"),
        ("message.max.bytes", str(2**31 - 1), "socket.request.max.bytes"),
    ],
)
def test_setting_without_effect_is_a_warning(name: str, text: str, words: str) -> None:
    (warning,) = BrokerConfig({name: text}).warnings
    assert name in warning
    assert words in warning


@pytest.mark.parametrize("text", ["Infinity", "-7", "0", "1.5"])
def test_unusable_load_factor_is_a_warning(text: str) -> None:
    (warning,) = BrokerConfig({"log.cleaner.io.buffer.load.factor": text}).warnings
    assert f"log.cleaner.io.buffer.load.factor={text} " in warning
    assert "0.9" in warning


def test_limit_of_connections_per_address_may_be_any_integer() -> None:
    config = BrokerConfig({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": " a.b : 3 ,::1:-7,c:+5"})
    assert config.connections_per_ip == {"a.b": 3, "::1": -7, "c": 5}


def test_broker_id_is_a_synonym_of_node_id() -> None:
    config = BrokerConfig({"broker.id": "7"})
    assert (config.node_id, config.int("node.id"), config.int("broker.id")) == (7, 7, 7)


def test_log_dir_is_a_synonym_of_log_dirs() -> None:
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == ["/a"]
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b,/c"}).log_dirs == ["/b", "/c"]


def test_dynamic_values_override_all_but_read_only_settings() -> None:
    static = BrokerConfig({"max.connections": "10", "message.max.bytes": "1000"})
    now = static.with_dynamic(
        {"max.connections": "30"}, {"max.connections": "20", "num.partitions": "5", "message.max.bytes": "broken"}
    )
    assert (now.int("max.connections"), now.int("num.partitions"), now.int("message.max.bytes")) == (30, 1, 1000)
    assert static.int("max.connections") == 10


def test_typed_access_checks_the_type() -> None:
    config = BrokerConfig({})
    with pytest.raises(TypeError):
        config.int("log.retention.ms")  # not set
    with pytest.raises(TypeError):
        config.int("auto.create.topics.enable")
    with pytest.raises(KeyError):
        config["no.such"]
    assert config.bool("auto.create.topics.enable") is True
    assert config.text("broker.rack") is None
    assert config.items("log.cleanup.policy") == ("delete",)
    assert config.float("log.cleaner.min.cleanable.ratio") == 0.5


# -- effective values ------------------------------------------------------------------------------------------


def test_topic_value_comes_from_the_strongest_layer() -> None:
    static = BrokerConfig({"message.max.bytes": "4000"})
    layers: list[tuple[dict[str, str], dict[str, str], dict[str, str], BrokerConfig]] = [
        ({"max.message.bytes": "1000"}, {"message.max.bytes": "2000"}, {"message.max.bytes": "3000"}, static),
        ({}, {"message.max.bytes": "2000"}, {"message.max.bytes": "3000"}, static),
        ({}, {}, {"message.max.bytes": "3000"}, static),
        ({}, {}, {}, static),
        ({}, {}, {}, BrokerConfig({})),
    ]
    answers = [resolve_topic(*each)["max.message.bytes"] for each in layers]
    assert [answer.value for answer in answers] == [1000, 2000, 3000, 4000, 1048588]
    assert [answer.source for answer in answers] == [1, 2, 3, 4, 5]
    assert [answer.is_default for answer in answers] == [False] * 4 + [True]
    assert [(synonym.name, synonym.text, synonym.source) for synonym in answers[0].synonyms] == [
        ("max.message.bytes", "1000", 1),
        ("message.max.bytes", "2000", 2),
        ("message.max.bytes", "3000", 3),
        ("message.max.bytes", "4000", 4),
        ("message.max.bytes", "1048588", 5),
    ]


@pytest.mark.parametrize(
    ("static", "dynamic", "milliseconds"),
    [
        ({}, {}, 604_800_000),
        ({"log.retention.hours": "2"}, {}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "5"}, {}, 5),
        ({"log.retention.ms": "5"}, {"log.retention.ms": "6"}, 6),
        ({"log.retention.hours": "-1"}, {}, -1),
    ],
)
def test_smallest_unit_of_retention_wins(static: dict[str, str], dynamic: dict[str, str], milliseconds: int) -> None:
    resolved = resolve_topic({}, {}, dynamic, BrokerConfig(static))["retention.ms"]
    assert resolved.value == milliseconds
    assert resolved.text == str(milliseconds)
    # As in Kafka, coarser units are not shown as the topic's synonyms unless the finest is set, too.
    assert resolved.is_default == ("log.retention.ms" not in static)
    assert [synonym.name for synonym in resolved.synonyms][:1] == (
        ["log.retention.ms"] if "log.retention.ms" in static else []
    )


def test_topic_value_is_shown_in_its_parsed_form() -> None:
    overrides = {"min.cleanable.dirty.ratio": " 0.25d ", "retention.ms": "+7", "cleanup.policy": "compact , delete"}
    resolved = resolve_topic(overrides, {}, {}, BrokerConfig({"log.retention.hours": "2"}))
    assert resolved["min.cleanable.dirty.ratio"].synonyms[0].text == "0.25"
    assert resolved["cleanup.policy"].synonyms[0].text == resolved["cleanup.policy"].text == "compact,delete"
    assert [synonym.text for synonym in resolved["retention.ms"].synonyms] == ["7"]
    everywhere = resolve_broker_default({"message.max.bytes": " +7 "})["message.max.bytes"]
    assert (everywhere.value, everywhere.text) == (7, " +7 ")


def test_group_setting_without_broker_synonym_shows_its_own_default() -> None:
    resolved = resolve_group({"share.auto.offset.reset": "earliest"}, {}, {}, BrokerConfig({}))
    shown = [(synonym.text, synonym.source) for synonym in resolved["share.auto.offset.reset"].synonyms]
    assert shown == [("earliest", ConfigSource.GROUP), ("latest", ConfigSource.DEFAULT)]


def test_segments_roll_by_hours_or_milliseconds() -> None:
    assert resolve_topic({}, {}, {}, BrokerConfig({"log.roll.hours": "1"}))["segment.ms"].value == 3_600_000
    config = BrokerConfig({"log.roll.hours": "1", "log.roll.ms": "9"})
    assert resolve_topic({}, {}, {}, config)["segment.ms"].value == 9
    assert resolve_topic({}, {}, {}, BrokerConfig({}))["flush.ms"].value == 2**63 - 1


def test_every_setting_of_a_topic_has_a_value_of_its_type() -> None:
    for name, entry in resolve_topic({}, {}, {}, BrokerConfig({})).items():
        assert entry.text == TOPIC_SETTINGS[name].default_text
        assert entry.value == TOPIC_SETTINGS[name].default


def test_broker_describes_its_sources() -> None:
    resolved = resolve_broker(
        {"max.connections": "7"},
        {"max.connections": "8", "message.max.bytes": "9"},
        BrokerConfig({"num.partitions": "3"}),
    )
    assert (resolved["max.connections"].value, resolved["max.connections"].source) == (7, ConfigSource.DYNAMIC_BROKER)
    assert resolved["message.max.bytes"].source == ConfigSource.DYNAMIC_DEFAULT_BROKER
    assert (resolved["num.partitions"].value, resolved["num.partitions"].is_read_only) == (3, True)
    assert resolved["num.io.threads"].is_default
    assert resolved["log.retention.hours"].value == 168
    assert resolved["log.retention.ms"].value is None


def test_description_of_hours_excludes_the_value_of_milliseconds() -> None:
    config = BrokerConfig({"log.retention.ms": "5", "log.retention.hours": "2"})
    resolved = resolve_broker({}, {}, config)
    assert (resolved["log.retention.hours"].value, resolved["log.retention.ms"].value) == (2, 5)


def test_default_broker_resource_describes_only_its_own_settings() -> None:
    resolved = resolve_broker_default({"max.connections": "8", "strange": "1"})
    assert {name: entry.source for name, entry in resolved.items()} == {"max.connections": 3}


def test_group_value_overrides_the_brokers() -> None:
    config = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    resolved = resolve_group({"consumer.heartbeat.interval.ms": "6000"}, {}, {}, config)
    assert (resolved["consumer.session.timeout.ms"].value, resolved["consumer.session.timeout.ms"].source) == (50000, 4)
    assert resolved["consumer.heartbeat.interval.ms"].source == ConfigSource.GROUP
    check_group_together(resolved, config)


@pytest.mark.parametrize(
    "overrides",
    [
        {"consumer.session.timeout.ms": "60001"},
        {"consumer.session.timeout.ms": "44999"},
        {"streams.num.standby.replicas": "3"},
        {"share.delivery.count.limit": "11"},
    ],
)
def test_group_value_beyond_the_brokers_limits_is_rejected(overrides: dict[str, str]) -> None:
    config = BrokerConfig({})
    with pytest.raises(KafkaError, match=next(iter(overrides)).replace(".", r"\.")):
        check_group_together(resolve_group(overrides, {}, {}, config), config)


# -- changes while the broker runs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "cluster_wide", "words"),
    [
        ("num.partitions", "3", False, "Cannot update these configs dynamically"),
        ("listeners", "PLAINTEXT://:1", True, "broker id must be specified"),
        ("ssl.keystore.location", "/k", False, "only per-listener"),
        ("log.retention.ms", "x", True, "Not a number of type LONG"),
        ("no.such", "1", False, "Unknown"),
    ],
)
def test_unsupported_change_is_rejected(name: str, text: str, cluster_wide: bool, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as caught:
        check_broker({name: text}, cluster_wide=cluster_wide)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("num.io.threads", "3", "num.io.threads=3, value should be at least half the current value 8"),
        ("num.io.threads", "17", "num.io.threads=17, value should not be greater than double the current value 8"),
        ("log.cleaner.threads", "3", "Log cleaner threads cannot be increased to more than double the current value 1"),
        ("max.connections", "0", "Invalid max.connections 0"),
        ("max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
        ("log.local.retention.ms", "-1", "Value must not be -1 as log.retention.ms value is set as 604800000."),
        ("log.roll.ms", "-7", "log.roll.ms must be greater than or equal to 1"),
        ("log.roll.jitter.ms", "-7", "log.roll.jitter.ms must be greater than or equal to 0"),
        ("max.connections.per.ip.overrides", "x:y", "HOST:COUNT"),
        ("max.connections.per.ip", "0", "can be set to zero only if"),
        ("log.cleaner.max.compaction.lag.ms", "1", None),
        ("num.io.threads", "16", None),
    ],
)
def test_change_is_checked_against_the_other_settings(name: str, text: str, words: str | None) -> None:
    static = BrokerConfig({})
    after = static.with_dynamic({name: text}, {})
    if words is None:
        check_broker_together(static, after)
        return
    with pytest.raises(KafkaError) as caught:
        check_broker_together(static, after)
    assert words in str(caught.value)


def test_change_without_effect_is_reported() -> None:
    assert check_broker({"log.retention.ms": "1000"}, cluster_wide=True) == []
    (warning,) = check_broker({"num.io.threads": "4"}, cluster_wide=True)
    assert "no effect" in warning
    assert "no effect" in (check_topic("preallocate", "true") or "")


def test_topic_cannot_enable_tiered_storage() -> None:
    with pytest.raises(KafkaError, match="Tiered Storage functionality is disabled"):
        check_topic("remote.storage.enable", "true")
    assert check_topic("remote.storage.enable", "false") is None


def test_contradicting_compaction_lags_are_rejected() -> None:
    overrides = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms \(10\) > max\.compaction\.lag\.ms \(9\)"):
        check_topic_together("orders", resolve_topic(overrides, {}, {}, BrokerConfig({})))
