"""The options of format("ottla"): valid and invalid options, and suggestions. Without Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.ids import TopicPartition
from ottla.spark.names import FORMAT_NAMES, SINK_NAMES, SOURCE_NAMES, TIME_NAMES
from ottla.spark.options import (
    Assign,
    Earliest,
    Latest,
    OptionError,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Timestamp,
    Timestamps,
    check_covered,
    common_settings,
    read_sink_options,
    read_source_options,
)
from ottla.spark.options import Offsets as At

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}


def source(streaming: bool | None = None, **given: str) -> SourceOptions:
    """Read options, given with _ for ".". Without a subscription option, one topic is subscribed to."""
    options = {name.replace("_", "."): value for name, value in given.items()}
    if not options.keys() & {"subscribe", "subscribePattern", "assign"}:
        options["subscribe"] = "t"
    return read_source_options({**SERVERS, **options}, streaming=streaming)


def t(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def refused(streaming: bool | None = None, **given: str) -> str:
    with pytest.raises(OptionError) as caught:
        source(streaming, **given)
    return str(caught.value)


# -- valid options -----------------------------------------------------------------------------------------------


def test_defaults_equal_the_defaults_of_sparks_kafka_source() -> None:
    batch, stream = source(False), source(True)
    assert (batch.starting, batch.ending) == (Earliest(), Latest())
    assert stream.starting == Latest()
    assert (batch.on_no_match, batch.fail_on_data_loss, batch.include_headers) == ("error", True, False)
    assert (batch.isolation_level, batch.max_trigger_delay_ms) == ("read_uncommitted", 15 * 60_000)
    assert batch.client == {"bootstrap.servers": "a:1,b:2"}


def test_option_names_ignore_case() -> None:
    assert source(MAXOFFSETSPERTRIGGER="5", includeheaders="TRUE").max_offsets_per_trigger == 5
    lower = read_source_options({name.lower(): value for name, value in {**SERVERS, "subscribePattern": "t.*"}.items()})
    assert lower.subscription == SubscribePattern("t.*")


def test_exactly_one_subscription_option_is_required() -> None:
    assert source(subscribe=" a, b,,a ").subscription == Subscribe(("a", "b"))
    assert source(assign='{"t": [2, 0]}').subscription == Assign({"t": (0, 2)})
    pattern = source(subscribePattern="ev.*").subscription
    assert isinstance(pattern, SubscribePattern)
    assert (pattern.matches("events"), pattern.matches("my-events")) == (True, False)


def test_most_specific_starting_option_wins() -> None:
    offsets, times = '{"t": {"0": 7, "1": -2}}', '{"t": {"0": 5000, "1": 6000}}'
    assert source(startingOffsets=offsets).starting == At({t(0): 7, t(1): -2})
    assert source(startingOffsets=offsets, startingOffsetsByTimestamp=times).starting == Timestamps(
        {t(0): 5000, t(1): 6000}
    )
    everything = source(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="9")
    assert everything.starting == Timestamp(9)
    assert source(endingTimestamp="9", endingOffsets="latest").ending == Timestamp(9)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("30s", 30_000), ("500ms", 500), ("2 h", 7_200_000), ("1d", 86_400_000), ("250", 250)],
)
def test_delays_may_have_units(text: str, ms: int) -> None:
    assert source(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_client_settings_keep_kafkas_names() -> None:
    options = source(
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-256",
        kafka_isolation_level="read_committed",
        kafka_sasl_jaas_config="x",
        kafka_fetch_max_bytes="1000",
    )
    assert options.isolation_level == "read_committed"
    assert options.client == {
        "bootstrap.servers": "a:1,b:2", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "x", "fetch.max.bytes": "1000",
    }  # fmt: skip
    assert "fetch.max.bytes" not in common_settings(options.client)
    assert common_settings(options.client)["sasl.jaas.config"] == "x"


def test_settings_that_tune_the_jvm_client_have_no_effect() -> None:
    assert source(kafka_group_id="g", kafka_receive_buffer_bytes="65536", groupIdPrefix="p").client == source().client


# -- invalid options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribepatern", "subscribePattern"),
        ("fail.on.data.loss", "failOnDataLoss"),
        ("topics", "subscribe"),
        ("topic", "subscribe"),
        ("headers", "includeHeaders"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("security.protocol", "kafka.security.protocol"),
        ("kafka.fetch.min.byte", "kafka.fetch.min.bytes"),
        ("kafka.subscribe", "subscribe"),
        ("value.fromat", "value.format"),
        ("group.id", "commitGroup"),
    ],
)
def test_misspelt_option_is_rejected_with_a_suggestion(odd: str, meant: str) -> None:
    message = refused(**{odd.replace(".", "_"): "1"}) if "_" not in odd else ""
    assert f"'{meant}'" in message
    assert odd.lower() in message.lower()


@given(st.sampled_from(sorted({*SOURCE_NAMES} - {*FORMAT_NAMES, *TIME_NAMES, "assign", "mode"})), st.data())
def test_name_with_one_wrong_letter_gets_a_suggestion(name: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(name) - 1))
    odd = name[:place] + "x" + name[place + 1 :]
    if odd.lower() in {each.lower() for each in SOURCE_NAMES}:
        return
    with pytest.raises(OptionError) as caught:
        read_source_options({**SERVERS, "assign": '{"t": [0]}', odd: "1"})
    assert "did you mean" in str(caught.value)


def test_missing_options_are_named() -> None:
    with pytest.raises(OptionError, match="subscribe, subscribePattern, assign"):
        read_source_options(SERVERS)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        read_source_options({"subscribe": "t"})


def test_contradictions_are_rejected() -> None:
    assert "subscribe and subscribePattern are given" in refused(subscribe="t", subscribePattern="t")
    assert "more than maxOffsetsPerTrigger" in refused(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="3")
    assert "does not subscribe to" in refused(startingOffsets='{"u": {"0": 1}}')
    assert "has no entry for u" in refused(subscribe="t,u", startingOffsets='{"t": {"0": 1}}')
    assert "has no entry for t-1" in refused(assign='{"t": [0, 1]}', startingOffsets='{"t": {"0": 1}}')
    assert "does not subscribe to" in refused(subscribePattern="a.*", startingOffsets='{"t": {"0": 1}}')
    first, last = '{"t": {"0": 5}}', '{"t": {"0": 4}}'
    assert "after endingOffsets (4) for t-0" in refused(startingOffsets=first, endingOffsets=last)
    assert "after endingOffsetsByTimestamp" in refused(startingOffsetsByTimestamp=first, endingOffsetsByTimestamp=last)
    assert "after endingTimestamp" in refused(startingTimestamp="5", endingTimestamp="4")
    assert "t-1 is in only one of them" in refused(startingOffsets=first, endingOffsets='{"t": {"0": 9, "1": 9}}')


def test_stream_cannot_have_an_end_nor_a_batch_start_at_the_end() -> None:
    for name, value in (
        ("endingOffsets", "latest"),
        ("endingTimestamp", "5"),
        ("endingOffsetsByTimestamp", '{"t":{"0":1}}'),
    ):
        assert "a streaming query has no end" in refused(True, **{name: value})  # fmt: skip
        source(None, **{name: value})
    assert "nothing to read" in refused(False, startingOffsets="latest")
    assert "a batch read cannot start there" in refused(False, startingOffsets='{"t": {"0": -1}}')
    assert "cannot end there" in refused(endingOffsets='{"t": {"0": -2}}')
    assert "nothing to read" in refused(endingOffsets="earliest")
    assert "streaming queries" in refused(False, commitGroup="g")
    assert source(True, commitGroup="g").commit_group == "g"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", " , "),
        ("subscribePattern", "("),
        ("assign", "{}"),
        ("assign", '{"t": ["0"]}'),
        ("assign", '{"t": []}'),
        ("assign", "[0]"),
        ("assign", "t"),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"t": {"0": -3}}'),
        ("startingOffsets", '{"t": 3}'),
        ("startingOffsets", '{"t": {"0": 1'),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-1"),
        ("startingOffsetsByTimestamp", '{"t": {"0": -1}}'),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("minPartitions", "0"),
        ("maxOffsetsPerTrigger", "1.5"),
        ("maxTriggerDelay", "soon"),
        ("failOnDataLoss", "yes"),
        ("includeHeaders", "1"),
        ("commitGroup", " "),
        ("value.format", "xml"),
        ("kafka.isolation.level", "serializable"),
        ("kafka.security.protocol", "TLS"),
        ("kafka.bootstrap.servers", "nowhere"),
    ],
)
def test_invalid_value_is_rejected_by_name(name: str, value: str) -> None:
    assert name.removeprefix("kafka.") in refused(**{name.replace(".", "_"): value})


@pytest.mark.parametrize("name", ["auto.offset.reset", "enable.auto.commit", "key.deserializer", "interceptor.classes"])
def test_settings_that_spark_rejects_are_rejected(name: str) -> None:
    assert f"kafka.{name} is not supported" in refused(**{f"kafka_{name.replace('.', '_')}": "x"})


def test_error_does_not_contain_the_password() -> None:
    assert "hush" not in refused(kafka_sasl_password="hush", kafka_security_protocol="x")


def test_offsets_must_cover_exactly_the_existing_partitions() -> None:
    check_covered("startingOffsets", [t(0), t(1)], [t(1), t(0)])
    with pytest.raises(OptionError, match="no entry for t-1"):
        check_covered("startingOffsets", [t(0)], [t(0), t(1)])
    with pytest.raises(OptionError, match="has t-1, which the cluster does not have"):
        check_covered("startingOffsets", [t(0), t(1)], [t(0)])


# -- the sink ----------------------------------------------------------------------------------------------------


def test_sink_may_have_a_topic_option() -> None:
    assert read_sink_options(SERVERS).topic is None
    options = read_sink_options({**SERVERS, "TOPIC": " t ", "kafka.compression.type": "zstd", "value.format": "JSON"})
    assert (options.topic, options.client["compression.type"], options.value_format) == ("t", "zstd", "json")


def test_sink_rejects_source_options_and_unsupported_settings() -> None:
    for name, text in (
        ("subscribe", "'subscribe' is an option of the source"),
        ("topik", "did you mean 'topic'"),
        ("kafka.key.serializer", "not supported"),
        ("kafka.transactional.id", "set exactlyOnce=true"),
        ("kafka.fetch.min.bytes", "There is no option"),
        ("kafka.acks", "acks"),
    ):
        with pytest.raises(OptionError, match=text):
            read_sink_options({**SERVERS, name: "x"})


def test_option_names_are_unique_ignoring_case() -> None:
    for names in (SOURCE_NAMES, SINK_NAMES):
        assert len({name.lower() for name in names}) == len(names)
