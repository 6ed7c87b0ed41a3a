"""The usage of users, clients and topics, from the difference of two scrapes of all brokers.

The admin API has no such counters, so each broker needs a metrics endpoint (`ottla.metrics.listener`). Its address is
the broker's setting; the host is the broker's if the endpoint listens on all addresses.
"""

from __future__ import annotations

import re
import ssl
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from ottla.broker.metrics import families as f
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.http_body import read_body
from ottla.config import parse_address
from ottla.config.metrics_rows import KEYSTORE, LISTENER

TIMEOUT_S: Final = 10.0
# The scrape of 10,000 partitions has 7 MB.
LARGEST_SCRAPE: Final = 256 << 20
_LABEL: Final = re.compile(r'([A-Za-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
# The value of a row, by the metric. The size of a topic is not a counter.
_OF_CLIENTS: Final = {
    f.CLIENT_PRODUCED.name: "in_per_s",
    f.CLIENT_FETCHED.name: "out_per_s",
    f.CLIENT_REQUEST_TIME.name: "busy",
    f.CLIENT_THROTTLED.name: "throttled",
}
_OF_TOPICS: Final = {f.BYTES_IN.name: "in_per_s", f.BYTES_OUT.name: "out_per_s", f.LOG_SIZE.name: "stored"}
_NOT_RATES: Final = frozenset({"stored"})

Key = tuple[str, ...]


class Usage(NamedTuple):
    """The counters of each user, client or topic at one time, summed over all brokers."""

    at_ms: int
    counters: Mapping[Key, Mapping[str, float]]


class Place(NamedTuple):
    """Where an endpoint is."""

    host: str
    port: int
    uses_tls: bool = False


class Access(NamedTuple):
    """The token that a scrape presents, and the authorities that it trusts."""

    token: str | None = None
    context: ssl.SSLContext | None = None
    """For endpoints with TLS; None trusts the authorities of the system."""


def endpoints(admin: api.Admin) -> dict[str, Place]:
    """Return the address of each broker's endpoint. Raises Failure if a broker has none that this machine reaches."""
    brokers = {api.ConfigResource.broker(each.node_id): each for each in admin.describe_cluster().brokers}
    found = {}
    for resource, settings in admin.describe_configs(brokers).items():
        entry = settings.get(LISTENER)
        if entry is None or entry.value is None:
            raise Failure(
                f"broker {resource.name} has no metrics endpoint, which `ottla top --by` reads",
                f"Start Ottla's brokers with --metrics or {LISTENER}; --metrics HOST:PORT names other endpoints.",
            )
        host, port = parse_address(entry.value)
        own_host = brokers[resource].host
        if _is(host, "is_loopback") and not _is(own_host, "is_loopback"):
            raise Failure(
                f"the metrics endpoint of broker {resource.name} is {entry.value}, which only its own machine reaches",
                "Run `ottla top` there, or name an endpoint with --metrics HOST:PORT.",
            )
        key_store = settings.get(KEYSTORE)
        uses_tls = key_store is not None and key_store.value is not None
        reached = own_host if not host or _is(host, "is_unspecified") else host
        found[f"broker {resource.name}"] = Place(reached, port, uses_tls)
    return found


def _is(host: str, question: str) -> bool:
    """Ask an address; a name other than localhost says no."""
    try:
        return bool(getattr(ip_address("127.0.0.1" if host == "localhost" else host), question))
    except ValueError:
        return False


def read_usage(addresses: Mapping[str, Place], by: str, access: Access) -> Usage:
    """Scrape all endpoints. `by` is "user", "client" or "topic". Raises Failure if one does not answer."""
    counters: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, address in addresses.items():
        for key, counter, value in samples(_scrape(name, address, access), by):
            counters[key][counter] += value
    return Usage(units.now_ms(), counters)


def samples(lines: Iterable[str], by: str) -> Iterator[tuple[Key, str, float]]:
    """Yield the key, the counter and its value of each line that counts for a user, client or topic."""
    wanted = _OF_TOPICS if by == "topic" else _OF_CLIENTS
    keys = {"topic": ("topic",), "user": ("user",), "client": ("user", "client_id")}[by]
    for line in lines:
        name, brace, rest = line.partition("{")
        counter = wanted.get(name)
        if counter is None or not brace:
            continue  # also the sums over all topics, which have no labels
        labels, _, value = rest.rpartition("} ")
        found = {label: _ESCAPED.sub(_unescaped, text) for label, text in _LABEL.findall(labels)}
        yield tuple(found.get(key, "") for key in keys), counter, float(value)


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _scrape(name: str, address: Place, access: Access) -> list[str]:
    place = f"the metrics endpoint of {name} at {address.host}:{address.port}"
    connection = HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
    if address.uses_tls:
        connection = HTTPSConnection(address.host, address.port, timeout=TIMEOUT_S, context=access.context)
    try:
        connection.request(
            "GET", "/metrics", headers={"Authorization": f"Bearer {access.token}"} if access.token else {}
        )
        response = connection.getresponse()
        body = read_body(response, LARGEST_SCRAPE)
    except ssl.SSLCertVerificationError as error:
        reason = f"{place} has a certificate that is not trusted: {error.verify_message}"
        raise Failure(reason, "Name its authority with -X ssl.truststore.location=FILE.") from error
    except (OSError, HTTPException) as error:
        raise Failure(f"{place} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if response.status == 401:
        raise Failure(f"{place} needs a token: set OTTLA_METRICS_TOKEN to the broker's ottla.metrics.token")
    if response.status != 200:
        raise Failure(f"{place} answered with status {response.status}")
    return body.decode(errors="replace").splitlines()


def usage_rows(before: Usage, now: Usage, by: str, most: int) -> list[dict[str, Any]]:
    """Return the rows of one frame, the busiest first; rates are per second, `busy` and `throttled` shares of time."""
    seconds = max(0.001, (now.at_ms - before.at_ms) / 1000)
    names = {"topic": ("topic",), "user": ("user",), "client": ("user", "client")}[by]
    counters = (_OF_TOPICS if by == "topic" else _OF_CLIENTS).values()
    found = []
    for key, counted in now.counters.items():
        earlier = before.counters.get(key, {})
        row: dict[str, Any] = dict(zip(names, key, strict=True))
        for counter in counters:
            value = counted.get(counter, 0.0)
            is_rate = counter not in _NOT_RATES
            row[counter] = max(0.0, value - earlier.get(counter, 0.0)) / seconds if is_rate else int(value)
        found.append(row)
    return sorted(found, key=lambda row: (-row["in_per_s"] - row["out_per_s"], *_names(row, names)))[:most]


def _names(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [row[name] for name in names]
