"""Valid and invalid values of each option, contradicting pairs, and the tables of the guide."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.producer.settings import PRODUCER_OPTIONS
from ottla.common.ids import TopicPartition
from ottla.spark.cluster import METADATA_MAX_AGE_MS
from ottla.spark.names import FORMAT_NAMES, SINK_NAMES, SOURCE_NAMES, TIME_NAMES, with_effect
from ottla.spark.options import (
    Assign,
    Earliest,
    Latest,
    Offsets,
    OptionError,
    SinkOptions,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Timestamp,
    Timestamps,
    common_settings,
    read_sink_options,
    read_source_options,
)
from ottla.spark.range_columns import FETCH_BYTES
from ottla.spark.source import OttlaDataSource

GUIDE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
SERVERS = {"kafka.bootstrap.servers": "a:1"}
ONE = {**SERVERS, "subscribe": "t"}
T0 = TopicPartition("t", 0)
JSON = {"value.format": "json", "value.schema": "a INT"}


def source(given: Mapping[str, str], streaming: bool | None = None) -> SourceOptions:
    whose = SERVERS if {name.lower() for name in given} & {"subscribe", "subscribepattern", "assign"} else ONE
    return read_source_options({**whose, **given}, streaming=streaming)


# -- each option -------------------------------------------------------------------------------------------------

NUMBERS = ("0", "-1", "1.5", "many", "", str(2**63))
TIMES = ("-1", "yesterday", "1.5", "")
BY_TIME = ('{"t": {"0": -1}}', '{"t": {"0": "now"}}', '{"t": 1}', "[1]", "5", "")
EACH: Mapping[str, tuple[str, str, object, tuple[str, ...]]] = {
    # name: (a valid value, the field that it sets, the field's value, invalid values)
    "subscribe": ("a, b", "subscription", Subscribe(("a", "b")), ("", " , ")),
    "subscribePattern": ("a.*", "subscription", SubscribePattern("a.*"), ("", "(", r"\p{Alpha}")),
    "assign": ('{"t": [1, 0]}', "subscription", Assign({"t": (0, 1)}), ("t", "{}", '{"t": 0}', '{"t": [-1]}', "")),
    "startingOffsets": ('{"t":{"0":-2}}', "starting", Offsets({T0: -2}), ("first", "-2", '{"t":{"0":-3}}', "")),
    "startingOffsetsByTimestamp": ('{"t":{"0":9}}', "starting", Timestamps({T0: 9}), BY_TIME),
    "startingTimestamp": ("9", "starting", Timestamp(9), TIMES),
    "startingOffsetsByTimestampStrategy": ("LATEST", "on_no_match", "latest", ("earliest", "")),
    "endingOffsets": ('{"t":{"0":5}}', "ending", Offsets({T0: 5}), ("earliest", "last", '{"t":{"0":-2}}', "")),
    "endingOffsetsByTimestamp": ('{"t":{"0":9}}', "ending", Timestamps({T0: 9}), BY_TIME),
    "endingTimestamp": ("9", "ending", Timestamp(9), TIMES),
    "failOnDataLoss": ("FALSE", "fail_on_data_loss", False, ("no", "0", "")),
    "maxOffsetsPerTrigger": ("7", "max_offsets_per_trigger", 7, NUMBERS),
    "minOffsetsPerTrigger": ("7", "min_offsets_per_trigger", 7, NUMBERS),
    "maxTriggerDelay": ("2m", "max_trigger_delay_ms", 120_000, ("soon", "-1s", "1.5m", "")),
    "idleAfter": ("2m", "idle_after_ms", 120_000, ("soon", "-1s", "")),
    "minPartitions": ("7", "min_partitions", 7, NUMBERS),
    "maxRecordsPerPartition": ("7", "max_records_per_partition", 7, NUMBERS),
    "includeHeaders": ("True", "include_headers", True, ("yes", "1", "")),
    "commitGroup": (" g ", "commit_group", "g", ("", " ")),
    "key.format": ("RAW", "key_format", "raw", ("xml", "")),
    "value.format": ("json", "value_format", "json", ("csv", "")),
    "fetchOffset.numRetries": ("7", "fetch_offset_retries", 7, NUMBERS),
    "fetchOffset.retryIntervalMs": ("0", "fetch_offset_retry_interval_ms", 0, ("-1", "1s", "")),
    "kafkaConsumer.pollTimeoutMs": ("7", "poll_timeout_ms", 7, NUMBERS),
}
# test_formats, test_event_times and test_registry_options test these.
FREE = {"groupIdPrefix", "includeErrors", "schema", *FORMAT_NAMES, *TIME_NAMES} - {"key.format", "value.format"}


def test_each_option_is_in_the_table() -> None:
    assert EACH.keys() | FREE == set(SOURCE_NAMES)


@pytest.mark.parametrize("name", EACH)
def test_each_option_is_read_and_invalid_values_are_rejected_by_name(name: str) -> None:
    good, where, wanted, bad = EACH[name]
    for spelt in (name, name.lower()):
        assert getattr(source({spelt: good}), where) == wanted
    for value in bad:
        with pytest.raises(OptionError, match=re.escape(name)):
            source({name: value})


# -- pairs -------------------------------------------------------------------------------------------------------

CONTRADICTIONS: tuple[tuple[bool | None, dict[str, str], str], ...] = (
    # Spark's own Kafka source rejects these too.
    (None, {"subscribe": "t", "subscribePattern": "t"}, "subscribe and subscribePattern are given"),
    (None, {"subscribe": "t", "assign": '{"t":[0]}'}, "subscribe and assign are given"),
    (None, {"subscribePattern": "t", "assign": '{"t":[0]}'}, "subscribePattern and assign are given"),
    (None, {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is more than maxOffsetsPerTrigger"),
    (None, {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'}, "is after endingOffsets"),
    (None, {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":9}}'}, "different partitions"),
    (
        None,
        {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
        "is after endingOffsetsByTimestamp",
    ),
    (
        None,
        {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"1":9}}'},
        "different partitions",
    ),
    (True, {"endingOffsets": "latest"}, "a streaming query has no end"),
    (True, {"endingOffsetsByTimestamp": '{"t":{"0":5}}'}, "a streaming query has no end"),
    (False, {"startingOffsets": "latest"}, "nothing to read"),
    (False, {"startingOffsets": '{"t":{"0":-1}}'}, "a batch read cannot start there"),
    (False, {"endingOffsets": "earliest"}, "nothing to read"),
    (False, {"endingOffsets": '{"t":{"0":-2}}'}, "cannot end there"),
    # Spark's own Kafka source accepts these, and reads other records than intended or fails later.
    (True, {"endingTimestamp": "5"}, "a streaming query has no end"),
    (None, {"startingTimestamp": "5", "endingTimestamp": "4"}, "is after endingTimestamp"),
    (None, {"subscribe": "t", "startingOffsets": '{"u":{"0":5}}'}, "does not subscribe to"),
    (None, {"subscribe": "t,u", "endingOffsets": '{"t":{"0":5}}'}, "has no entry for u"),
    (None, {"subscribePattern": "a.*", "startingOffsets": '{"u":{"0":5}}'}, "does not subscribe to"),
    (None, {"assign": '{"t":[0]}', "startingOffsets": '{"t":{"1":5}}'}, "does not subscribe to"),
    (None, {"assign": '{"t":[0,1]}', "startingOffsetsByTimestamp": '{"t":{"1":5}}'}, "has no entry for t-0"),
    (False, {"commitGroup": "g"}, "commitGroup is for streaming queries"),
    (None, {"mode": "PERMISSIVE"}, "did you mean value.format=json"),
    (None, {"kafka.isolation.level": "committed"}, "isolation.level"),
)


@pytest.mark.parametrize(("streaming", "given", "text"), CONTRADICTIONS)
def test_contradicting_options_are_rejected(streaming: bool | None, given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(text)):
        source(given, streaming)


@pytest.mark.parametrize(
    ("given", "where", "wanted"),
    [
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":9}}'},
            "starting",
            Timestamps({T0: 9}),
        ),
        ({"startingOffsetsByTimestamp": '{"t":{"0":9}}', "startingTimestamp": "7"}, "starting", Timestamp(7)),
        ({"endingOffsets": "latest", "endingTimestamp": "7"}, "ending", Timestamp(7)),
        ({"kafka.group.id": "g", "groupIdPrefix": "p"}, "client", {"bootstrap.servers": "a:1"}),
        ({"kafka.session.timeout.ms": "100"}, "client", {"bootstrap.servers": "a:1"}),
        ({"minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "8"}, "min_offsets_per_trigger", 8),
    ],
)
def test_combinations_that_sparks_kafka_source_accepts_are_accepted(
    given: dict[str, str], where: str, wanted: object
) -> None:
    assert getattr(source(given), where) == wanted


def test_stream_options_have_no_effect_on_a_batch_read_and_warn(caplog: pytest.LogCaptureFixture) -> None:
    given = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"}
    asked = OttlaDataSource(CaseInsensitiveDict({**ONE, **given}))  # type: ignore[arg-type]
    asked.reader(asked.schema())
    asked.streamReader(asked.schema())
    said = [record.getMessage() for record in caplog.records]
    assert [name for name in given if sum(name in text for text in said) == 1] == [*given]
    assert len(said) == 3


# -- the settings of Kafka's Java clients (4.3) ------------------------------------------------------------------

COMMON = """
auto.include.jmx.reporter bootstrap.servers client.dns.lookup client.id config.providers connections.max.idle.ms
enable.metrics.push interceptor.classes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms
retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.scope
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol security.providers
send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
CONSUMERS = """
allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack default.api.timeout.ms
enable.auto.commit exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms isolation.level key.deserializer
max.partition.fetch.bytes max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms
share.acknowledgement.mode value.deserializer
"""
PRODUCERS = """
acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type compression.zstd.level
delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
partitioner.class partitioner.ignore.keys retries transaction.timeout.ms transaction.two.phase.commit.enable
transactional.id value.serializer
"""


