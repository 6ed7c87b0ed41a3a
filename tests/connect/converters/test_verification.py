"""`ottla connect verify` with a registry: it compares a table with its topic, and registers no schema."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from ottla.clients import Producer
from ottla.connect import data, plugins
from ottla.connect.connectors.capture.topic_verification import verify_topic
from ottla.connect.connectors.capture.verification import Converted, Rows, TableName, Tables
from ottla.connect.connectors.mysql.settings import options_of
from ottla.registry_client import RegistryClient
from tests.ottla_process import ForkedOttla
from tests.registry_process import RegistryProcess

KEY = data.struct({"id": data.INT64}, "p.d.t.Key")
ROW = data.struct({"id": data.INT64, "price": data.decimal(2), "name": data.OPTIONAL_STRING}, "p.d.t.Value")
EVENT = data.struct({"before": ROW.as_optional(), "after": ROW.as_optional(), "op": data.STRING}, "p.d.t.Envelope")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    directory: Path = tmp_path_factory.mktemp("verification")
    with ForkedOttla(directory / "broker") as broker:
        node = RegistryProcess(directory / "node", broker.bootstrap)
        node.start()
        try:
            yield broker.bootstrap, node.url
        finally:
            node.stop()


@pytest.mark.parametrize("name", ["avro.Avro", "protobuf.Protobuf", "json.JsonSchema"])
def test_verify_finds_equal_rows_and_registers_nothing(servers: tuple[str, str], name: str) -> None:
    bootstrap, url = servers
    kind = f"io.confluent.connect.{name}Converter"
    prefix = name.partition(".")[0]
    config = {"database.hostname": "h", "database.user": "u", "database.server.id": "7", "topic.prefix": prefix}
    for part in ("key.converter", "value.converter"):
        config |= {part: kind, f"{part}.schema.registry.url": url}
    topic = f"{prefix}.d.t"
    rows = [{"id": n, "price": Decimal(n).scaleb(-2), "name": None if n % 2 else "x"} for n in range(10)]
    converters = [plugins.converter_class(kind)() for _ in range(2)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for converter, is_key in zip(converters, (True, False), strict=True):
            converter.configure({"schema.registry.url": url}, is_key=is_key)
        for row in rows:
            key = converters[0].from_connect(topic, KEY, {"id": row["id"]})
            event = {"before": None, "after": row, "op": "c"}
            producer.send(topic, converters[1].from_connect(topic, EVENT, event), key)
    for each in converters:
        each.close()

    def table_rows(_: TableName, converted: Converted) -> Rows:
        return (converted((KEY, {"id": row["id"]}), (ROW, row)) for row in rows)

    table = TableName("d", "t")
    tables = Tables(lambda: [table], table_rows)
    found = verify_topic(config, options_of(config), tables, table, rounds=1, bootstrap_servers=bootstrap)
    assert (found.changed, found.missing, found.unexpected, found.rows) == ([], [], [], 10)
    with RegistryClient({"schema.registry.url": url}) as client:
        assert client.get_versions(f"{topic}-key") == [1]
        assert client.get_versions(f"{topic}-value") == [1]
