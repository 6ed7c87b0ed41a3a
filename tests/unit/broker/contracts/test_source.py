"""Requests to the registry: what the broker asks, and the errors that producers get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.contracts.source import Registered, RegistrySource
from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import BrokerConfig
from ottla.registry_client import AsyncRegistryClient, RegistrySettingError
from tests.contracts.registry import HttpRegistry

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]}
PERSON = {"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]}


def fetch(url: str, schema_id: int, *, with_schema: bool, timeout_ms: int = 5_000) -> Registered | None:
    """The answer of the registry; raises the error of the request."""

    async def run() -> Registered | None:
        config = BrokerConfig({"confluent.schema.registry.url": url})
        source = RegistrySource.from_config(config, timeout_ms)
        answered = asyncio.Event()
        answer = source.fetch(schema_id, with_schema=with_schema)
        answer.on_done(lambda _: answered.set())
        await asyncio.wait_for(answered.wait(), 10)
        source.close()
        return answer.result()

    return asyncio.run(run())


def test_subjects_schema_and_references_of_an_id() -> None:
    with HttpRegistry() as registry:
        registry.register("address", {"schema": json.dumps(ADDRESS)})
        reference = {"name": "Address", "subject": "address", "version": 1}
        body = {"schema": json.dumps(PERSON), "references": [reference]}
        schema_id = registry.register("people-value", body)["id"]
        registry.register("people-key", body)
        assert fetch(registry.url, schema_id, with_schema=False) == Registered(
            frozenset({"people-value", "people-key"})
        )
        found = fetch(registry.url, schema_id, with_schema=True)
        assert found is not None
        assert found.schema is not None
        assert json.loads(found.schema.text) == PERSON
        assert [(name, json.loads(each.text)) for name, each in found.referenced] == [("Address", ADDRESS)]
        assert fetch(registry.url, 99, with_schema=True) is None


def test_registry_that_is_down_is_a_retriable_error() -> None:
    with HttpRegistry() as registry:
        registry.refuses = True
        with pytest.raises(KafkaError, match="the registry is down for a test") as raised:
            fetch(registry.url, 1, with_schema=False)
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        url = registry.url
    with pytest.raises(KafkaError, match="cannot be asked for schema id 1: No schema registry answered") as raised:
        fetch(url, 1, with_schema=False)
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


class Silent:
    """A registry client without an answer."""

    async def get_schema_versions(self, _schema_id: int) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


class Odd(Silent):
    """A registry client whose answer has another form."""

    async def get_schema_versions(self, _schema_id: int) -> Any:
        raise KeyError("subject")


def ask(client: Any, then: Callable[[RegistrySource], Awaitable[None]] | None = None) -> KafkaError:
    """The error of a request with this client."""

    async def run() -> Exception | None:
        source = RegistrySource(client, 50)
        answered = asyncio.Event()
        answer = source.fetch(1, with_schema=False)
        answer.on_done(lambda _: answered.set())
        if then is not None:
            await then(source)
        await asyncio.wait_for(answered.wait(), 10)
        return answer.error

    error = asyncio.run(run())
    assert isinstance(error, KafkaError)
    return error


def test_registry_that_does_not_answer_is_a_retriable_error() -> None:
    error = ask(Silent())
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert (error.message or "").endswith("it did not answer within 0.05 s")


def test_response_of_another_form_is_a_retriable_error() -> None:
    assert ask(Odd()).code is ErrorCode.REQUEST_TIMED_OUT


def test_stop_of_the_broker_fails_the_requests() -> None:
    async def close(source: RegistrySource) -> None:
        await asyncio.sleep(0)
        source.close()

    assert (ask(Silent(), close).message or "").endswith("the broker stops")


def test_client_has_the_settings_of_the_broker() -> None:
    config = BrokerConfig(
        {
            "confluent.schema.registry.url": "http://a:1,http://b:2",
            "confluent.basic.auth.credentials.source": "USER_INFO",
            "confluent.basic.auth.user.info": "me:secret",
        }
    )
    client = RegistrySource.from_config(config, 700)._client
    assert isinstance(client, AsyncRegistryClient)
    assert client.settings.urls == ("http://a:1", "http://b:2")
    assert client.settings.values["default_api_timeout_ms"] == 700
    assert client.settings.authorization() == "Basic bWU6c2VjcmV0"
    with pytest.raises(RegistrySettingError):
        RegistrySource.from_config(BrokerConfig({"confluent.schema.registry.url": "nonsense"}), 700)
