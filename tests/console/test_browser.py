"""The console in Chromium, as a person uses it: keys, forms, live records, themes, a phone. Pages must log no error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients import Admin, Consumer, Producer, TopicPartition
from ottla.clients.admin import OffsetSpec
from tests.peers.cache import in_ci
from tests.peers.chromium import browser, missing_for_chromium

from .conftest import RunningConsole

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.xdist_group("browser")
WAIT_S = 20.0
SCRIPT = "<img src=x onerror=document.title='attacked'><script>document.title='attacked'</script>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    if reason := missing_for_chromium():
        (pytest.fail if in_ci() else pytest.skip)(reason)
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


class Person:
    """A person at a browser."""

    def __init__(self, chrome: Chrome, url: str) -> None:
        self.chrome = chrome
        self.url = url

    def visit(self, path: str) -> None:
        self.chrome.get(self.url + path)

    @property
    def path(self) -> str:
        return self.chrome.current_url.removeprefix(self.url)

    @property
    def text(self) -> str:
        return self.find("body").text

    def find(self, selector: str) -> Any:
        return self.chrome.find_element("css selector", selector)

    def click(self, text: str) -> None:
        """Click a link or a button with this text."""
        path = f"//*[self::a or self::button][normalize-space()={json.dumps(text)}]"
        self.chrome.find_element("xpath", path).click()

    def press(self, keys: str) -> None:
        """Press keys while nothing has the focus."""
        self.find("body").send_keys(keys)

    def fill(self, name: str, value: str) -> None:
        field = self.find(f"[name={name}]")
        field.clear()
        field.send_keys(value)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not _is_seen(condition):
            assert time.monotonic() < deadline, f"not seen: {what}\n{self.path}\n{self.text}"
            time.sleep(0.05)

    def errors(self) -> list[str]:
        """Errors of scripts and refused content since the last call."""
        return [entry["message"] for entry in self.chrome.get_log("browser") if entry["level"] == "SEVERE"]


def _is_seen(condition: Callable[[], object]) -> bool:
    """Whether a condition is true; not yet, if the page changed between finding an element and reading it."""
    from selenium.common.exceptions import StaleElementReferenceException

    try:
        return bool(condition())
    except StaleElementReferenceException:
        return False


@pytest.fixture
def person(chromium: Chrome, console: RunningConsole) -> Iterator[Person]:
    chromium.set_window_size(1280, 900)
    found = Person(chromium, console.url)
    yield found
    assert found.errors() == []


def write(bootstrap: str, *values: str, topic: str = "orders") -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value.encode(), f"k{number}".encode(), headers=[("note", value.encode())])


def test_topic_is_created_found_and_deleted(person: Person) -> None:
    person.visit("/")
    assert "Healthy" in person.text
    person.press("g")
    person.press("t")
    person.wait(lambda: person.path == "/topics", "the topics after the keys g t")
    person.visit("/topics/new")
    person.fill("name", "orders")
    person.find("main form button[type=submit]").click()
    person.wait(lambda: "Created." in person.text, "the new topic")
    person.visit("/topics")
    person.press("/")
    person.chrome.switch_to.active_element.send_keys("orde\n")
    person.wait(lambda: "filter=orde" in person.path, "the filter after the key /")
    person.press("j")
    person.press("\n")
    person.wait(lambda: person.path.startswith("/topics/orders"), "the topic after the keys j and Enter")
    person.click("Delete")
    person.fill("confirm", "order")
    person.find("main form button[type=submit]").click()
    person.wait(lambda: "does not match" in person.text, "the refusal of a wrong name")
    person.visit("/topics/orders/delete")
    person.fill("confirm", "orders")
    person.find("main form button[type=submit]").click()
    person.wait(lambda: "Deleted." in person.text, "the deletion")
    # The refusal was an answer with status 400, which Chromium logs.
    assert all("400" in error for error in person.errors())


def test_records_are_produced_searched_and_seen_live_as_text(ottla: Any, person: Person) -> None:
    ottla.topic("orders")
    person.visit("/topics/orders/produce")
    person.fill("value", SCRIPT)
    person.find("main form button[type=submit]").click()
    person.wait(lambda: "The record was written." in person.text, "the record")
    person.visit("/topics/orders/messages?text=onerror")
    assert SCRIPT in person.text
    person.click("Live")
    person.wait(lambda: "waiting for new records" in person.text, "the live view")
    write(ottla.bootstrap, "live-1" + SCRIPT)
    person.wait(lambda: "live-1" + SCRIPT in person.text, "the live record")
    assert person.chrome.title != "attacked"
    assert not person.chrome.find_elements("css selector", "main img")
    person.click("Stop")
    person.wait(lambda: "Live records were stopped." in person.text, "the end of the live view")
    person.find("[data-records] tbody a").click()
    person.wait(lambda: "/messages/0/" in person.path, "the whole record")
    assert person.chrome.title != "attacked"


def test_offsets_are_reset_after_a_preview(ottla: Any, person: Person) -> None:
    ottla.topic("orders")
    write(ottla.bootstrap, *"abcd")
    with Consumer(bootstrap_servers=ottla.bootstrap, group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        while not consumer.poll(1.0):
            pass
        consumer.commit()
    person.visit("/groups")
    person.click("billing")
    person.click("Reset offsets")
    person.find("[name=target] option[value=earliest]").click()
    person.click("Preview")
    person.wait(lambda: "Nothing was changed yet." in person.text, "the preview")
    person.click("Change the offsets")
    person.wait(lambda: "The offsets were changed." in person.text, "the change")
    with Admin(ottla.bootstrap) as admin:
        assert {row.offset for row in admin.list_group_offsets("billing").values()} == {0}


def test_records_are_deleted_after_a_preview(ottla: Any, person: Person) -> None:
    ottla.topic("orders")
    write(ottla.bootstrap, *"abcd")
    person.visit("/topics/orders")
    person.click("Delete records")
    person.fill("partition", "0")
    person.fill("before", "3")
    person.click("Preview")
    person.wait(lambda: "Nothing was deleted yet." in person.text, "the preview")
    person.click("Delete 3 offsets")
    person.wait(lambda: "The records were deleted." in person.text, "the deletion")
    with Admin(ottla.bootstrap) as admin:
        where = TopicPartition("orders", 0)
        assert admin.list_offsets({where: OffsetSpec.EARLIEST})[where].offset == 3


def test_theme_and_help(person: Person) -> None:
    person.visit("/topics")
    colour = person.find("body").value_of_css_property("background-color")
    person.find("[data-theme-switch]").click()
    other = person.find("body").value_of_css_property("background-color")
    assert other != colour
    person.visit("/groups")
    assert person.find("body").value_of_css_property("background-color") == other
    person.press("?")
    person.wait(lambda: person.find("#help").is_displayed(), "the help")
    person.click("Close")
    person.wait(lambda: not person.find("#help").is_displayed(), "the end of the help")


PAGES = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/groups",
    "/nodes",
    "/nodes/quorum",
    "/access/users",
)


def test_pages_fit_a_phone(ottla: Any, person: Person) -> None:
    ottla.topic("orders")
    write(ottla.bootstrap, "x" * 5000, "a b " * 500)
    person.chrome.set_window_size(500, 800)  # the narrowest window of Chromium
    for path in PAGES:
        person.visit(path)
        width = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        wide, seen = person.chrome.execute_script(width)
        assert wide <= seen, path


def test_pages_work_without_scripts(ottla: Any, person: Person, tmp_path: Path) -> None:
    ottla.topic("orders")
    write(ottla.bootstrap, "plain")
    person.chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        person.visit("/topics/orders/messages")
        assert "plain" in person.text
        person.fill("text", "nothing")
        person.click("Search")
        person.wait(lambda: "No record matches." in person.text, "an empty search")
    finally:
        person.chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
