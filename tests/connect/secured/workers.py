"""Workers with HTTPS and mutual TLS against a broker with SASL_SSL and an authorizer, as real processes.

Settings are in a properties file with mode 600, as operators have them: words of a command line are public.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ottla.clients import Admin, Consumer
from ottla.clients.admin import Acl, AclOperation, AclResource
from ottla.testing import Ottla
from ottla.testing.ports import ReservedPort
from ottla.tools.secured_files import AUTHORITY, AUTHORIZER, KEY_STORE, LOCAL_HOSTS, SecuredFiles
from tests import forked

GROUP = "etl"
WAIT_S = 60.0
ADMIN, WORKER, TEAM = "admin", "worker", "team"
"""The super user; the principal of workers; the principal of one connector."""
BROKER = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": f"User:{ADMIN}",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
}
WORKER_ACLS = (
    (AclResource.group(GROUP), (AclOperation.READ,)),
    (
        AclResource.topic(f"{GROUP}-", prefixed=True),
        (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS),
    ),
    (AclResource.transactional_id(f"connect-cluster-{GROUP}"), (AclOperation.WRITE,)),
)
"""The rights of a worker itself, as docs/connect.md lists them."""


def connector_acls(name: str, topic: str) -> tuple[tuple[AclResource, tuple[AclOperation, ...]], ...]:
    """Return the rights of an exactly-once source and of a sink on one topic, as docs/connect.md lists them."""
    return (
        (AclResource.topic(topic), (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE)),
        (AclResource.group(f"connect-{name}"), (AclOperation.READ,)),
        (AclResource.transactional_id(f"{GROUP}-{name}-", prefixed=True), (AclOperation.WRITE,)),
    )


def allow(admin: Admin, user: str, rights: tuple[tuple[AclResource, tuple[AclOperation, ...]], ...]) -> None:
    """Give a user some rights."""
    admin.create_acls([Acl(each, f"User:{user}", operation) for each, operations in rights for operation in operations])


class Answer(NamedTuple):
    """The response to a request: JSON, or None without a body."""

    status: int
    body: Any
    text: str


class Stores:
    """The certificates of the workers and of their clients, by one authority; `rogue` has another authority."""

    def __init__(self, directory: Path) -> None:
        files, other = SecuredFiles(directory / "authority"), SecuredFiles(directory / "other")
        home = files.issue(1, LOCAL_HOSTS, 2)
        self.key_store, self.authority = home / KEY_STORE, home / AUTHORITY
        self.client, self.rogue = files.issue_client("operator", 2), other.issue_client("operator", 2)

    def settings(self) -> dict[str, str]:
        """Return the settings of a worker's listener with mutual TLS."""
        return {
            "listeners.https.ssl.keystore.location": str(self.key_store),
            "listeners.https.ssl.keystore.type": "PEM",
            "listeners.https.ssl.truststore.location": str(self.authority),
            "listeners.https.ssl.truststore.type": "PEM",
            "listeners.https.ssl.client.auth": "required",
        }

    def context(self, certificate: Path | None) -> ssl.SSLContext:
        """Return the TLS context of a client, with or without a certificate."""
        context = ssl.create_default_context(cafile=str(self.authority))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


class SecuredWorker:
    """A worker with `words` such as `serve`, on a loopback port with HTTPS, and its settings in a file."""

    def __init__(self, directory: Path, stores: Stores, settings: Mapping[str, str], *words: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._stores = stores
        self._port = ReservedPort()
        self._words = words
        self.worker_id = f"127.0.0.1:{self._port.number}"
        self.url = f"https://{self.worker_id}"
        given = {**settings, **stores.settings(), "listeners": self.url}
        self._config = directory / "worker.properties"
        self._config.touch(0o600)
        self._config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        self._process: forked.Process | None = None

    def launch(self, environment: Mapping[str, str] | None = None) -> None:
        """Start the process, and return at once. Without variables of its own, it is forked."""
        command = [sys.executable, "-m", "ottla.cli.main", "connect", *self._words, "--config", str(self._config)]
        with self._path("stdout").open("wb") as out, self._path("stderr").open("ab") as log:
            command += ["--log-level", "debug"]
            if environment is None:
                self._process = forked.start(command, out, log, Path.cwd())
            else:
                self._process = subprocess.Popen(
                    command, stdout=out, stderr=log, stdin=subprocess.DEVNULL, env=os.environ | environment
                )

    def wait_until_ready(self) -> None:
        """Wait until the worker has announced its address."""
        assert self._process is not None
        deadline = time.monotonic() + WAIT_S
        while not self._path("stdout").read_text().startswith("connect="):
            assert self._process.poll() is None, self.log()[-6000:]
            assert time.monotonic() < deadline, self.log()[-6000:]
            time.sleep(0.02)

    def request(
        self, method: str, path: str, body: object = None, *, tls: ssl.SSLContext | None = None, user: str = ""
    ) -> Answer:
        """Send one request with the operator's certificate, or with another context. `user` is NAME:PASSWORD."""
        context = tls or self._stores.context(self._stores.client)
        connection = http.client.HTTPSConnection("127.0.0.1", self._port.number, timeout=30.0, context=context)
        headers = {"Content-Type": "application/json"}
        if user:
            headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode()
            return Answer(response.status, json.loads(text) if text else None, text)
        finally:
            connection.close()

    def log(self) -> str:
        """All lines that the process has written."""
        return self._path("stderr").read_text() + self._path("stdout").read_text()

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def stop(self) -> int:
        """SIGTERM, and SIGKILL after the deadline; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(WAIT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)


@contextmanager
def running(*workers: SecuredWorker, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Start workers together, and kill what is left of them at the end."""
    try:
        for each in workers:
            each.launch(environment)
        for each in workers:
            each.wait_until_ready()
        yield
    finally:
        for each in workers:
            each.kill()


def until(holds: Callable[[], Any], about: Callable[[], object]) -> Any:
    """Return the first true result before the deadline; OSError counts as false."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            found = holds()
        except OSError:
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, about()
        time.sleep(0.1)


def accepted(worker: SecuredWorker, method: str, path: str, body: object = None, **more: Any) -> Answer:
    """Send a request, again while the group divides its work; the answer must be a success."""

    def send() -> Answer | None:
        answer = worker.request(method, path, body, **more)
        return None if answer.status == 409 else answer

    answer: Answer = until(send, lambda: f"{method} {path} is answered with 409")
    assert answer.status < 300, answer
    return answer


def states(worker: SecuredWorker, name: str, **more: Any) -> list[str]:
    """The states of a connector and its tasks."""
    found = worker.request("GET", f"/connectors/{name}/status", **more)
    if found.status != 200:
        return []
    return [found.body["connector"]["state"], *(each["state"] for each in found.body["tasks"])]


def contents(kafka: Ottla) -> bytes:
    """All records of all topics, with the internal topics of the workers."""
    found = []
    settings = kafka.settings(user=ADMIN)
    with Admin(settings) as admin:
        names = [each.name for each in admin.list_topics() if not re.match("__", each.name)]
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        partitions = [(name, each) for name in names for each in consumer.partitions_of(name)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + WAIT_S
        while any(consumer.position(each) < end for each, end in ends.items()):
            assert time.monotonic() < deadline, "the topics were not read in time"
            found += [(record.key or b"") + b" " + (record.value or b"") for record in consumer.poll(0.2)]
    assert found
    return b"\n".join(found)
