"""Attacks on the console: forged requests, foreign host names, scripts in names and records, paths, large requests."""

from __future__ import annotations

import socket
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from ottla.clients import Admin, Producer
from ottla.console.login import safe_target
from ottla.console.protection import POLICY
from tests.deadlines import in_threads, results

from .conftest import RunningConsole, csrf, post

SCRIPT = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"


def test_every_answer_has_the_headers_of_protection(console: RunningConsole) -> None:
    for path in ("/", "/nope", "/static/console.js", "/topics?page=x", "/topics?format=json", "/static/nope"):
        headers = console.http.get(path).headers
        assert headers["content-security-policy"] == POLICY, path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert "unsafe" not in POLICY


def test_pages_have_no_inline_scripts_styles_or_foreign_addresses(ottla: Any, console: RunningConsole) -> None:
    ottla.topic("orders")
    for path in ("/", "/topics", "/topics/orders", "/topics/orders/messages", "/topics/new", "/nodes"):
        text = console.http.get(path).text
        assert "<script>" not in text
        for word in (" style=", " onclick=", " onload=", "javascript:", "http://", "https://"):
            assert word not in text, (path, word)


def test_post_without_the_token_of_this_browser_is_refused(console: RunningConsole) -> None:
    other = console.browser()
    for token in ("", "0" * 64, csrf(other), "é"):
        answer = console.http.post("/topics/new", data={"csrf": token, "name": "forged"})
        assert answer.status_code == 403
    bare = console.browser()
    assert bare.post("/topics/new", data={"csrf": csrf(other), "name": "forged"}).status_code == 403
    assert console.json("/topics")["topics"] == []
    other.close()
    bare.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_post_from_another_site_is_refused(console: RunningConsole, headers: dict[str, str]) -> None:
    data = {"csrf": csrf(console.http), "name": "forged"}
    assert console.http.post("/topics/new", data=data, headers=headers).status_code == 403
    same = {"origin": console.url, "sec-fetch-site": "same-origin"}
    assert console.http.post("/topics/new", data=data, headers=same).status_code == 303


def test_pages_of_other_sites_cannot_contain_pages(console: RunningConsole) -> None:
    for dest, mode in (("image", "no-cors"), ("iframe", "navigate"), ("script", "no-cors"), ("empty", "cors")):
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode, "sec-fetch-dest": dest}
        assert console.http.get("/why?seconds=0", headers=headers).status_code == 403, dest
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    own = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    for headers in (link, own, {}):
        assert console.http.get("/topics", headers=headers).status_code == 200


def test_slow_pages_leave_threads_for_others(console: RunningConsole) -> None:
    slow = in_threads([lambda: console.http.get("/why?seconds=2")] * 20, "slow page")
    assert console.http.get("/topics").status_code == 200
    found = Counter(each.status_code for each in results(slow, "the slow pages"))
    assert set(found) == {200, 503}
    assert found[200] >= 8


def test_foreign_host_name_is_refused(console: RunningConsole) -> None:
    port = urlsplit(console.url).port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "localhost.evil", "a@evil", "["):
        assert console.http.get("/topics", headers={"host": host}).status_code == 421, host
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert console.http.get("/topics", headers={"host": host}).status_code == 200, host


def test_other_methods_and_bodies_are_refused(console: RunningConsole) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert console.http.request(method, "/topics").status_code == 405
    token = csrf(console.http)
    assert console.http.post("/topics/new", json={"csrf": token, "name": "t"}).status_code == 415
    assert console.http.post("/topics/new", files={"name": b"t"}).status_code == 415
    fields = "&".join(f"f{number}=1" for number in range(500))
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert console.http.post("/topics/new", content=fields, headers=form).status_code == 400
    assert console.http.post("/topics/new", content=b"name=%ff", headers=form).status_code == 400
    assert console.http.post("/topics/new", content=b"a=" + b"x" * 5_000_000, headers=form).status_code == 413


def test_live_records_of_a_wrong_partition_are_refused(ottla: Any, console: RunningConsole) -> None:
    ottla.topic("orders")
    for partition in ("9" * 5000, "x", "-1"):
        assert console.http.get(f"/topics/orders/tail?partition={partition}").status_code == 400


def test_long_addresses_are_refused(console: RunningConsole) -> None:
    assert console.http.get(f"/topics?filter={'x' * 9000}").status_code == 414


def test_scripts_in_records_are_text(ottla: Any, console: RunningConsole) -> None:
    with Producer(bootstrap_servers=ottla.bootstrap) as producer:
        sent = SCRIPT.encode()
        producer.send("orders", sent, sent, headers=[(SCRIPT, sent), ('"><img src=x onerror=alert(1)>', None)])
    for path in ("/topics/orders/messages", "/topics/orders/messages/0/0"):
        text = console.http.get(path).text
        assert text.count(ESCAPED) >= 4
        assert SCRIPT not in text
        assert "<img" not in text


def test_scripts_in_names_and_queries_are_text(ottla: Any, console: RunningConsole) -> None:
    name = f"{SCRIPT}\"'/../.."
    with Admin(ottla.bootstrap) as admin:
        admin.create_topic("orders")
        with Producer(bootstrap_servers=ottla.bootstrap) as producer:
            producer.send("orders", b"x").result(20)
        admin.alter_group_offsets(name, {("orders", 0): 0})
    listing = console.http.get("/groups").text
    assert ESCAPED in listing
    assert SCRIPT not in listing
    row = console.json("/groups")["groups"][0]
    assert row["group"] == name
    for path, params in (
        ("/group", {"id": name}),
        ("/group/reset", {"id": name, "target": SCRIPT}),
        ("/group/delete", {"id": name}),
        ("/topics", {"filter": SCRIPT, "done": SCRIPT}),
        ("/topics/orders/messages", {"text": SCRIPT, "key": SCRIPT}),
        (f"/topics/{SCRIPT}", {}),
        (f"/{SCRIPT}", {}),
    ):
        assert SCRIPT not in console.http.get(path, params=params).text, path
    assert console.http.get("/group", params={"id": name}).status_code == 200
    assert post(console.http, f"/group/delete?{httpx.QueryParams(id=name)}", confirm=name).status_code == 303


def test_link_cannot_choose_the_text_of_a_notice(console: RunningConsole) -> None:
    assert "Call+this+number" not in console.http.get("/topics?done=Call+this+number").text
    assert "Call this number" not in console.http.get("/topics?done=Call+this+number").text


@pytest.mark.parametrize(
    "target",
    [b"/static/../settings.py", b"/static/%2e%2e/settings.py", b"/static/..%2f..%2fsettings.py", b"/static//etc/passwd",
     b"/topics/..%2f..%2fetc", b"/topics/%00", b"/topics/..", b"//evil.example/topics", b"/topics/%E2%80%A8"],
)  # fmt: skip
def test_tricks_with_paths_reach_no_file_and_no_other_site(console: RunningConsole, target: bytes) -> None:
    address = urlsplit(console.url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 0), timeout=20) as sock:
        sock.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
    status = int(answer.split()[1])
    assert status in (400, 404, 405), answer[:200]
    assert b"root:" not in answer
    assert b"dataclass" not in answer


def test_next_page_after_a_sign_in_is_in_this_console() -> None:
    assert safe_target("/topics?page=2") == "/topics?page=2"
    for target in ("//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb", "/\t/evil.example"):
        assert safe_target(target) == ""
