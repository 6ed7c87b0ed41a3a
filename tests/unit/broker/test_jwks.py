"""The keys of an authorization server: retrieved in a thread, refreshed, and retrieved early for an unknown key."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import jwks
from ottla.broker.jwks import MIN_EXPEDITED_MS, Endpoint, KeySource, RefreshTimes, in_thread, retrieve
from ottla.broker.oauthbearer import validate_signed
from ottla.common.completion import Completion
from ottla.security.jwt import Expectations, KeySet, TokenRejected
from tests import deadlines
from tests.peers.secured import Certificates
from tests.unit.security.test_jwt import NOW_S, public, rsa_key, token

from .harness import START_MS, ManualLoop

URL = "https://idp/keys"
TIMES = RefreshTimes(refresh_ms=60_000, retry_ms=100, max_retry_ms=1_000)


def document(*kids: str) -> bytes:
    return json.dumps({"keys": [public(rsa_key(kid), kid) for kid in kids]}).encode()


def keys(*kids: str) -> KeySet:
    return KeySet(document(*kids))


class Server:
    """An authorization server whose answers the test gives, at the time of the loop."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.requests: list[Completion[KeySet]] = []
        self.source = KeySource(URL, self._retrieve, TIMES, self.loop.call_later, self.loop)

    def _retrieve(self) -> Completion[KeySet]:
        self.requests.append(Completion())
        return self.requests[-1]

    def answer(self, *kids: str) -> None:
        self.requests[-1].complete(keys(*kids))

    def fail(self) -> None:
        self.requests[-1].fail(OSError("connection refused"))

    def log_in(self, kid: str) -> Any:
        """The subject of a token with this key, the reason of its rejection, or None while the log-in waits."""
        expires_s = START_MS // 1000 + 10**6
        text = token({"iat": NOW_S, "exp": expires_s}, rsa_key(kid), kid=kid)
        try:
            valid = validate_signed(self.source, Expectations(), self.loop, text)
        except TokenRejected as rejection:
            return str(rejection)
        if not isinstance(valid, Completion):
            return valid.subject
        return Waiting(valid)


class Waiting:
    """A log-in that waits for keys."""

    def __init__(self, valid: Completion[Any]) -> None:
        self._valid = valid

    @property
    def result(self) -> Any:
        if not self._valid.done:
            return None
        error = self._valid.error
        return self._valid.result().subject if error is None else str(error)


@pytest.fixture
def server() -> Server:
    server = Server()
    server.source.begin()
    return server


def test_first_log_in_waits_for_the_keys(server: Server) -> None:
    waiting = server.log_in("one")
    assert waiting.result is None
    server.answer("one")
    assert waiting.result == server.log_in("one") == "alice"
    assert len(server.requests) == 1


