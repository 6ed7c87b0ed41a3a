"""Settings of the REST API, and the layers around it: headers, CORS, admin listeners, log-ins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from ottla.common.failure import Failure
from ottla.connect.herder.sole_member import SoleMember
from ottla.connect.rest.access import Access, layered, logins
from ottla.connect.rest.application import Application, Surface
from ottla.connect.rest.forwarding import Forwarding
from ottla.connect.rest.settings import RestSettings
from ottla.web.credentials import Basic, Credentials
from ottla.web.errors import Unauthenticated
from ottla.web.guard import BodyLimits, Guard
from tests.connect.rest.serving import herder_in_memory


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rest.extension.classes": "com.example.A"}, "a worker in Python cannot load Java classes"),
        ({"listeners": "ftp://x"}, "listeners: "),
        ({"admin.listeners": "http://x:99999"}, "admin.listeners: "),
        ({"authentication.method": "KERBEROS"}, "it must be NONE, or BASIC and BEARER"),
        ({"response.http.headers.config": "remove X: y"}, "is not of the form `set NAME: VALUE`"),
        ({"rest.request.timeout.ms": "0"}, "Value must be at least 1"),
    ],
)
def test_wrong_settings_are_refused_with_a_sentence(settings: dict[str, str], text: str) -> None:
    with pytest.raises(Failure) as caught:
        RestSettings.read(settings)
    assert text in caught.value.problem


def test_settings_have_kafka_connects_names() -> None:
    found = RestSettings.read(
        {
            "listeners": "https://0.0.0.0:8443,http://127.0.0.1:8083",
            "admin.listeners": "",
            "listeners.https.ssl.keystore.location": "a.jks",
            "ssl.keystore.location": "b.jks",
            "ssl.truststore.location": "t.jks",
            "rest.advertised.host.name": "worker",
            "rest.advertised.port": "9",
            "group.id": "not a setting of the REST API",
        }
    )
    assert [each.url for each in found.listeners] == ["https://0.0.0.0:8443", "http://127.0.0.1:8083"]
    assert found.admin_listeners == ()
    assert found.tls == {"ssl.keystore.location": "a.jks", "ssl.truststore.location": "t.jks"}
    assert found.advertised(found.listeners[0]).url == "https://worker:9"


@asynccontextmanager
async def client(settings: dict[str, str], surface: Surface = Surface()) -> AsyncIterator[httpx.AsyncClient]:  # noqa: B008
    herder, forwarding = herder_in_memory(), Forwarding(5.0)
    assert isinstance(herder.membership, SoleMember)
    await herder.membership.start()
    app = layered(Application(herder, forwarding, 20.0, surface), RestSettings.read(settings), None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Guard(app, BodyLimits())), base_url="http://w") as http:
        yield http
    await herder.close()
    await forwarding.close()


def test_web_pages_of_allowed_origins_may_read_answers() -> None:
    async def test() -> None:
        given = {"access.control.allow.origin": "http://ui", "access.control.allow.methods": "GET,PUT"}
        async with client(given) as http:
            page = {"Origin": "http://ui"}
            answer = await http.get("/connectors", headers=page)
            assert answer.headers["access-control-allow-origin"] == "http://ui"
            other = await http.get("/connectors", headers={"Origin": "http://evil"})
            assert "access-control-allow-origin" not in other.headers
            asked = await http.options("/connectors", headers={**page, "Access-Control-Request-Method": "PUT"})
            assert asked.headers["access-control-allow-methods"] == "GET, PUT"

    asyncio.run(test())


def test_answers_have_the_configured_headers() -> None:
    async def test() -> None:
        async with client({"response.http.headers.config": '"set X-Frame-Options: DENY", add A: b'}) as http:
            answer = await http.get("/nothing")
            assert (answer.headers["x-frame-options"], answer.headers["a"], answer.status_code) == ("DENY", "b", 404)

    asyncio.run(test())


def test_a_listener_serves_its_part_of_the_api() -> None:
    async def test() -> None:
        async with client({}, Surface(admin=False, topic_reset=False)) as http:
            assert (await http.get("/admin/loggers")).status_code == 404
            assert (await http.get("/connectors")).status_code == 200
            assert (await http.put("/connectors/a/topics/reset")).status_code == 404
            assert (await http.get("/connectors/a/topics")).status_code == 200
        async with client({}, Surface(main=False)) as http:
            assert (await http.get("/admin/loggers/root")).status_code == 200
            assert (await http.get("/connectors")).status_code == 404

    asyncio.run(test())


class Checks:
    """Stands for the log-ins at a broker: one user has the password `secret`."""

    async def principal(self, credentials: Credentials | None) -> str:
        if isinstance(credentials, Basic) and credentials.password == "secret":
            return f"User:{credentials.user}"
        raise Unauthenticated


def test_users_log_in_but_for_health_checks_and_signed_requests() -> None:
    async def test() -> None:
        herder, forwarding = herder_in_memory(), Forwarding(5.0)
        assert isinstance(herder.membership, SoleMember)
        await herder.membership.start()
        access = Access(Application(herder, forwarding, 20.0), Checks())  # type: ignore[arg-type]
        transport = httpx.ASGITransport(Guard(access, BodyLimits()))
        async with httpx.AsyncClient(transport=transport, base_url="http://w") as http:
            assert (await http.get("/connectors")).status_code == 401
            assert (await http.get("/connectors", auth=("me", "wrong"))).status_code == 401
            assert (await http.get("/connectors", auth=("me", "secret"))).status_code == 200
            assert (await http.get("/health")).status_code == 200
            assert (await http.get("/admin/loggers")).status_code == 401
            # It is not signed, which is another refusal.
            assert (await http.post("/connectors/a/tasks", json=[])).status_code == 403
            assert (await http.post("/connectors/a/tasks/../../b/pause", json=[])).status_code in (401, 404)
        await herder.close()
        await forwarding.close()

    asyncio.run(test())


def test_log_ins_need_brokers_with_sasl() -> None:
    settings = RestSettings.read({"authentication.method": "basic"})
    with pytest.raises(Failure, match="the security protocol of the worker is PLAINTEXT"):
        logins(settings, {"bootstrap.servers": "b:9092"})
    assert logins(RestSettings.read({}), {}) is None
