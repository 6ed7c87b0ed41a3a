"""Both clients against a registry on real HTTP."""

import asyncio

import pytest

from ottla.registry_client import (
    AsyncRegistryClient,
    Reference,
    RegistryClient,
    RegistryUnavailable,
    Schema,
    SchemaRegistryError,
    SchemaType,
)
from tests.registry.stand_in import StandIn

STRING = Schema(SchemaType.AVRO, '"string"')
JSON = Schema(SchemaType.JSON, '{"type":"object"}', (Reference("a", "s", 1),), {"properties": {"owner": "x"}})


@pytest.fixture
def registry():
    with StandIn() as running:
        yield running


def test_blocking_client(registry):
    with RegistryClient({"schema.registry.url": registry.url, "basic.auth.user.info": "u:p"}) as client:
        assert client.register_schema("s", STRING) == 1
        assert client.register_schema("s", JSON) == 2
        assert client.get_schema(2) == JSON
        assert client.get_schema(2) == JSON
        assert client.cached_schema(2) == JSON
        assert client.lookup_schema("s", JSON).version == 2
        assert client.get_latest_version("s").schema == JSON
        assert client.get_version("s", 1).schema == STRING
        assert client.get_latest_with_metadata("s", {"owner": "x"}).id == 2
        assert client.test_compatibility("s", STRING).is_compatible
        registry.incompatible = ["reason"]
        assert client.test_compatibility("s", STRING, None).messages == ("reason",)
        assert client.get_subjects() == ["s"]
        assert client.delete_subject("s") == [1, 2]
        with pytest.raises(SchemaRegistryError) as caught:
            client.lookup_schema("s", STRING)
        assert caught.value.error_code == 40401
    assert sum("schemas/ids" in each for each in registry.requests) == 1
    assert set(registry.authorizations) == {"Basic dTpw"}


def test_asyncio_client(registry):
    async def use():
        async with AsyncRegistryClient(url=registry.url) as client:
            assert await client.register_schema("s", STRING) == 1
            assert (await client.get_latest_version("s")).schema == STRING
            return await asyncio.gather(*(client.get_schema(1) for _ in range(20)))

    assert asyncio.run(use()) == [STRING] * 20


def test_closed_connections_and_server_errors_are_retried(registry):
    registry.faults = [None, 500, 503]
    with RegistryClient(url=registry.url, retries_wait_ms=1) as client:
        assert client.register_schema("s", STRING) == 1


def test_dead_address_is_replaced_by_the_next(registry):
    with RegistryClient(url=["http://127.0.0.1:1", registry.url]) as client:
        assert client.get_subjects() == []


def test_no_address_answers():
    with (
        RegistryClient(url="http://127.0.0.1:1", max_retries=1, retries_wait_ms=1) as client,
        pytest.raises(RegistryUnavailable, match=r"http://127\.0\.0\.1:1"),
    ):
        client.get_subjects()
