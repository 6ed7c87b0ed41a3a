"""The races with many clients: pipelined requests over several connections, idle ones, groups."""

from __future__ import annotations

import resource
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.brokers import Broker
from benchmarks.wire import DEADLINE_S, Figures, new_topic, produce_frame, receive
from ottla.protocol.frames import encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest

MEMBERS = 100
DEFAULT_DELAY_MS = 3000
CONSUMERS = 200
CONNECTIONS = 1000
IN_FLIGHT = 512


def pipelined(connections: int) -> Callable[[Broker, float], Figures]:
    """The race with a number of connections."""

    def race(broker: Broker, scale: float) -> Figures:
        topic = new_topic(broker, 1)
        rounds, window = max(int(200 * scale), 40), IN_FLIGHT // connections
        frames = produce_frame(topic, 1) * window
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.create_connection(broker.address)) for _ in range(connections)]
            readers = [stack.enter_context(sock.makefile("rb")) for sock in sockets]
            cpu, start = broker.cpu_seconds(), time.perf_counter()
            for _ in range(rounds):
                for sock in sockets:
                    sock.sendall(frames)
                for reader in readers:
                    for _ in range(window):
                        reader.read(int.from_bytes(reader.read(4), "big"))
            seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
        requests = rounds * window * connections
        return {"requests/s": requests / seconds, "requests per broker-CPU-second": requests / max(used, 0.01)}

    race.__doc__ = f"one-record requests, {IN_FLIGHT} in flight over {connections} connection(s), acks=1"
    return race


def idle_consumers(broker: Broker, scale: float) -> Figures:
    """200 consumers (librdkafka) long-polling one idle topic of 20 partitions, 500 ms each"""
    topic = new_topic(broker, 20)
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap, "group.id": "none", "fetch.wait.max.ms": 500, "log_level": 0
    }  # fmt: skip
    consumers = [Consumer(settings) for _ in range(CONSUMERS)]
    for consumer in consumers:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(20)])
    time.sleep(4)
    used = _percent_of_a_core(broker, max(10 * scale, 5))
    figures = {"% of a core": used, "resident MB": broker.resident_mb()}
    for consumer in consumers:
        consumer.close()
    return figures


def idle_connections(broker: Broker, scale: float) -> Figures:
    """1,000 connections that have asked for ApiVersions and say nothing more"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CONNECTIONS)), hard))
    frame = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "bench"))
    before = broker.resident_mb()
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(broker.address))
            connection.sendall(frame)
            receive(connection)
        time.sleep(1)
        used = _percent_of_a_core(broker, max(10 * scale, 5))
        return {"% of a core": used, "MB more than without them": broker.resident_mb() - before}


def _percent_of_a_core(broker: Broker, seconds: float) -> float:
    cpu = broker.cpu_seconds()
    time.sleep(seconds)
    return (broker.cpu_seconds() - cpu) / seconds * 100


def groups(delay_ms: int) -> Callable[[Broker, float], Figures]:
    """The race with so long an initial delay."""

    def race(broker: Broker, scale: float) -> Figures:  # noqa: ARG001 - the number of members is the point
        settings = {"group.initial.rebalance.delay.ms": delay_ms}
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home, broker.another(Path(home), settings) as fresh:
            _join(fresh)  # the first group ever creates a topic, and a JVM compiles
            runs = [_join(fresh) for _ in range(1 if delay_ms else 3)]
            return {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}

    race.__doc__ = (
        f"{MEMBERS} members join a group of {MEMBERS} partitions, until each has one; librdkafka, classic protocol,"
        f" {'default delay' if delay_ms == DEFAULT_DELAY_MS else f'a delay of {delay_ms} ms'}"
    )
    return race


def _join(broker: Broker) -> Figures:
    topic = new_topic(broker, MEMBERS)
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "log_level": 0}
    cpu, start = broker.cpu_seconds(), time.perf_counter()
    consumers = [Consumer(settings) for _ in range(MEMBERS)]
    for consumer in consumers:
        consumer.subscribe([topic])
    while any(len(consumer.assignment()) != 1 for consumer in consumers):
        for consumer in consumers:
            consumer.poll(0)
        if time.perf_counter() - start > DEADLINE_S:
            raise RuntimeError(f"the group is not balanced by {broker.name}")
        time.sleep(0.002)
    seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
    for consumer in consumers:
        consumer.unsubscribe()
    for consumer in consumers:
        consumer.close()
    return {"seconds": seconds, "broker CPU seconds": used}


def consumer_groups(broker: Broker, scale: float) -> Figures:  # noqa: ARG001 - the number of members is the point
    """100 members join a group of 100 partitions, then one leaves; librdkafka, consumer protocol (KIP-848)"""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home, broker.another(Path(home)) as fresh:
        topic = new_topic(fresh, MEMBERS)
        settings: dict[str, Any] = {
            "bootstrap.servers": fresh.bootstrap,
            "group.id": topic,
            "group.protocol": "consumer",
            "log_level": 0,
        }
        cpu, start = fresh.cpu_seconds(), time.perf_counter()
        consumers = [Consumer(settings) for _ in range(MEMBERS)]
        for consumer in consumers:
            consumer.subscribe([topic])
        _await_assignment(fresh, consumers)
        joined = time.perf_counter()
        consumers.pop().close()
        left = time.perf_counter()
        _await_assignment(fresh, consumers)
        rebalanced, used = time.perf_counter() - left, fresh.cpu_seconds() - cpu
        for consumer in consumers:
            consumer.unsubscribe()
        for consumer in consumers:
            consumer.close()
    return {"seconds to join": joined - start, "seconds after a leave": rebalanced, "broker CPU seconds": used}


def _await_assignment(broker: Broker, consumers: list[Consumer]) -> None:
    """Poll until each partition has an owner and no member is idle."""
    deadline = time.perf_counter() + DEADLINE_S
    while True:
        for consumer in consumers:
            consumer.poll(0)
        shares = [{row.partition for row in consumer.assignment()} for consumer in consumers]
        if all(shares) and sum(map(len, shares)) == len(set().union(*shares)) == MEMBERS:
            return
        if time.perf_counter() > deadline:
            raise RuntimeError(f"the group is not balanced by {broker.name}")
        time.sleep(0.005)
