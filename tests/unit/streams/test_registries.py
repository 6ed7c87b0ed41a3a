"""The schema registry of declarations, without Spark."""

from __future__ import annotations

import pytest

from ottla.streams import Output, StreamsError, pipeline, stream, table, to
from ottla.streams.registries import first, registry
from ottla.streams.settings import format_options, options_of_table

SECRET = "Xq7-never-shown"


def test_first_registry_wins_and_no_setting_reaches_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own = registry("own", {"url": "http://own", "basic.auth.user.info": f"ann:{SECRET}"})
    of_run = registry("run", "http://run")
    assert first(own, of_run) == {"schema.registry.url": "http://own", "basic.auth.user.info": f"ann:{SECRET}"}
    assert first(None, of_run) == {"schema.registry.url": "http://run"}
    monkeypatch.setenv("OTTLA_REGISTRY", "http://environment")
    assert first(None, None) == {"schema.registry.url": "http://environment"}
    monkeypatch.delenv("OTTLA_REGISTRY")
    assert first() == {"schema.registry.url": "http://127.0.0.1:8081"}


def test_variables_are_read_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    made = registry("own", {"url": "http://own", "basic.auth.user.info": "ann:${env:REGISTRY_PASSWORD}"})
    assert made is not None
    monkeypatch.delenv("REGISTRY_PASSWORD", raising=False)
    with pytest.raises(StreamsError, match="environment variable REGISTRY_PASSWORD"):
        made.options()
    monkeypatch.setenv("REGISTRY_PASSWORD", SECRET)
    assert made.options()["basic.auth.user.info"] == f"ann:{SECRET}"
    assert SECRET not in repr(made)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"basic.auth.user.info": SECRET}, "has no url"),
        ({"url": "http://own", "bsic.auth.user.info": SECRET}, "did you mean"),
        ({"url": "http://own", "max.retries": 3}, "values must be strings"),
        ({"url": "http://own", "basic.auth.credentials.source": SECRET}, "must be one of"),
        (3, "registry is a int"),
    ],
)
def test_wrong_registries_are_named(given: object, problem: str) -> None:
    with pytest.raises(StreamsError, match=problem):
        stream("orders", "avro", schema="registry", registry=given)  # type: ignore[arg-type]


def test_registry_without_its_schema_has_no_effect() -> None:
    for declare in (
        lambda: stream("orders", "text", registry="http://own"),
        lambda: table("orders", key="k", schema="a INT", registry="http://own"),
        lambda: to("orders", None, value="json", registry="http://own"),  # type: ignore[arg-type]
    ):
        with pytest.raises(StreamsError, match="registry has no effect"):
            declare()


@pytest.mark.parametrize(("kind", "schema_type"), [("avro", "AVRO"), ("json", "JSON"), ("protobuf", "PROTOBUF")])
def test_options_of_each_format(kind: str, schema_type: str) -> None:
    own = registry("own", "http://own")
    expected = {"value.format": "registry", "value.schemaType": schema_type, "schema.registry.url": "http://own"}
    assert format_options("value", kind, "registry", (own,)) == expected
    given = table("orders", key="k", value=kind, schema="registry", registry="http://own")  # type: ignore[arg-type]
    assert options_of_table(given, {}, (registry("run", "http://run"),)) == {"subscribe": "orders", **expected}


def test_pipeline_has_a_registry() -> None:
    @pipeline(registry={"url": "http://own", "basic.auth.user.info": f"ann:{SECRET}"})
    def copies(orders: object = stream("orders", "avro", schema="registry")) -> Output:
        raise NotImplementedError

    assert copies.registry is not None
    assert SECRET not in repr(copies)
