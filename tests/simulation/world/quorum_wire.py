"""Kafka's bytes between simulated replicas: each message is encoded in a version, and decoded on the other side."""

from __future__ import annotations

from random import Random

from ottla.raft import messages as m
from ottla.raft import wire_requests, wire_responses

LISTENER = "CONTROLLER"


def choose_version(request: m.Request, random: Random, old: float) -> int:
    """The latest version of a request, or, with the probability `old`, any version that can express it."""
    message = wire_requests.encode(request)
    if random.random() >= old:
        return message.MAX_VERSION
    lowest = max(wire_requests.lowest_version(request), message.MIN_VERSION)
    return random.randint(lowest, message.MAX_VERSION)


def pass_request(request: m.Request, version: int) -> m.Request:
    """The request as the other node reads it."""
    if isinstance(request, m.ApiVersionsRequest):
        return request
    message = wire_requests.encode(request)
    return wire_requests.decode(type(message).decode(message.encode(version), version))


def pass_response(request: m.Request, response: m.Response, version: int) -> m.Response:
    """The response as the requester reads it."""
    if isinstance(request, m.ApiVersionsRequest):
        return response
    has_records = isinstance(response, m.FetchResponse) and response.has_records
    length = response.length if isinstance(response, m.FetchSnapshotResponse) else 0
    message = wire_responses.encode(request, response, LISTENER, bytes(length or has_records))
    return wire_responses.decode(type(message).decode(message.encode(version), version), LISTENER)
