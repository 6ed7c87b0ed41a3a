"""Failover, retries and deadline of requests, without a server."""

import inspect
import json

import pytest

from ottla.registry_client.asynchronous import AsyncRegistryClient
from ottla.registry_client.blocking import RegistryClient
from ottla.registry_client.errors import ReferencesTooDeep, RegistryUnavailable, SchemaRegistryError
from ottla.registry_client.operations import Operations
from ottla.registry_client.requests import Failed, Received, Request, Requests, Send, Wait
from ottla.registry_client.settings import read_settings
from ottla.schemas.model import Reference, Schema, SchemaType

OK = Received(200, b'{"id": 7}')


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def run(steps, outcomes, clock=None):
    """Return the result and the executed steps."""
    done, outcome, outcomes = [], None, list(outcomes)
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as end:
            return end.value, done
        done.append(step)
        outcome = None
        if isinstance(step, Send):
            outcome = outcomes.pop(0)
        elif clock is not None:
            clock.now += step.seconds


def requests(clock=None, **given):
    return Requests(read_settings({"url": "http://a:1,http://b:2", **given}), clock or Clock(), lambda: 1.0)


def urls(steps):
    return [step.url.rpartition("/")[0] for step in steps if isinstance(step, Send)]


def test_second_address_answers_when_the_first_fails_and_stays_the_first_choice():
    core = requests()
    result, steps = run(core.steps(Request("GET", "/subjects")), [Failed("refused"), OK])
    assert result == {"id": 7}
    assert urls(steps) == ["http://a:1", "http://b:2"]
    assert urls(run(core.steps(Request("GET", "/subjects")), [OK])[1]) == ["http://b:2"]


def test_status_503_is_retried_at_the_next_address():
    _, steps = run(requests().steps(Request("GET", "/subjects")), [Received(503, b""), OK])
    assert urls(steps) == ["http://a:1", "http://b:2"]


def test_an_error_of_the_registry_is_not_retried():
    refusal = Received(409, json.dumps({"error_code": 409, "message": "incompatible"}).encode())
    with pytest.raises(SchemaRegistryError, match="incompatible") as caught:
        run(requests().steps(Request("POST", "/subjects/s/versions")), [refusal])
    assert (caught.value.http_status_code, caught.value.error_code, caught.value.retriable) == (409, 409, False)


def test_an_error_without_json_keeps_the_status():
    with pytest.raises(SchemaRegistryError, match="<html>") as caught:
        run(requests().steps(Request("GET", "/")), [Received(404, b"<html>")])
    assert caught.value.error_code == 404


def fail_all(steps, done, clock, seconds_each):
    """Execute steps; each request fails after `seconds_each`."""
    outcome = None
    for _ in range(10_000):
        step = steps.send(outcome)
        done.append(step)
        clock.now += seconds_each if isinstance(step, Send) else step.seconds
        outcome = Failed("refused") if isinstance(step, Send) else None


def test_waits_double_up_to_the_limit_and_retries_are_bounded():
    clock, done = Clock(), []
    core = requests(clock, **{"max.retries": 3, "retries.wait.ms": 100, "retries.max.wait.ms": 250})
    with pytest.raises(RegistryUnavailable, match=r"http://a:1: refused; http://b:2: refused"):
        fail_all(core.steps(Request("GET", "/subjects")), done, clock, 0)
    assert [step.seconds for step in done if isinstance(step, Wait)] == [0.1, 0.2, 0.25]
    assert len(urls(done)) == 8


def test_deadline_ends_retries_and_bounds_each_timeout():
    clock, done = Clock(), []
    core = requests(clock, **{"default.api.timeout.ms": 1_000, "max.retries": 1_000})
    with pytest.raises(RegistryUnavailable, match=r"default\.api\.timeout\.ms"):
        fail_all(core.steps(Request("GET", "/subjects")), done, clock, 0.3)
    timeouts = [step.timeout_s for step in done if isinstance(step, Send)]
    assert timeouts[0] == 1.0
    assert timeouts[-1] < 0.2


def test_exhausted_retries_report_the_status_of_a_registry_that_answered():
    core = requests(**{"max.retries": 0})
    with pytest.raises(SchemaRegistryError) as caught:
        run(core.steps(Request("GET", "/subjects")), [Received(503, b""), Failed("refused")])
    assert caught.value.retriable


def test_subjects_are_quoted_in_paths():
    core = Operations(read_settings({"url": "http://a:1"}), Clock(), lambda: 1.0)
    _, steps = run(core.get_versions(":.ctx:a/b c", deleted=True), [Received(200, b"[1]")])
    assert steps[0].url == "http://a:1/subjects/%3A.ctx%3Aa%2Fb%20c/versions?deleted=true"


SCHEMA = Schema(SchemaType.JSON, '{"type": "object"}')


def operations(clock=None):
    return Operations(read_settings({"url": "http://a:1"}), clock or Clock(), lambda: 1.0)


def test_ids_are_cached_for_each_context():
    core = operations()
    body = Received(200, json.dumps({"schema": "{}", "schemaType": "JSON"}).encode())
    run(core.get_schema(1, subject="a"), [body])
    assert run(core.get_schema(1, subject="b"), [])[1] == []
    assert len(run(core.get_schema(1, subject=":.ctx:b"), [body])[1]) == 1


def test_registration_is_cached_by_subject_and_schema():
    core = operations()
    assert run(core.register_schema("s", SCHEMA), [OK])[0] == 7
    assert run(core.register_schema("s", SCHEMA), [])[0] == 7
    assert len(run(core.register_schema("t", SCHEMA), [OK])[1]) == 1
    assert len(run(core.register_schema("s", SCHEMA, normalize=True), [OK])[1]) == 1


def test_latest_version_is_read_again_after_its_time():
    clock = Clock()
    core = operations(clock)
    body = Received(200, json.dumps({"id": 1, "version": 1, "subject": "s", "schema": "{}"}).encode())
    run(core.get_latest_version("s"), [body])
    clock.now += 59
    assert run(core.get_latest_version("s"), [])[1] == []
    clock.now += 2
    assert len(run(core.get_latest_version("s"), [body])[1]) == 1


def test_deletion_clears_the_caches():
    core = operations()
    run(core.register_schema("s", SCHEMA), [OK])
    run(core.delete_subject("s"), [Received(200, b"[1]")])
    assert len(run(core.register_schema("s", SCHEMA), [OK])[1]) == 1


def test_references_that_lead_back_are_an_error_and_not_an_endless_loop():
    core = operations()
    body = {
        "id": 1,
        "version": 1,
        "subject": "s",
        "schema": "{}",
        "schemaType": "JSON",
        "references": [{"name": "s", "subject": "s", "version": 1}],
    }
    schema = Schema(SchemaType.JSON, "{}", (Reference("s", "s", 1),))
    with pytest.raises(ReferencesTooDeep):
        run(core.get_referenced_schemas(schema), [Received(200, json.dumps(body).encode())])


@pytest.mark.parametrize("client", [RegistryClient, AsyncRegistryClient])
def test_help_of_a_method_shows_its_result(client):
    assert inspect.signature(client.get_versions).return_annotation == "list[int]"
    assert list(inspect.signature(client.get_mode).parameters) == ["self", "subject", "default_to_global"]
