"""Functions as connectors: their settings, schemas and records, without a broker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

from ottla.connect import Batch, DataError, Password, RetriableError, data, plugins, sink, source
from ottla.connect.api import SinkTaskContext, SourceTaskContext, TopicPartition
from ottla.connect.config.definition import SettingError
from ottla.connect.dataclass_schemas import schema_of
from ottla.connect.records import SinkRecord


@source("numbers", config={"last": 10, "step": int}, key="number")
def numbers(config: Any, after: int | None, limit: int) -> tuple[list[dict[str, int]], int]:
    start = after or 0
    rows = [{"number": each} for each in range(start, min(start + limit, config.last), config.step)]
    return rows, min(start + limit, config.last)


@dataclass
class Line:
    id: int
    price: Annotated[Decimal, 2]
    small: Annotated[int, data.INT8]
    at: datetime | None
    tags: list[str]


@dataclass
class Order:
    key: str
    lines: list[Line]


@dataclass
class Settings:
    url: str
    password: Password
    timeout: float = 1.5
    names: list[str] | None = None


def started(declared: Any, config: dict[str, str], offsets: dict[str, Any] | None = None) -> Any:
    task = declared.connector_class.task_class()

    def found(partition: Any) -> Any:
        return (offsets or {}).get(str(partition.get("partition")))

    task.start(SourceTaskContext("c", 0, found, lambda: True, lambda facts: None), config)
    return task


def test_function_stays_a_function() -> None:
    class Config:
        last, step = 3, 1

    assert numbers(Config, None, 2) == ([{"number": 0}, {"number": 1}], 2)


def test_source_goes_on_after_its_offset() -> None:
    task = started(numbers, {"topic": "t", "step": "1", "batch.size": "4"}, {"None": {"after": 8}})
    (first, second) = task.poll()
    assert (first.topic, first.key, first.value) == ("t", 8, {"number": 8})
    assert second.source_offset == {"after": 10}
    assert not task.poll()


def test_required_setting_and_type_are_checked() -> None:
    definition = numbers.connector_class.config_def
    assert [each.name for each in definition][:3] == ["last", "step", "topic"]
    with pytest.raises(SettingError, match='Missing required configuration "step"'):
        definition.parse({"topic": "t"})
    with pytest.raises(SettingError, match="Invalid value x for configuration step: Not a number"):
        definition.parse({"topic": "t", "step": "x"})


def test_dataclass_settings_hide_passwords() -> None:
    @source("typed", config=Settings, topic="x")
    def typed(config: Settings, after: Any, limit: int) -> Any:
        return [], None

    read = typed.settings.read({"url": "u", "password": "pw", "names": "a, b"})
    assert read == Settings("u", Password("pw"), 1.5, ["a", "b"])
    assert "pw" not in repr(read)
    assert read.password.secret == "pw"
    assert typed.connector_class.config_def["topic"].default == "x"


def test_reserved_and_unknown_types_are_refused() -> None:
    with pytest.raises(TypeError, match=r"tasks\.max is a setting of all connectors"):
        source("x", config={"tasks.max": 1})
    with pytest.raises(TypeError, match="The setting x has the type"):
        source("x", config={"x": dict})
    with pytest.raises(TypeError, match="records or arrow"):
        sink("x", rows="pandas")


def test_schema_comes_from_type_hints() -> None:
    schema = schema_of(Order)
    assert schema_of(Order) is schema
    line = schema.fields_by_name["lines"].schema.value_schema
    assert line is not None
    assert {each.name: each.schema for each in line.fields} == {
        "id": data.INT64,
        "price": data.decimal(2),
        "small": data.INT8,
        "at": data.timestamp(optional=True),
        "tags": data.array(data.STRING),
    }


def test_hint_without_a_schema_names_its_field() -> None:
    @dataclass
    class Wrong:
        price: Decimal

    with pytest.raises(TypeError, match=r"Wrong\.price: a Decimal needs the digits"):
        schema_of(Wrong)


def test_dataclass_rows_have_schema_and_key() -> None:
    @source("orders", topic=lambda row: f"orders-{row.key}", key="key")
    def orders(config: Any, after: Any, limit: int) -> Any:
        return [Order("a", [Line(1, Decimal("1.50"), 2, None, ["x"])])], 1

    (record,) = started(orders, {}).poll()
    assert (record.topic, record.key, record.key_schema) == ("orders-a", "a", data.STRING)
    assert record.value_schema is schema_of(Order)
    assert record.value["lines"][0]["price"] == Decimal("1.50")


def test_partitions_are_divided_over_tasks_and_read_in_turn() -> None:
    @source("tables", partitions=lambda config: ["a", "b", "c"], topic="t")
    def tables(config: Any, table: str, after: int | None, limit: int) -> Any:
        number = (after or 0) + 1
        return [{"table": table, "number": number}], number

    connector = tables.connector_class()
    connector.config, connector.context = {}, None  # type: ignore[assignment]
    configs = connector.task_configs(2)
    assert [each["ottla.partitions"] for each in configs] == ['["a", "c"]', '["b"]']
    task = started(tables, dict(configs[0]), {"c": {"after": 5}})
    rows = [task.poll()[0] for _ in range(3)]
    assert [each.value for each in rows] == [
        {"table": "a", "number": 1},
        {"table": "c", "number": 6},
        {"table": "a", "number": 2},
    ]
    assert rows[1].source_partition == {"partition": "c"}


@pytest.mark.parametrize("error", [ConnectionRefusedError("no"), TimeoutError("late")])
def test_network_errors_are_retriable(error: Exception) -> None:
    @source("failing", topic="t")
    def failing(config: Any, after: Any, limit: int) -> Any:
        raise error

    with pytest.raises(RetriableError, match=type(error).__name__):
        started(failing, {}).poll()


@pytest.mark.parametrize(("rows", "message"), [([1], "A row is a int"), ([{"x": 1}], "A row has no field key")])
def test_wrong_rows_are_data_errors(rows: list[Any], message: str) -> None:
    @source("wrong", topic="t", key="key")
    def wrong(config: Any, after: Any, limit: int) -> Any:
        return rows, 1

    with pytest.raises(DataError, match=message):
        started(wrong, {}).poll()


def sink_record(partition: int, offset: int, value: Any) -> SinkRecord:
    place = {"offset": offset, "original_topic": "t", "original_partition": partition, "original_offset": offset}
    return SinkRecord("t", partition, None, None, None, value, **place)


def test_sink_gets_the_records_of_each_partition_with_their_offsets() -> None:
    calls: list[tuple[list[Any], Batch]] = []

    @sink("collect", resume=lambda config, topic, partition: 7 if partition else None)
    def collect(config: Any, rows: list[SinkRecord], batch: Batch) -> None:
        calls.append(([each.value for each in rows], batch))

    sought: dict[TopicPartition, int] = {}
    task = collect.connector_class.task_class()
    task.start(SinkTaskContext("c", 0, sought.update, print, lambda: False, print), {})  # type: ignore[arg-type]
    task.open([TopicPartition("t", 0), TopicPartition("t", 1)])  # type: ignore[union-attr]
    task.put([sink_record(1, 4, "a"), sink_record(0, 9, "b"), sink_record(1, 6, "c")])  # type: ignore[union-attr]
    assert calls == [(["b"], Batch("t", 0, 9, 9)), (["a", "c"], Batch("t", 1, 4, 6))]
    assert str(calls[1][1]) == "t-1@4-6"
    assert sought == {TopicPartition("t", 1): 7}


def test_arrow_sink_gets_columns() -> None:
    pytest.importorskip("pyarrow")
    seen: list[Any] = []

    @sink("columns", rows="arrow")
    def columns(config: Any, rows: Any, batch: Batch) -> None:
        seen.append((rows.num_rows, rows.column("x").to_pylist()))

    task = columns.connector_class.task_class()
    task.start(SinkTaskContext("c", 0, print, print, lambda: False, print), {})  # type: ignore[arg-type]
    task.put([sink_record(0, 1, {"x": 1}), sink_record(0, 2, {"x": None})])  # type: ignore[union-attr]
    assert seen == [(2, [1, None])]


def test_function_is_found_by_module_and_name() -> None:
    assert plugins.connector_class(f"{__name__}:numbers") is numbers.connector_class
