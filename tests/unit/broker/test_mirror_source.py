"""The connections of a mirror to the nodes of its source."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.mirrors import source as module
from ottla.broker.mirrors.mirror import fetchers_of
from ottla.broker.mirrors.source import READ_AGAIN_S, Source
from ottla.common.errors import KafkaError
from ottla.config import resolve_mirror
from ottla.network.errors import SecuritySettingError
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker


def test_connections_to_addresses_that_the_source_has_left_are_closed() -> None:
    settings = {key: each.value for key, each in resolve_mirror({"bootstrap.servers": "first:1"}).items()}
    source = Source("mirror", settings)
    closed: list[int] = []
    addresses = [("first", 1), ("node", 2), ("node", 3)]
    for host, port in addresses:
        channel = SimpleNamespace(close=lambda port=port: closed.append(port))
        source._channels[host, port] = cast("Any", channel)

    async def answer(*_: object, **__: object) -> MetadataResponse:
        broker = MetadataResponseBroker(node_id=1, host="node", port=3)
        return MetadataResponse(brokers=[broker], cluster_id="A")

    source.ask = answer  # type: ignore[method-assign]
    asyncio.run(source.metadata([]))
    assert (closed, sorted(source._channels)) == ([2], [("first", 1), ("node", 3)])
    assert (source.nodes, source.cluster_id) == ({1: ("node", 3)}, "A")
    assert source.fastest_s < math.inf


def test_certificates_are_read_again_and_the_previous_ones_serve_while_files_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.truststore.location": "/missing/ca.pem"}
    source = Source("mirror", {key: each.value for key, each in resolve_mirror(given).items()})
    source.nodes = {1: ("a", 1)}
    now_s, contexts = 0.0, ["first", "second"]

    def tls_context(_: object) -> str:
        if contexts[0] == "":
            raise SecuritySettingError("half a file")
        return contexts[0]

    async def scenario() -> None:
        nonlocal now_s
        with pytest.raises(KafkaError, match=r"/missing/ca\.pem"):
            await source.ask(MetadataRequest())
        monkeypatch.setattr(module.late, "tls_context", tls_context)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
        now_s += READ_AGAIN_S
        used = []
        for text in ("first", "second", "", "third"):
            contexts[0] = text
            options = source._security.options()
            assert options.tls is not None
            used.append(options.tls())
            now_s += READ_AGAIN_S
        assert used == ["first", "second", "second", "third"]

    asyncio.run(scenario())


def test_stores_have_the_types_and_passwords_of_kafkas_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": "/etc/ca.p12",
        "ssl.truststore.password": "secret",
    }
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(module.late, "tls_context", seen.append)
    source = Source("mirror", {key: each.value for key, each in resolve_mirror(given).items()})

    async def scenario() -> None:
        source._security.options()

    asyncio.run(scenario())
    [options] = seen
    assert (options["ssl_truststore_type"], options["ssl_truststore_password"]) == ("PKCS12", "secret")
    assert (options["ssl_keystore_type"], options["ssl_keystore_password"]) == ("PEM", None)


@pytest.mark.parametrize(
    ("given", "answer_s", "expected"), [(-1, math.inf, 4), (-1, 0.1, 4), (-1, 0.002, 1), (8, 0.002, 8), (1, 0.1, 1)]
)
def test_only_a_long_line_has_several_fetchers_unless_their_number_is_set(
    given: int, answer_s: float, expected: int
) -> None:
    assert fetchers_of(given, answer_s) == expected
