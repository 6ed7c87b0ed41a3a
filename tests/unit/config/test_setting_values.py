"""One value of a setting: parsing by type, limits, and formatting."""

import re
import time

import pytest

from ottla.clients.options import COMMON_OPTIONS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.settings import Setting
from ottla.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    check_group,
    check_mirror,
    check_topic,
    parse_value,
)
from ottla.config.values import format_value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " -1 ", -1),
        ("retention.ms", "+7\x00", 7),
        ("retention.ms", "\u0663", 3),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("min.cleanable.dirty.ratio", ".5d", 0.5),
        ("min.cleanable.dirty.ratio", "5e-1F", 0.5),
        ("min.cleanable.dirty.ratio", "0x1p-1", 0.5),
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
        ("retention.ms", "-2"),
        ("retention.ms", str(2**63)),
        ("retention.ms", "9" * 5000),
        ("retention.ms", "1e3"),
        ("retention.ms", "7\u2003"),
        ("retention.ms", "\U0001d7d7"),
        ("retention.ms", ""),
        ("segment.bytes", "1024"),
        ("segment.bytes", str(2**31)),
        ("cleanup.policy", "remove"),
        ("cleanup.policy", "delete,,compact"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("min.cleanable.dirty.ratio", "inf"),
        ("min.cleanable.dirty.ratio", "0.1_0"),
        ("min.cleanable.dirty.ratio", "0x1"),
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
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize("text", ["latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"])
def test_share_group_may_start_at_a_duration(text: str) -> None:
    assert check_group("share.auto.offset.reset", text) is None or "no effect" in str(
        check_group("share.auto.offset.reset", text)
    )


@pytest.mark.parametrize("text", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1H", "first"])
def test_share_group_rejects_invalid_start(text: str) -> None:
    with pytest.raises(KafkaError):
        check_group("share.auto.offset.reset", text)


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
    assert BROKER_SETTINGS["log.cleaner.io.max.bytes.per.second"].format(value) == text


def test_long_values_are_checked_in_linear_time() -> None:
    started = time.process_time()
    for name, text in (
        ("sasl.login.class", "a" * 30_000 + "$" * 30_000 + "!"),
        ("sasl.login.class", "a." * 30_000 + "!"),
        ("log.cleaner.min.cleanable.ratio", "1" * 20_000 + "." + "1" * 20_000 + "x"),
        ("log.cleaner.min.cleanable.ratio", "0x" + "1" * 20_000 + "x"),
        ("log.retention.ms", "9" * 60_000),
        ("log.cleanup.policy", "a " * 30_000),
    ):
        with pytest.raises(KafkaError) as caught:
            parse_value(BROKER_SETTINGS[name], text)
        assert len(str(caught.value)) < 3000
    # It usually takes 0.2 s. When a pattern could match digits in two ways, it took minutes.
    assert time.process_time() - started < 20


def test_settings_of_brokers_and_clients_are_one_kind_of_object() -> None:
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *COMMON_OPTIONS):
        assert isinstance(setting, Setting)
        assert setting.python_name.isidentifier()
    assert [each.name for each in COMMON_OPTIONS if each.sensitive] == [
        "ssl.truststore.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.key.password",
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("segment.bytes", "1", "Value must be at least 1048576"),
        ("compression.type", "GZIP", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
    ],
)
def test_limit_is_reported_with_kafkas_message(name: str, text: str, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        parse_value(TOPIC_SETTINGS[name], text)
    assert str(caught.value).endswith(f"Invalid value {text} for configuration {name}: {message}")


_NUMBERS = ["0", "-0", "+1", "1_000", "٣", "1e3", "1e999", "nan", "inf", "9" * 19, "9" * 5000, "-" + "9" * 18, "0x10"]
_WORDS = [
    "",
    " ",
    "true",
    "TRUE",
    "\0",
    "\udc80",
    "a,b",
    ",,",
    "=",
    "(",
    "*",
    '"',
    "\\",
    "%",
    "é",
    "\n",
    "1.5d",
    "0x1p-5",
]
_ADDRESSES = ["[::1]:9092", "PLAINTEXT://:0", "PLAINTEXT://h:1,PLAINTEXT://h:2", "A://h:1", "A:B:C", "1@h:1", "@"]


@pytest.mark.parametrize("start", sorted({name.partition(".")[0] for name in BROKER_SETTINGS}))
def test_any_text_is_a_value_that_survives_its_text_or_an_error(start: str) -> None:
    """A broker reports an accepted value in DescribeConfigs; a broker that is started with it has the same value."""
    for name in BROKER_SETTINGS:
        if name.partition(".")[0] != start:
            continue
        for text in (*_NUMBERS, *_WORDS, *_ADDRESSES):
            try:
                value = BrokerConfig({"log.dirs": "/x", name: text})[name]
            except ConfigError:
                continue
            written = format_value(value)
            if written is not None:
                assert BrokerConfig({"log.dirs": "/x", name: written})[name] == value, f"{name}={text!r}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics", "orders["),
        ("topics", "a{99999999999999999999}"),
        ("groups", "*"),
        ("bootstrap.servers", "kafka"),
        ("bootstrap.servers", "a:1,b:70000"),
        ("bootstrap.servers", ""),
    ],
)
def test_patterns_and_addresses_of_a_mirror_are_checked_when_they_are_set(name: str, text: str) -> None:
    with pytest.raises(KafkaError, match=re.escape(name)) as refused:
        check_mirror(name, text)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "text"), [("topics", ""), ("topics", r"orders\..*|p{1,2}"), ("bootstrap.servers", "a:1,[::1]:2")]
)
def test_patterns_and_addresses_of_a_mirror(name: str, text: str) -> None:
    assert check_mirror(name, text) is None
