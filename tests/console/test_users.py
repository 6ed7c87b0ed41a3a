"""Sign-in with the users of a secured broker: rights, sessions, cookies, masks, and credentials outside of logs."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from ottla.clients import Admin, Producer
from ottla.clients.admin import Acl, AclOperation, AclResource
from ottla.common.failure import Failure
from ottla.console.masking import MASKED, Masks, read_masks

from .conftest import RunningConsole, StartConsole, csrf, post

RULES = """
[[mask]]
topics = ["cust*"]
except = ["test"]
fields = ["value.email", "value.cards[].number", "key"]
headers = ["auth*"]
"""


@pytest.fixture
def secured(ottla_broker: Any) -> Any:
    """A broker where `test` is a super user, and ann may read and describe `customers`."""
    broker = ottla_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:test",
            "connection.failed.authentication.delay.ms": "0",
        },
        security="SASL_PLAINTEXT",
        users=["test", "ann"],
    )
    settings = broker.settings("ottla", user="test")
    with Admin(settings) as admin:
        admin.create_topics(["customers", "secrets"])
        topic = AclResource.topic("customers")
        admin.create_acls([Acl(topic, "User:ann", each) for each in (AclOperation.READ, AclOperation.DESCRIBE)])
    with Producer(settings) as producer:
        value = {"name": "Eve", "email": "eve@example.org", "cards": [{"number": "4111", "kind": "v"}]}
        producer.send("customers", json.dumps(value).encode(), b"eve-key", headers=[("Authorization", b"s3cret")])
        producer.send("customers", b"not JSON: eve@example.org", None).result(20)
    return broker


@pytest.fixture
def guarded(secured: Any, start_console: StartConsole, tmp_path: Path) -> RunningConsole:
    given = secured.settings("ottla", user="test")
    path = tmp_path / "masks.toml"
    path.write_text(RULES)
    # Credentials in the settings of the console must not serve its users.
    return start_console(given, masks=read_masks(str(path)))


def sign_in(secured: Any, console: RunningConsole, user: str, word: str | None = None) -> httpx.Client:
    http = console.browser()
    password = secured.settings("ottla", user=user)["sasl.password"] if word is None else word
    answer = post(http, "/login", csrf(http, "/login"), user=user, password=password, next="/topics")
    assert (answer.status_code, answer.headers.get("location")) == (303, "/topics"), answer.text
    return http


def test_pages_need_a_sign_in(guarded: RunningConsole) -> None:
    answer = guarded.http.get("/topics?filter=a")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Ftopics%3Ffilter%3Da")
    assert guarded.http.get("/topics?format=json").status_code == 401
    assert guarded.http.get("/topics/customers/tail").status_code == 401
    for path in ("/topics/customers/messages/0/0?raw=value", "/topics/customers/messages", "/access"):
        assert guarded.http.get(path).status_code == 303


def test_acls_of_the_user_decide(secured: Any, guarded: RunningConsole) -> None:
    with closing(sign_in(secured, guarded, "ann")) as ann, closing(sign_in(secured, guarded, "test")) as admin:
        names = [row["topic"] for row in ann.get("/topics?format=json").json()["topics"]]
        assert names == ["customers"]
        assert ann.get("/topics/secrets/messages").status_code in (403, 404)
        assert ann.get("/access").status_code == 403
        assert post(ann, "/topics/customers/delete", confirm="customers").status_code == 403
        assert len(admin.get("/topics?format=json").json()["topics"]) == 2
        assert admin.get("/access").status_code == 200


def test_wrong_password_is_refused_and_not_logged(
    secured: Any, guarded: RunningConsole, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    http = guarded.http
    answer = post(http, "/login", csrf(http, "/login"), user="ann", password="wr0ng-w0rd")
    assert answer.status_code == 401
    assert "wr0ng-w0rd" not in answer.text
    assert http.get("/topics").status_code == 303
    with closing(sign_in(secured, guarded, "ann")) as ann:
        ann.get("/topics")
        token = ann.cookies["ottla_console"]
    own = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    password = secured.settings("ottla", user="ann")["sasl.password"]
    assert not [line for line in own if "wr0ng-w0rd" in line or password in line or token in line]


def test_cookie_is_strict_and_changes_with_the_sign_in(secured: Any, guarded: RunningConsole) -> None:
    http = guarded.browser()
    before = csrf(http, "/login")
    planted = http.cookies["ottla_console"]
    word = secured.settings("ottla", user="ann")["sasl.password"]
    answer = post(http, "/login", before, user="ann", password=word)
    header = answer.headers["set-cookie"].lower()
    assert "httponly" in header
    assert "samesite=strict" in header
    assert http.cookies["ottla_console"] != planted
    answer = http.post("/topics/customers/produce", data={"csrf": before, "value": "x"})
    assert answer.status_code == 403  # the token of the form before the sign-in
    http.close()


def test_each_sign_in_has_a_cookie_of_its_own(secured: Any, guarded: RunningConsole) -> None:
    with closing(sign_in(secured, guarded, "ann")) as ann, closing(sign_in(secured, guarded, "test")) as admin:
        assert ann.cookies["ottla_console"] != admin.cookies["ottla_console"]
        assert admin.get("/access").status_code == 200
        assert ann.get("/access").status_code == 403


def test_sign_out_ends_the_session(secured: Any, guarded: RunningConsole) -> None:
    with closing(sign_in(secured, guarded, "ann")) as ann:
        token = ann.cookies["ottla_console"]
        assert post(ann, "/logout", "").status_code == 403
        assert post(ann, "/logout", csrf(ann, "/")).status_code == 303
        ann.cookies.set("ottla_console", token)
        assert ann.get("/topics").status_code == 303


def test_idle_session_expires(secured: Any, start_console: StartConsole) -> None:
    console = start_console(secured.settings("ottla", user="test"), session_idle_s=0.0)
    with closing(sign_in(secured, console, "ann")) as ann:
        assert ann.get("/topics").status_code == 303


def test_fields_are_masked_by_user(secured: Any, guarded: RunningConsole) -> None:
    with closing(sign_in(secured, guarded, "ann")) as ann, closing(sign_in(secured, guarded, "test")) as admin:
        for path in (
            "/topics/customers/messages",
            "/topics/customers/messages/0/0",
            "/topics/customers/messages/0/1",
            "/topics/customers/messages/0/0?raw=value",
            "/topics/customers/messages/0/0?raw=key",
            "/topics/customers/messages/0/1?raw=value",
        ):
            for suffix in ("", "&format=json" if "?" in path else "?format=json"):
                text = ann.get(path + suffix).text
                assert not [word for word in ("eve@", "4111", "eve-key", "s3cret") if word in text], path
        record = ann.get("/topics/customers/messages/0/0?format=json").json()
        assert json.loads(record["value"]) == {
            "name": "Eve",
            "email": MASKED,
            "cards": [{"number": MASKED, "kind": "v"}],
        }
        assert record["value_base64"] is None
        assert "eve@example.org" in admin.get("/topics/customers/messages/0/0").text


def test_search_does_not_reveal_masked_fields(secured: Any, guarded: RunningConsole) -> None:
    with closing(sign_in(secured, guarded, "ann")) as ann:
        for query in ("text=eve@", "key=eve", "text=4111", "text=s3cret"):
            found = ann.get(f"/topics/customers/messages?{query}&format=json").json()
            assert found["records"] == [], query
        assert len(ann.get("/topics/customers/messages?text=Eve&format=json").json()["records"]) == 1


@pytest.mark.parametrize(
    "text",
    ["", "mask = 1", "[[mask]]\n", "[[mask]]\nfield = ['value.a']", "[[mask]]\nfields = ['email']",
     "[[mask]]\nfields = 'value.a'", "not toml ["],
)  # fmt: skip
def test_misspelt_masks_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "masks.toml"
    path.write_text(text)
    with pytest.raises(Failure):
        read_masks(str(path))


def test_mask_without_rules_is_empty() -> None:
    assert not Masks().of("ann", "orders")
