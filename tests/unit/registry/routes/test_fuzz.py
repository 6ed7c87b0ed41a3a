"""Arbitrary paths and bodies never cause an unhandled exception or a status of 500."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import DRAWN_EXAMPLES
from tests.unit.registry.support import Api, record

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
names = st.sampled_from(
    [
        "schema",
        "schemaType",
        "references",
        "metadata",
        "ruleSet",
        "id",
        "version",
        "compatibility",
        "compatibilityLevel",
        "mode",
        "alias",
        "normalize",
        "compatibilityGroup",
        "compatibilityPolicy",
        "defaultMetadata",
        "overrideRuleSet",
        "validateFields",
        "name",
        "subject",
        "tags",
        "properties",
        "domainRules",
        "migrationRules",
        "kind",
        "type",
    ]
)
plausible = st.sampled_from(
    [
        "AVRO",
        "JSON",
        "PROTOBUF",
        '"int"',
        '{"type":"record"}',
        "FULL",
        "IMPORT",
        "READONLY",
        -1,
        0,
        1,
        2**31,
        "s",
        {},
        [],
    ]
)
bodies = st.dictionaries(
    names, plausible | values | st.lists(st.dictionaries(names, plausible), max_size=2), max_size=5
)
segments = st.sampled_from(
    [
        "schemas",
        "ids",
        "guids",
        "types",
        "subjects",
        "versions",
        "config",
        "mode",
        "contexts",
        "compatibility",
        "metadata",
        "schema",
        "referencedby",
        "s",
        "t",
        "latest",
        ":.c:",
        ":.c:s",
        ":*:",
        ".",
        ".c",
        "1",
        "2",
        "-1",
        "0",
        "99999999999999999999",
        "v1",
        "id",
        "__GLOBAL",
        ":.__GLOBAL:",
        "%00",
        "%FF",
        "%2F",
        "%25",
        ":",
        "::",
        ":.",
        "~",
    ]
) | st.text(alphabet="abc:.*%/é\x00", min_size=1, max_size=4)
queries = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "subject",
                "subjectPrefix",
                "deleted",
                "deletedOnly",
                "offset",
                "limit",
                "permanent",
                "verbose",
                "normalize",
                "format",
                "key",
                "value",
                "force",
                "latestOnly",
                "aliases",
                "ruleType",
                "defaultToGlobal",
                "recursive",
                "fetchMaxId",
                "contextPrefix",
                "referenceFormat",
            ]
        ),
        st.sampled_from(
            [
                "true",
                "false",
                "1",
                "-1",
                "99999999999999999999",
                "x",
                ":.c:",
                ":*:",
                ":.",
                "%FF",
                "s",
                "resolved",
                "serialized",
                "qualified",
            ]
        ),
    ),
    max_size=3,
)
methods = st.sampled_from(("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"))
relaxed = settings(max_examples=2 * DRAWN_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def filled() -> Api:
    """An API with some contents."""
    api = Api()
    api.register("s", record("R", "a"))
    api.register(":.c:s", "int")
    api.put("/config/t", {"alias": "s"})
    return api


@relaxed
@given(st.lists(st.tuples(methods, st.lists(segments, max_size=5), queries, bodies | values), min_size=1, max_size=5))
def test_arbitrary_requests_have_a_response(requests: list[tuple[str, list[str], Any, Any]]) -> None:
    api = filled()
    for method, parts, query, body in requests:
        text = "&".join(f"{name}={value}" for name, value in query)
        path = "/" + "/".join(parts).replace("?", "") + (f"?{text}" if text else "")
        response = api.request(method, path, raw=json.dumps(body).encode())
        assert response.status < 500, (method, path, body, response.body)
        assert method == "HEAD" or response.status != 200 or response.body
    assert not api.registry.state.skipped


@relaxed
@given(st.sampled_from(["/subjects/s/versions", "/subjects/s", "/compatibility/subjects/s/versions"]), bodies)
def test_arbitrary_schemas_have_a_response(path: str, body: Any) -> None:
    assert filled().post(path, body).status < 500


@relaxed
@given(st.sampled_from(["/config", "/config/s", "/mode", "/mode/s", "/mode/:.__GLOBAL:"]), bodies)
def test_arbitrary_settings_have_a_response_and_are_read_again(path: str, body: Any) -> None:
    api = filled()
    assert api.put(path, body).status < 500
    assert not api.registry.state.skipped
    assert api.get(path).status in (200, 404)


@relaxed
@given(st.binary(max_size=50))
def test_arbitrary_bytes_have_a_response(data: bytes) -> None:
    assert filled().post("/subjects/s/versions", raw=data).status < 500