def of_source(name: str) -> None:
    source({f"kafka.{name}": "x"})


def of_sink(name: str) -> None:
    read_sink_options({**SERVERS, f"kafka.{name}": "x"})


@pytest.mark.parametrize(("read", "names"), [(of_source, COMMON + CONSUMERS), (of_sink, COMMON + PRODUCERS)])
def test_every_setting_of_the_java_clients_is_handled(read: type, names: str) -> None:
    """Each setting is accepted, has no effect, or is rejected with a reason. None is unknown."""
    for name in names.split():
        said = f"kafka.{name}"
        try:
            read(name)
        except OptionError as error:
            said = str(error)
        assert "There is no option" not in said, name
        assert f"kafka.{name}" in said


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sasl.kerberos.service.name", "Kerberos is not available"),
        ("ssl.protocol", "Python's ssl module"),
        ("ssl.context", "a Python object"),
        ("security.providers", "JVM classes"),
        ("on.corrupt.records", "failOnDataLoss=false"),
        ("config.providers", "used literally"),
    ],
)
def test_unsupported_settings_are_rejected_with_a_reason(name: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason) as error:
        source({f"kafka.{name}": "x"})
    assert str(error.value).startswith(f"kafka.{name} is not supported: ")


def test_group_settings_have_no_effect_and_only_a_sink_may_create_topics() -> None:
    assert with_effect({"max.poll.records": "5", "allow.auto.create.topics": "true"}, "source") == {}
    assert with_effect({"allow.auto.create.topics": "false"}, "sink") == {"allow.auto.create.topics": "false"}


