"""Settings: their rows, what a broker accepts, and which value holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    check_group,
    check_group_together,
    check_topic,
    check_topic_together,
    format_value,
    parse_properties,
    parse_value,
    resolve_broker,
    resolve_broker_default,
    resolve_group,
    resolve_topic,
)
from ottla.config.table import markdown

ALL = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()]

# What Kafka's own download has for one node, comments left out.
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


def test_defaults_of_our_own_are_settings_and_allowed() -> None:
    config = BrokerConfig({})
    for name, (text, reason) in OTTLA_DEFAULTS.items():
        assert config[name] == parse_value(BROKER_SETTINGS[name], text)
        assert reason.endswith(".")


def test_page_of_settings_has_every_row() -> None:
    page = markdown()
    assert all(f"| `{setting.name}` |" in page for setting in ALL)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " -1 ", -1),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ],
)
def test_value_is_read_by_its_type(name: str, text: str, value: object) -> None:
    assert parse_value(TOPIC_SETTINGS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "1_000"),
        ("retention.ms", "٣"),
        ("retention.ms", "-2"),
        ("retention.ms", str(2**63)),
        ("retention.ms", "9" * 5000),
        ("retention.ms", ""),
        ("segment.bytes", "1024"),
        ("segment.bytes", str(2**31)),
        ("cleanup.policy", "remove"),
        ("cleanup.policy", "delete,,compact"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("compression.gzip.level", "0"),
        ("compression.type", "GZIP"),
        ("leader.replication.throttled.replicas", "0-1"),
        ("no.such.setting", "1"),
    ],
)
def test_value_outside_the_limits_is_invalid_config(name: str, text: str) -> None:
    with pytest.raises(KafkaError, match=name.replace(".", r"\.")) as caught:
        check_topic(name, text)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", ["latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"])
def test_share_group_may_start_at_a_duration(text: str) -> None:
    assert check_group("share.auto.offset.reset", text) is None or "no effect" in str(
        check_group("share.auto.offset.reset", text)
    )


@pytest.mark.parametrize("text", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1H", "first"])
def test_share_group_may_not_start_at_nonsense(text: str) -> None:
    with pytest.raises(KafkaError):
        check_group("share.auto.offset.reset", text)


def test_password_is_never_shown() -> None:
    setting = BROKER_SETTINGS["ssl.key.password"]
    config = BrokerConfig({"ssl.key.password": "hunter2"})
    resolved = resolve_broker({}, {}, config)["ssl.key.password"]
    assert setting.sensitive
    assert resolved.text is None
    assert [synonym.text for synonym in resolved.synonyms] == [None]
    assert not any("hunter2" in warning for warning in config.warnings)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (100.0, "100.0"),
        (1e7, "1.0E7"),
        (-12345678.5, "-1.23456785E7"),
        (0.00025, "2.5E-4"),
        (1e-9, "1.0E-9"),
    ],
)
def test_double_is_written_as_java_does(value: float, text: str) -> None:
    assert format_value(BROKER_SETTINGS["log.cleaner.io.max.bytes.per.second"], value) == text


# -- properties ------------------------------------------------------------------------------------------------


def test_properties_are_read_as_java_reads_them() -> None:
    lines = (
        "# comment = 1",
        "  ! another",
        "plain=value",
        "  spaced  :  some words  ",
        "bare",
        "no.separator value",
        r"escaped\=key\:=a\tb\\c",
        r"unicode=\u00e9\ud83d\ude00",
        "long=one,\\",
        "    two,\\",
        "    # not a comment",
        r"even\\",
        "twice=1",
        "twice=2",
        "last=\\",
    )
    assert parse_properties("\r\n".join(lines)) == {
        "plain": "value",
        "spaced": "some words  ",
        "bare": "",
        "no.separator": "value",
        "escaped=key:": "a\tb\\c",
        "unicode": "é😀",
        "long": "one,two,# not a comment",
        "even\\": "",
        "twice": "2",
        "last": "",
    }


def test_broken_escape_is_named() -> None:
    with pytest.raises(ValueError, match=r"\\u12"):
        parse_properties("a=\\u12")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_survive_escaping(values: dict[str, str]) -> None:
    def escape(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    written = "\n".join(f"{escape(name)}={escape(value)}" for name, value in values.items())
    assert parse_properties(written) == values


# -- a broker --------------------------------------------------------------------------------------------------


def test_nothing_configured_is_a_broker_for_this_machine() -> None:
    config = BrokerConfig({})
    assert config.listeners == config.advertised == [Listener("PLAINTEXT", "127.0.0.1", 9092)]
    assert (config.node_id, config.controller_listeners, config.warnings) == (1, [], [])
    assert config.int("offsets.topic.replication.factor") == 1


def test_kafkas_own_sample_starts() -> None:
    config = BrokerConfig(parse_properties(SAMPLE))
    assert config.listeners == [Listener("PLAINTEXT", "", 9092)]
    assert config.controller_listeners == [Listener("CONTROLLER", "", 9093)]
    assert config.advertised == [Listener("PLAINTEXT", "localhost", 9092)]
    assert config.log_dirs == ["/tmp/kraft-combined-logs"]
    # One thread for recovery is not the default and does nothing here.
    assert [warning.partition("=")[0] for warning in config.warnings] == ["num.recovery.threads.per.data.dir"]


def test_several_listeners_are_told_apart() -> None:
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


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"num.partitions": "zero"}, "num.partitions"),
        ({"num.partitions": "0"}, "at least 1"),
        ({"node.id": "1", "broker.id": "2"}, "broker.id=2"),
        ({"node.id": "-3"}, "negative"),
        ({"process.roles": "broker"}, "process.roles=broker"),
        ({"listeners": "PLAINTEXT://host"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999"}, "65535"),
        ({"listeners": "FRONT://:9092"}, "listener.security.protocol.map"),
        ({"listeners": "SSL://:9092"}, "only PLAINTEXT"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "name"),
        ({"listeners": "CONTROLLER://:9093"}, "none is left"),
        ({"listeners": ""}, "none is left"),
        ({"listeners": "PLAINTEXT://:1", "controller.listener.names": "OTHER"}, "controller.listener.names=OTHER"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot connect to 0.0.0.0"),
        ({"advertised.listeners": "SSL://host:1"}, "same listeners"),
        ({"inter.broker.listener.name": "SSL"}, "inter.broker.listener.name=SSL"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "NAME:PROTOCOL"),
        ({"controller.quorum.voters": "1@a:1,2@b:1"}, "only one voter"),
        ({"controller.quorum.voters": "7@a:1"}, "only one voter"),
        ({"controller.quorum.voters": "a:1"}, "ID@HOST:PORT"),
        ({"controller.quorum.bootstrap.servers": "a"}, "HOST:PORT"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "HOST:COUNT"),
        ({"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"}, "greater than"),
        ({"log.dirs": ""}, "log.dir"),
        ({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}, "not supported"),
        ({"security.inter.broker.protocol": "SSL"}, "not supported"),
        ({"remote.log.storage.system.enable": "true"}, "not supported"),
    ],
)
def test_what_cannot_be_served_is_an_error_in_one_line(properties: dict[str, str], words: str) -> None:
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
        ("listener.name.plaintext.max.connections", "3", "no effect"),
        ("num.io.threads", "16", "no effect"),
        ("message.max.bytes", str(2**31 - 1), "socket.request.max.bytes"),
    ],
)
def test_what_does_nothing_is_said(name: str, text: str, words: str) -> None:
    (warning,) = BrokerConfig({name: text}).warnings
    assert name in warning
    assert words in warning


def test_broker_id_stands_in_for_node_id() -> None:
    config = BrokerConfig({"broker.id": "7"})
    assert (config.node_id, config.int("node.id"), config.int("broker.id")) == (7, 7, 7)


def test_log_dir_stands_in_for_log_dirs() -> None:
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == ["/a"]
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b,/c"}).log_dirs == ["/b", "/c"]


def test_dynamic_values_come_first_and_read_only_ones_stay() -> None:
    static = BrokerConfig({"max.connections": "10", "message.max.bytes": "1000"})
    now = static.with_dynamic(
        {"max.connections": "30"}, {"max.connections": "20", "num.partitions": "5", "message.max.bytes": "broken"}
    )
    assert (now.int("max.connections"), now.int("num.partitions"), now.int("message.max.bytes")) == (30, 1, 1000)
    assert static.int("max.connections") == 10


def test_typed_reading_insists_on_the_type() -> None:
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


# -- which value holds -----------------------------------------------------------------------------------------


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
    assert resolved.is_default == (not static)


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


def test_description_of_hours_is_not_that_of_milliseconds() -> None:
    config = BrokerConfig({"log.retention.ms": "5", "log.retention.hours": "2"})
    resolved = resolve_broker({}, {}, config)
    assert (resolved["log.retention.hours"].value, resolved["log.retention.ms"].value) == (2, 5)


def test_only_what_is_set_for_all_brokers_is_described_for_all() -> None:
    resolved = resolve_broker_default({"max.connections": "8", "strange": "1"})
    assert {name: entry.source for name, entry in resolved.items()} == {"max.connections": 3}


def test_group_value_stands_before_the_brokers() -> None:
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
def test_group_value_beyond_the_brokers_limits_is_refused(overrides: dict[str, str]) -> None:
    config = BrokerConfig({})
    with pytest.raises(KafkaError, match=next(iter(overrides)).replace(".", r"\.")):
        check_group_together(resolve_group(overrides, {}, {}, config), config)


# -- changes while it runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "cluster_wide", "words"),
    [
        ("num.partitions", "3", False, "Cannot update these configs dynamically"),
        ("listeners", "PLAINTEXT://:1", True, "broker id must be specified"),
        ("log.retention.ms", "x", True, "whole number"),
        ("no.such", "1", False, "Unknown"),
    ],
)
def test_change_that_cannot_be_made_is_refused(name: str, text: str, cluster_wide: bool, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as caught:
        check_broker(name, text, cluster_wide=cluster_wide)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_change_without_effect_is_reported() -> None:
    assert check_broker("log.retention.ms", "1000", cluster_wide=True) is None
    assert "no effect" in (check_broker("num.io.threads", "4", cluster_wide=True) or "")
    assert "no effect" in (check_topic("preallocate", "true") or "")


def test_topic_cannot_ask_for_tiered_storage() -> None:
    with pytest.raises(KafkaError, match=r"remote\.storage\.enable"):
        check_topic("remote.storage.enable", "true")
    assert check_topic("remote.storage.enable", "false") is None


def test_compaction_lags_that_contradict_each_other_are_refused() -> None:
    overrides = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}
    with pytest.raises(KafkaError, match="greater"):
        check_topic_together(resolve_topic(overrides, {}, {}, BrokerConfig({})))
