"""Listings, contexts in paths, aliases, settings in scope, content types."""

from __future__ import annotations

import pytest

from tests.unit.registry.support import Api, record

INT = {"schema": '"int"'}
V1 = "application/vnd.schemaregistry.v1+json"


@pytest.fixture
def api() -> Api:
    """Subjects in three contexts."""
    api = Api()
    for subject in ("b", "a", ":.c:a", ":.c:x", ":.d:a"):
        api.register(subject, "int")
    api.register("old", "string")
    api.delete("/subjects/old")
    return api


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/subjects", [":.c:a", ":.c:x", ":.d:a", "a", "b"]),
        ("/subjects?deleted=true", [":.c:a", ":.c:x", ":.d:a", "a", "b", "old"]),
        ("/subjects?deletedOnly=true", ["old"]),
        ("/subjects?deletedOnly=true&deleted=true", ["old"]),
        ("/subjects?subjectPrefix=:*:a", [":.c:a", ":.d:a", "a"]),
        ("/subjects?subjectPrefix=a", ["a"]),
        ("/subjects?subjectPrefix=", ["a", "b"]),
        ("/subjects?subjectPrefix=:.c:", [":.c:a", ":.c:x"]),
        ("/subjects?subjectPrefix=:.c:x", [":.c:x"]),
        ("/subjects?offset=1&limit=2", [":.c:x", ":.d:a"]),
        ("/subjects?offset=9", []),
        ("/subjects?limit=0", [":.c:a", ":.c:x", ":.d:a", "a", "b"]),
        ("/contexts/.c/subjects", [":.c:a", ":.c:x"]),
        ("/contexts/:.c:/subjects?subjectPrefix=x", [":.c:x"]),
        ("/contexts/c/subjects", [":.c:a", ":.c:x"]),
        ("/contexts/./subjects", ["a", "b"]),
        ("/contexts", [".", ".c", ".d"]),
        ("/contexts?contextPrefix=.c", [".c"]),
        ("/contexts?offset=1&limit=1", [".c"]),
    ],
)
def test_listing(api: Api, path: str, names: list[str]) -> None:
    assert api.get(path).json == names


def test_names_of_new_and_deleted_subjects_are_in_the_next_listing(api: Api) -> None:
    api.get("/subjects")
    api.register("aa", "int")
    api.delete("/subjects/old?permanent=true")
    assert api.get("/subjects?subjectPrefix=a&deleted=true").json == ["a", "aa"]
    assert "old" not in api.get("/subjects?deleted=true").json


def test_schemas_of_all_subjects() -> None:
    api = Api()
    api.register("a", record("R", "x"))
    api.register("a", record("R", "x", optional=["y"]))
    api.register("b", "int", ruleSet={"domainRules": [{"name": "r", "type": "CEL", "mode": "READ"}]})
    api.put("/config/other", {"alias": "a"})
    found = [(item["subject"], item["version"]) for item in api.get("/schemas").json]
    assert found == [("a", 1), ("a", 2), ("b", 1)]
    assert [item["version"] for item in api.get("/schemas?latestOnly=true&subjectPrefix=a").json] == [2]
    assert [item["subject"] for item in api.get("/schemas?ruleType=CEL").json] == ["b"]
    assert [item.get("aliases") for item in api.get("/schemas?aliases=true&latestOnly=true").json] == [["other"], None]
    assert len(api.get("/schemas?offset=1&limit=1").json) == 1
    assert api.get("/contexts/.c/schemas").json == []


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/contexts/.c/subjects/a/versions/1", "/subjects/:.c:a/versions/1"),
        ("/contexts/.c/schemas/ids/1", "/schemas/ids/1?subject=:.c:"),
        ("/contexts/.c/schemas/types", "/schemas/types"),
        ("/contexts/.c/config?defaultToGlobal=true", "/config/:.c:?defaultToGlobal=true"),
        ("/contexts/.c/mode?defaultToGlobal=true", "/mode/:.c:?defaultToGlobal=true"),
        ("/contexts/.c/subjects/:.d:a/versions/1", "/subjects/:.d:a/versions/1"),
        ("/contexts/:.c:/subjects/a/versions/latest/schema/", "/subjects/:.c:a/versions/1/schema"),
        ("/contexts/./subjects/a/versions/1", "/subjects/a/versions/1"),
        ("/subjects/:.:a/versions/1", "/subjects/a/versions/1"),
        ("/subjects/%61/versions/1", "/subjects/a/versions/1"),
    ],
)
def test_paths_that_mean_the_same(api: Api, path: str, plain: str) -> None:
    assert api.get(path).status == 200
    assert api.get(path).body == api.get(plain).body


def test_a_slash_in_a_name_is_escaped() -> None:
    api = Api()
    assert api.post("/subjects/a%2Fb/versions", INT).status == 200
    assert api.get("/subjects").json == ["a/b"]


