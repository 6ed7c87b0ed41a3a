"""Client quotas with Kafka's tools: kafka-configs changes them, Java's producer and consumer report their pauses."""

from __future__ import annotations

import re

import pytest

from tests.clients.support import unique, wait_until

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]


def described(tools: Tools, *entity: str) -> list[str]:
    return [
        line for line in tools.ok("configs", "--describe", *entity).splitlines() if line.startswith("Quota configs")
    ]


@pytest.mark.parametrize(
    ("entity", "shown", "quotas"),
    [
        (("users", "NAME"), "user-principal 'NAME'", ["producer_byte_rate=1024.0", "request_percentage=12.5"]),
        (("users", None), "the default user-principal", ["consumer_byte_rate=2048.0"]),
        (("clients", "NAME"), "client-id 'NAME'", ["controller_mutation_rate=0.5"]),
        (("users", "NAME", "clients", "NAME"), "user-principal 'NAME', client-id 'NAME'", ["producer_byte_rate=7.0"]),
        (
            ("users", "NAME", "clients", None),
            "user-principal 'NAME', the default client-id",
            ["consumer_byte_rate=7.0"],
        ),
        (("ips", "203.0.113.9"), "ip '203.0.113.9'", ["connection_creation_rate=5.0"]),
    ],
    ids=lambda value: None,
)
def test_kafka_configs_sets_describes_and_deletes_quotas(
    tools: Tools, entity: tuple[str | None, ...], shown: str, quotas: list[str]
) -> None:
    name = unique("quota")
    words = [
        word
        for kind, of in zip(entity[::2], entity[1::2], strict=True)
        for word in (
            "--entity-type",
            str(kind),
            *(["--entity-default"] if of is None else ["--entity-name", of.replace("NAME", name)]),
        )
    ]
    tools.ok("configs", "--alter", *words, "--add-config", ",".join(quotas))
    expected = f"Quota configs for {shown.replace('NAME', name)} are "
    wait_until(lambda: any(line.startswith(expected) for line in described(tools, *words)), "the quotas", 20)
    (line,) = (line for line in described(tools, *words) if line.startswith(expected))
    assert sorted(line.removeprefix(expected).split(", ")) == sorted(quotas)
    refused = tools.fails("configs", "--alter", *words, "--add-config", f"{quotas[0].split('=')[0]}=-1")
    assert "must be greater than 0" in refused
    tools.ok("configs", "--alter", *words, "--delete-config", ",".join(quota.split("=")[0] for quota in quotas))
    wait_until(lambda: not any(line.startswith(expected) for line in described(tools, *words)), "no quotas", 20)


def metric(output: str, name: str) -> float:
    found = re.search(rf"{name}:\{{client-id=[^}}]*\}}\s*: ([0-9.E]+)", output)
    assert found, f"no {name} in:\n{output}"
    return float(found.group(1))


def test_java_producer_and_consumer_report_their_pauses(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    client = unique("perf")
    words = ("--entity-type", "clients", "--entity-name", client)
    tools.ok("configs", "--alter", *words, "--add-config", "producer_byte_rate=50000,consumer_byte_rate=50000")
    load = ("--num-records", 560, "--record-size", 1000, "--throughput", -1, "--print-metrics")
    written = tools.ok("producer-perf-test", "--topic", name, *load, "--command-property", f"client.id={client}")
    assert "560 records sent" in written
    # 500 kB are the burst of an idle client; the rest waits for its share.
    assert metric(written, "producer-metrics:produce-throttle-time-max") > 0
    elapsed_s = 560 / float(re.findall(r"([0-9.]+) records/sec", written)[-1])
    assert 0.5 < elapsed_s < 10
    read = tools.ok(
        "consumer-perf-test", "--topic", name, "--num-records", 560, "--print-metrics",
        "--command-property", f"client.id={client}",
    )  # fmt: skip
    assert metric(read, "consumer-fetch-manager-metrics:fetch-throttle-time-max") > 0
    tools.ok("configs", "--alter", *words, "--delete-config", "producer_byte_rate,consumer_byte_rate")
