"""`ottla schema`, and keys and values of a registry in `ottla consume` and `ottla produce`."""

import json
import subprocess
import sys

import pytest

from ottla.clients import Admin, Consumer, Producer, ShareConsumer
from ottla.clients.admin import ConfigResource
from ottla.clients.serializers import AvroDeserializer, AvroSerializer
from tests.clients.support import unique
from tests.registry.stand_in import StandIn

from .commands import Done, run_with_pipes


def record(*fields):
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


@pytest.fixture
def registry():
    with StandIn() as running:
        yield running


@pytest.fixture
def schema(registry, tmp_path):
    """Write a schema to a file; returns its path."""

    def write(text, name="order.avsc"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def ottla(registry):
    def call(*words, feed="") -> Done:
        return run_with_pipes(*words, "--registry", registry.url, feed=feed.encode())

    return call


@pytest.fixture
def topic(broker):
    name = unique("schema")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    return name


def test_life_of_a_schema(ottla, schema):
    assert ottla("schema", "list").out.decode() == ""
    registered = ottla("schema", "register", schema(record(ID)), "--subject", "orders-value")
    assert registered.out.decode() == "orders-value: version 1, id 1\n"
    ottla("schema", "register", schema(record(ID, NOTE)), "--subject", "orders-value")
    rows = ottla("schema", "list", "orders-value", "--json").objects
    assert [(row["version"], row["id"], row["type"]) for row in rows] == [(1, 1, "AVRO"), (2, 2, "AVRO")]
    assert ottla("schema", "list", "-q").out.decode() == "orders-value\n"
    assert json.loads(ottla("schema", "get", "orders-value", "--version", "1").out) == json.loads(record(ID))
    assert ottla("schema", "get", "--id", "2", "--json").objects[0]["schema"] == record(ID, NOTE)
    deleted = ottla("schema", "delete", "orders-value", "--yes")
    assert deleted.out.decode() == "orders-value: deleted versions 1, 2\n"


def test_diff_names_fields(ottla, schema):
    ottla("schema", "register", schema(record(ID, {"name": "x", "type": "int"})), "-s", "s")
    changed = record({"name": "id", "type": "string"}, NOTE)
    ottla("schema", "register", schema(changed), "-s", "s")
    assert ottla("schema", "diff", "s").out.decode().splitlines() == [
        "changed: id from long to string",
        "added: note (null or string, default null)",
        "removed: x (int)",
    ]
    assert ottla("schema", "diff", "s", schema(changed)).out.decode() == ""
    assert ottla("schema", "diff", "s", "--json").objects[0] == {
        "kind": "changed", "field": "id", "before": "long", "after": "string",
    }  # fmt: skip


def test_incompatible_schema_is_exit_code_1(ottla, schema, registry):
    path = schema(record(ID))
    assert ottla("schema", "check", path, "-s", "s").out.decode() == "s: compatible\n"
    registry.incompatible = ["the new schema lacks 'x'"]
    checked = ottla("schema", "check", path, "-s", "s")
    assert (checked.code, checked.out.decode()) == (1, "s: incompatible\n  the new schema lacks 'x'\n")


def test_errors_are_one_line_with_the_next_step(ottla, schema):
    missing = ottla("schema", "get", "missing")
    assert missing.code == 1
    assert "not found" in missing.err
    unreachable = run_with_pipes(
        "schema", "list", "--registry", "http://127.0.0.1:1", "-X", "schema.registry.max.retries=0"
    )
    assert unreachable.code == 1
    assert "--registry URL names another" in unreachable.err
    assert ottla("schema", "register", schema("{}", "order.txt"), "-s", "s").code == 2


def test_values_are_produced_from_json_and_printed_as_json(broker, ottla, schema, topic):
    path = schema(record(ID, NOTE))
    sent = ottla(
        "produce", topic, "--value", "registry", "--schema", path, "-b", broker.bootstrap,
        feed='{"id":1,"note":"a"}\n{"id":2}\n{"id":3,"note":{"string":"b"}}\n',
    )  # fmt: skip
    assert sent.code == 0, sent.err
    read = ottla("consume", topic, "-e", "--value", "registry", "-b", broker.bootstrap)
    assert read.out.decode().splitlines() == ['{"id":1,"note":"a"}', '{"id":2,"note":null}', '{"id":3,"note":"b"}']
    latest = ottla("produce", topic, "--value", "registry", "-b", broker.bootstrap, feed='{"id":"x"}\n')
    assert latest.code == 1
    assert "'id' is 'x', which is not long" in latest.out.decode() + latest.err


def test_values_that_cannot_be_decoded_are_printed_unchanged_with_a_warning(broker, ottla, topic):
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"plain")
    read = ottla("consume", topic, "-e", "--value", "registry", "-b", broker.bootstrap)
    assert read.out.decode() == "plain\n"
    assert "1 values" in read.err


def commit_one(broker, registry, topic, group, reader):
    with Consumer(
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(reader, schema_registry_url=registry.url),
    ) as consumer:
        consumer.subscribe([topic])
        for _ in range(100):
            if consumer.poll(0.2):
                break
        consumer.commit()


