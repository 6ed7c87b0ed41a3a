"""An OAuth authorization server on loopback: a key set (JWKS), and a token endpoint for two grants.

The tokens of the endpoint are for the user `subject`, whichever the client is, unless `subjects` has the client. It
serves client credentials (RFC 6749) and the JWT bearer grant (RFC 7523), whose assertion it returns in `forms`.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests import deadlines

CLIENT, SECRET = "service", "s&cret: +ü"
ISSUER, AUDIENCE = "https://idp.example", "kafka"


class IdentityProvider:
    """The server; use it as a context manager."""

    def __init__(self, subject: str = "alice") -> None:
        self.subject = subject
        self.subjects: dict[str, str] = {}
        """Other users, by the client that gets their tokens."""
        self.lifetime_s = 600
        self.keys = {"first": rsa.generate_private_key(65537, 2048)}
        self.forms: list[dict[str, str]] = []
        """The forms that clients sent to the token endpoint."""
        self.refuses = False
        self.downloads = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.downloads += 1
                self._answer(200, provider.key_set)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = dict(urllib.parse.parse_qsl(body, keep_blank_values=True))
                header = self.headers.get("Authorization", "")
                if header.startswith("Basic "):
                    name, _, secret = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
                    unquote = urllib.parse.unquote_plus if "%" in secret else str
                    form |= {"client_id": unquote(name), "client_secret": unquote(secret)}
                provider.forms.append(form)
                if provider.refuses:
                    self._answer(401, {"error": "invalid_client"})
                else:
                    given = {
                        "access_token": provider.token(
                            sub=provider.subjects.get(form.get("client_id", ""), provider.subject)
                        ),
                        "expires_in": provider.lifetime_s,
                        "token_type": "Bearer",
                    }
                    self._answer(200, given)

            def _answer(self, status: int, content: dict[str, Any]) -> None:
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        deadlines.join(self._thread, "the identity provider")
        self._server.server_close()

    @cached_property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def key_set(self) -> dict[str, Any]:
        """The public keys."""
        return {
            "keys": [
                RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": kid, "use": "sig", "alg": "RS256"}
                for kid, key in self.keys.items()
            ]
        }

    def token(self, kid: str = "first", key: rsa.RSAPrivateKey | None = None, **claims: object) -> str:
        """A token of the subject, with other claims if they are given; a claim that is None is omitted."""
        now_s = int(time.time())
        given = {
            "sub": self.subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + self.lifetime_s,
            "scope": "kafka",
        } | claims  # fmt: skip
        payload = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(payload, key or self.keys[kid], "RS256", headers={"kid": kid})