def test_a_version_of_an_unqualified_subject_is_found_in_another_context(api: Api) -> None:
    assert api.get("/subjects/x/versions/1").json["subject"] == ":.c:x"
    assert api.post("/subjects/x", INT).json["subject"] == ":.c:x"


def test_an_alias_stands_for_its_subject(api: Api) -> None:
    api.put("/config/nick", {"alias": "b"})
    assert api.get("/subjects/nick/versions/1").json["subject"] == "b"
    assert api.post("/subjects/nick/versions", {"schema": '"long"'}).json["version"] == 2
    assert api.get("/subjects/b/versions").json == [1, 2]


def test_settings_of_a_context_apply_to_its_subjects(api: Api) -> None:
    api.put("/config", {"compatibility": "FULL", "normalize": True})
    api.put("/config/:.c:", {"compatibility": "NONE"})
    api.put("/config/b", {"compatibilityGroup": "g"})
    level = "compatibilityLevel"
    assert api.get("/config/:.c:a?defaultToGlobal=true").json == {level: "NONE"}
    assert api.get("/config/a?defaultToGlobal=true").json == {"normalize": True, level: "FULL"}
    assert api.get("/config/b?defaultToGlobal=true").json == {
        "normalize": True,
        level: "BACKWARD",
        "compatibilityGroup": "g",
    }
    assert api.get("/config/b").json == {level: "BACKWARD", "compatibilityGroup": "g"}


def test_a_setting_is_changed_or_removed_alone(api: Api) -> None:
    api.put("/config/a", {"compatibility": "FULL", "normalize": True, "alias": "x"})
    assert api.put("/config/a", {"normalize": None}).json == {"alias": "x", "compatibility": "FULL"}
    assert api.delete("/config/a").json == {"alias": "x", "compatibilityLevel": "FULL"}


def test_modes_of_contexts_and_all(api: Api) -> None:
    api.put("/mode/:.__GLOBAL:", {"mode": "READONLY"})
    assert api.get("/mode/a?defaultToGlobal=true").json == {"mode": "READONLY"}
    api.put("/mode", {"mode": "READWRITE"})
    assert api.get("/mode/a?defaultToGlobal=true").json == {"mode": "READWRITE"}
    assert api.get("/mode/:.c:a?defaultToGlobal=true").json == {"mode": "READONLY"}
    api.put("/mode/:.c:a", {"mode": "READWRITE"})
    api.put("/mode/:.c:", {"mode": "READWRITE"})
    assert api.delete("/mode/:.c:?recursive=true").json == {"mode": "READWRITE"}
    assert api.get("/mode/:.c:a").error == (404, 40409)


@pytest.mark.parametrize(
    ("accept", "status", "content_type"),
    [
        (None, 200, V1),
        ("*/*", 200, V1),
        ("application/*", 200, V1),
        ("application/json", 200, "application/json"),
        (f"{V1}, application/vnd.schemaregistry+json, application/json", 200, V1),
        ("application/vnd.schemaregistry+json", 200, "application/vnd.schemaregistry+json"),
        ("application/json, */*;q=0.1", 200, "application/json"),
        (f"{V1};q=0.5, application/json;q=0.9", 200, "application/json"),
        ("text/html", 406, V1),
        ("application/json;q=0", 406, V1),
        ("application/json;q=x", 406, V1),
        ("text/html, application/xhtml+xml, */*;q=0.8", 200, V1),
    ],
)
def test_content_types_of_responses(accept: str | None, status: int, content_type: str) -> None:
    response = Api().get("/subjects", headers={} if accept is None else {"Accept": accept})
    assert (response.status, response.headers["content-type"]) == (status, content_type)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        (V1, 200),
        ("application/vnd.schemaregistry+json", 200),
        ("application/json; charset=utf-8", 200),
        ("application/octet-stream", 200),
        ("text/plain", 415),
        ("application/xml", 415),
    ],
)
def test_content_types_of_requests(content_type: str, status: int) -> None:
    response = Api().post("/subjects/s/versions", INT, headers={"Content-Type": content_type})
    assert response.status == status


def test_other_methods() -> None:
    api = Api()
    assert api.request("HEAD", "/subjects").body == b""
    assert api.request("HEAD", "/subjects").headers["content-length"] == "2"
    assert api.request("OPTIONS", "/config").headers["allow"] == "DELETE,GET,HEAD,OPTIONS,PUT"
    assert api.request("PATCH", "/config").headers["allow"] == "DELETE,GET,HEAD,OPTIONS,PUT"


def test_the_text_of_a_schema_alone() -> None:
    api = Api()
    api.register("s", record("R", "a"))
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
    assert api.get("/schemas/ids/1/schema").body.decode() == text
    assert api.get("/subjects/s/versions/1/schema").body.decode() == text


def test_the_highest_id_is_returned_on_request(api: Api) -> None:
    assert api.get("/schemas/ids/1?fetchMaxId=true").json["maxId"] == 2
    assert "maxId" not in api.get("/schemas/ids/1").json