def test_groups_that_would_break_are_named(broker, ottla, schema, registry, topic):
    serializer = AvroSerializer(record(ID), schema_registry_url=registry.url)
    with Producer(bootstrap_servers=broker.bootstrap, value_serializer=serializer) as producer:
        producer.send(topic, {"id": 1})
    strict, lenient, silent = unique("strict"), unique("lenient"), unique("silent")
    commit_one(broker, registry, topic, strict, record(ID))
    commit_one(broker, registry, topic, lenient, record({**ID, "default": 0}))
    commit_one(broker, registry, topic, silent, None)
    path = schema(record({"name": "name", "type": "string"}))
    check = ("schema", "check", path, "-s", f"{topic}-value", "--consumers", "-b", broker.bootstrap)
    checked = ottla(*check, "--json")
    row = checked.objects[0]
    assert checked.code == 1
    assert [each["group"] for each in row["breaks"]] == [strict]
    assert "id" in row["breaks"][0]["reasons"][0]
    assert row["without_report"] == [silent]
    text = ottla(*check).out.decode()
    assert f"group {strict} (Empty) would break on {topic}:" in text
    assert f"without a report of their reader schema, which are not checked: {silent}" in text
    path = schema(record(ID, NOTE))
    assert ottla("schema", "check", path, "-s", f"{topic}-value", "--consumers", "-b", broker.bootstrap).code == 0


@pytest.mark.parametrize("way", ["with", "offsets", "numbers"])
def test_offsets_in_transactions_have_the_report_of_their_consumer(broker, ottla, schema, registry, topic, way):
    serializer = AvroSerializer(record(ID), schema_registry_url=registry.url)
    with Producer(bootstrap_servers=broker.bootstrap, value_serializer=serializer) as producer:
        producer.send(topic, {"id": 1})
    group = unique("transactional")
    reader = AvroDeserializer(record(ID), schema_registry_url=registry.url)
    with (
        Consumer(
            bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest",
            value_deserializer=reader, enable_auto_commit=False,
        ) as consumer,
        Producer(bootstrap_servers=broker.bootstrap, transactional_id=group) as producer,
    ):  # fmt: skip
        producer.init_transactions()
        consumer.subscribe([topic])
        records = next(filter(None, (consumer.poll(0.2) for _ in range(100))))
        if way == "with":
            with producer.transaction(consumer):
                pass
        else:
            offsets = consumer.offsets_to_commit()
            if way == "numbers":
                offsets = {records[-1].topic_partition: records[-1].offset + 1}
            with producer.transaction():
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    path = schema(record({"name": "name", "type": "string"}))
    checked = ottla("schema", "check", path, "-s", f"{topic}-value", "--consumers", "-b", broker.bootstrap, "--json")
    assert [each["group"] for each in checked.objects[0]["breaks"]] == [group]
    assert checked.objects[0]["without_report"] == []


def test_share_groups_that_read_the_topic_are_named(broker, ottla, schema, registry, topic):
    group = unique("queue")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_config(ConfigResource.group(group), {"share.auto.offset.reset": "earliest"})
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"plain")
    with ShareConsumer(bootstrap_servers=broker.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        assert any(consumer.poll(0.2) for _ in range(100))
        consumer.commit_sync(10)
    checked = ottla(
        "schema", "check", schema(record(ID)), "-s", f"{topic}-value", "--consumers", "-b", broker.bootstrap, "--json"
    )
    assert checked.objects[0]["without_report"] == [group]


def test_config(ottla, registry):
    registry.settings = {}
    shown = ottla("schema", "config", "s", "--compatibility", "full", "--mode", "readonly", "--json").objects[0]
    assert shown == {"subject": "s", "compatibility": "FULL", "mode": "READONLY"}
    assert ottla("schema", "config", "s", "--reset", "--json").objects[0]["compatibility"] == "BACKWARD"


@pytest.mark.parametrize(
    ("package", "words"),
    [("httpx", ["schema", "list"]), ("httpx", ["consume", "t", "--value", "registry"]),
     ("fastavro", ["produce", "t", "--value", "registry"])],
)  # fmt: skip
def test_missing_package_is_named(package, words):
    program = f"import sys; sys.modules[{package!r}] = None; from ottla.cli.main import main; sys.exit(main({words}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "pip install 'ottla[registry]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_keys_and_tail(broker, ottla, registry, topic):
    with Producer(
        bootstrap_servers=broker.bootstrap,
        key_serializer=AvroSerializer('"string"', schema_registry_url=registry.url),
        value_serializer=AvroSerializer(record(ID), schema_registry_url=registry.url),
    ) as producer:
        producer.send(topic, {"id": 1}, key="k")
    words = ("--key", "registry", "--value", "registry", "-b", broker.bootstrap)
    assert ottla("consume", topic, "-e", "-f", r"%k %v\n", *words).out.decode() == '"k" {"id":1}\n'
    assert ottla("tail", topic, "-e", "--json-value", *words).objects[0]["value"] == {"id": 1}
