"""Each setting with the status "works" is read somewhere, and generated pages are up to date."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from ottla.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, ServerSetting
from ottla.config.synonyms import GROUP_SYNONYMS, TOPIC_SYNONYMS
from ottla.config.unsupported import reason
from ottla.log import LogConfig
from tests.sources import by_path

# One process parses the sources for all of them.
pytestmark = pytest.mark.xdist_group("sources")
ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src/ottla"
# These modules describe settings without using them.
TABLES = {
    "reasons.py",
    "broker_rows.py",
    "group_rows.py",
    "security_rows.py",
    "topic_rows.py",
    "synonyms.py",
    "defaults.py",
}
# Read by a name that is composed from the topic's codec.
COMPOSED = {"compression.gzip.level", "compression.lz4.level", "compression.zstd.level"}
# The limits of the settings of a group, read by names that are composed from the group's type and the setting.
GROUP_LIMIT = re.compile(r"group\.(consumer|share|streams)\.(min|max)\.[a-z.]+")


def _strings_of(nodes: list[ast.AST]) -> set[str]:
    """Return the string constants of a module except docstrings."""
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    }


@cache
def _read_by_name() -> frozenset[str]:
    files = [file for path, file in by_path().items() if path.is_relative_to(SOURCE) and path.name not in TABLES]
    return frozenset().union(*(_strings_of(file.nodes) for file in files))


@cache
def _attributes_of_the_log() -> frozenset[str]:
    """Return the attributes of `LogConfig` that the log package reads."""
    text = "\n".join(path.read_text() for path in (SOURCE / "log").glob("*.py"))
    return frozenset(name for name in LogConfig.__annotations__ if re.search(rf"(config|self)\.{name}\b", text))


def _topic_setting_is_read(name: str) -> bool:
    return name in COMPOSED or name in _read_by_name() or name.replace(".", "_") in _attributes_of_the_log()


def _broker_setting_is_read(name: str) -> bool:
    followed = [topic for topic, names in TOPIC_SYNONYMS.items() if name in {each.name for each in names}]
    return (
        name in GROUP_SYNONYMS.values()
        or bool(GROUP_LIMIT.fullmatch(name))
        or name in _read_by_name()
        or any(_topic_setting_is_read(topic) for topic in followed)
    )


def _working(settings: dict[str, ServerSetting]) -> list[str]:
    return [name for name, setting in settings.items() if setting.status == "works"]


def test_broker_settings_that_work_are_read() -> None:
    assert [name for name in _working(BROKER_SETTINGS) if not _broker_setting_is_read(name)] == []


def test_topic_settings_that_work_are_read() -> None:
    assert [name for name in _working(TOPIC_SETTINGS) if not _topic_setting_is_read(name)] == []


def test_group_settings_that_work_are_read() -> None:
    assert [name for name in _working(GROUP_SETTINGS) if name not in _read_by_name()] == []


def test_topic_setting_and_its_synonyms_have_the_same_status() -> None:
    for name, stand_ins in TOPIC_SYNONYMS.items():
        statuses = {BROKER_SETTINGS[each.name].status for each in stand_ins}
        assert statuses == {TOPIC_SETTINGS[name].status}, name
    for name, stand_in in GROUP_SYNONYMS.items():
        assert GROUP_SETTINGS[name].status == BROKER_SETTINGS[stand_in].status, name


def test_each_setting_has_a_description_and_a_reason_if_it_has_no_effect() -> None:
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()):
        assert len(setting.doc.split()) >= 3, setting.name
        assert setting.doc.endswith("."), setting.name
        if setting.status != "works":
            assert reason(setting.name)


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("authorization.md", "tools.pages.authorization"),
        ("configuration.md", "tools.pages.configuration"),
        ("protocol.md", "tools.pages.protocol"),
    ],
)
def test_page_is_what_its_generator_prints(page: str, module: str) -> None:
    generated = subprocess.run([sys.executable, "-m", module], capture_output=True, text=True, check=True, timeout=30)
    assert (ROOT / "docs" / page).read_text() == generated.stdout, "run `make docs` and commit the result"