def test_clients_of_spark_push_their_metrics_unless_the_setting_forbids_it() -> None:
    given = {"kafka.enable.metrics.push": "false"}
    assert source(given).client["enable.metrics.push"] == "false"
    assert read_sink_options({**SERVERS, **given}).client["enable.metrics.push"] == "false"
    assert common_settings(source(given).client)["enable.metrics.push"] == "false"


# -- the guide ---------------------------------------------------------------------------------------------------


def rows(heading: str) -> dict[str, list[str]]:
    """Return the table rows below a heading of the guide, by option. A row may list several options."""
    section = GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"`([^`]+)`", cells[0]) if line.startswith("| `") else ():
            assert name not in found, f"{name} has two rows"
            found[name] = cells[1:]
    return found


def test_guide_lists_exactly_the_options() -> None:
    assert sorted(rows("Options of the source")) == sorted(SOURCE_NAMES)
    assert sorted(rows("Options of the sink")) == sorted(SINK_NAMES)


@pytest.mark.parametrize("name", SOURCE_NAMES)
def test_setting_the_default_of_the_guide_changes_nothing(name: str) -> None:
    default = re.fullmatch(r"`(.*)`", rows("Options of the source")[name][0])
    if default is None:
        return
    base = JSON if name == "mode" else {}
    with_it, without = source({**base, name: default[1]}), source(base)
    if name in (*FORMAT_NAMES, *TIME_NAMES):
        assert {*with_it.formats.items()} - {*without.formats.items()} == {(name.lower(), default[1])}
        with_it = dataclasses.replace(with_it, formats=without.formats)
    assert with_it == without


def test_default_starting_offsets_equal_the_guide() -> None:
    assert rows("Options of the source")["startingOffsets"][0] == "batch `earliest`, stream `latest`"
    assert (source({}, streaming=False).starting, source({}, streaming=True).starting) == (Earliest(), Latest())


def test_client_defaults_equal_the_guide() -> None:
    clients = rows("Settings of the clients: `kafka.*`")
    assert clients["kafka.max.partition.fetch.bytes"][0] == f"{FETCH_BYTES // 2**20} MiB"
    assert clients["kafka.metadata.max.age.ms"][0] == f"{METADATA_MAX_AGE_MS} for the driver"
    defaults = {row.name: row.default for row in (*CONSUMER_OPTIONS, *PRODUCER_OPTIONS)}
    for name in ("isolation.level", "default.api.timeout.ms", "compression.type", "delivery.timeout.ms"):
        assert clients[f"kafka.{name}"][0].strip("`") == str(defaults[name])


def test_sink_defaults_equal_the_guide() -> None:
    for name, cells in rows("Options of the sink").items():
        default = re.fullmatch(r"`(.*)`", cells[0])
        if default is not None and name not in FORMAT_NAMES:
            given: SinkOptions = read_sink_options({**SERVERS, name: default[1]})
            assert given == read_sink_options(SERVERS)
    assert (read_sink_options(SERVERS).key_format, read_sink_options(SERVERS).value_format) == ("raw", "raw")