def test_no_client_logs_in_without_keys_and_one_line_says_why(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    waiting = server.log_in("one")
    server.fail()
    assert waiting.result == server.log_in("one") == "the keys of the authorization server could not be retrieved"
    for _ in range(5):
        server.loop.advance(1_000)
        server.fail()
    [line] = [record.getMessage() for record in caplog.records]
    assert "connection refused. No client can log in with OAUTHBEARER until then" in line
    assert "Check sasl.oauthbearer.jwks.endpoint.url" in line
    server.loop.advance(1_000)
    server.answer("one")
    assert server.log_in("one") == "alice"


def test_failed_attempts_are_repeated_after_growing_pauses(server: Server) -> None:
    pauses = []
    for _ in range(7):
        before, count = server.loop.now_ms, len(server.requests)
        server.fail()
        while len(server.requests) == count:
            server.loop.advance(50)
        pauses.append(server.loop.now_ms - before)
    assert pauses == [100, 200, 400, 800, 1_000, 1_000, 1_000]


def test_keys_are_refreshed_and_the_last_ones_stay_in_use_while_the_server_is_down(server: Server) -> None:
    server.answer("one")
    server.loop.advance(TIMES.refresh_ms)
    assert len(server.requests) == 2
    assert server.log_in("one") == "alice"
    server.fail()
    assert server.log_in("one") == "alice"
    server.loop.advance(100)
    server.answer("two")
    assert server.log_in("two") == "alice"
    server.loop.advance(MIN_EXPEDITED_MS)
    revoked = server.log_in("one")
    server.answer("two")
    assert "no key with the id 'one'" in revoked.result


def test_unknown_key_is_looked_up_at_once_and_the_log_in_waits(server: Server) -> None:
    server.answer("one")
    waiting, second = server.log_in("two"), server.log_in("two")
    assert (waiting.result, len(server.requests)) == (None, 2)
    server.answer("one", "two")
    assert waiting.result == second.result == "alice"


def test_tokens_of_strangers_do_not_keep_the_server_busy(server: Server) -> None:
    server.answer("one")
    waiting = server.log_in("strange")
    server.answer("one")
    assert "no key with the id 'strange'" in waiting.result
    for _ in range(100):
        assert "no key with the id 'strange'" in server.log_in("strange")
    assert len(server.requests) == 2
    server.loop.advance(MIN_EXPEDITED_MS)
    server.log_in("strange")
    assert len(server.requests) == 3


def test_closed_source_retrieves_nothing(server: Server) -> None:
    server.answer("one")
    server.source.close()
    server.loop.advance(10 * TIMES.refresh_ms)
    assert "no key with" in server.log_in("two")
    assert (len(server.requests), server.loop.pending_timers) == (1, 0)


# -- real servers and files ------------------------------------------------------------------------------------


@pytest.fixture
def web() -> Iterator[tuple[str, dict[str, Any]]]:
    """The URL of a server, and what it answers."""
    state: dict[str, Any] = {"body": document("one"), "status": 200, "hold": None}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if state["hold"] is not None:
                state["hold"].wait(deadlines.END_S)
            self.send_response(state["status"])
            self.send_header("Content-Length", str(len(state["body"])))
            self.end_headers()
            self.wfile.write(state["body"])

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/keys", state
    if state["hold"] is not None:
        state["hold"].set()
    server.shutdown()
    deadlines.join(thread, "the key server")
    server.server_close()


def test_keys_are_retrieved_by_http_and_from_a_file(web: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, state = web
    assert retrieve(Endpoint(url)).size == 1
    file = tmp_path / "key set.json"
    file.write_bytes(document("one", "two"))
    assert retrieve(Endpoint(file.as_uri())).size == 2
    state["status"] = 503
    with pytest.raises(OSError, match="503"):
        retrieve(Endpoint(url))


def test_document_that_is_too_large_is_not_read(
    web: tuple[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = web
    monkeypatch.setattr(jwks, "MAX_KEY_SET_BYTES", 100)
    file = tmp_path / "keys.json"
    file.write_bytes(document("one"))
    for each in (url, file.as_uri()):
        with pytest.raises(ValueError, match="more than 100 bytes"):
            retrieve(Endpoint(each))


@pytest.mark.parametrize(
    "url", ["", "idp/keys", "ftp://idp/keys", "data:text/plain,{}", "https://", "file://", "//idp"]
)
def test_url_that_is_not_of_a_key_set_is_a_problem(url: str) -> None:
    assert "must begin with https://" in (Endpoint(url).check() or "")


def test_event_loop_runs_while_a_server_does_not_answer(
    web: tuple[str, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    url, state = web
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        state["hold"] = threading.Event()
        held = in_thread(Endpoint(url, timeout_s=0.2))
        assert not held.done
        done = asyncio.Event()
        held.on_done(lambda _: done.set())
        await asyncio.wait_for(done.wait(), deadlines.END_S)
        assert isinstance(held.error, OSError)

    asyncio.run(scenario())


def test_server_needs_a_certificate_that_is_trusted(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(document("one"))

        def log_message(self, *_: object) -> None:
            pass

    class Server(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """Ignore clients that do not trust the server."""

    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"https://localhost:{server.server_port}/keys"
    try:
        assert retrieve(Endpoint(url, ca_file=str(certificates.ca))).size == 1
        for ca_file in (None, str(certificates.other_ca)):
            with pytest.raises(OSError, match="certificate verify failed"):
                retrieve(Endpoint(url, ca_file=ca_file))
    finally:
        server.shutdown()
        deadlines.join(thread, "the key server")
        server.server_close()
