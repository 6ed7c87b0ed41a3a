"""The examples of docs/connectors.md are valid configurations, and its lists of settings name real ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.connect.plugins import connector_class

PAGE = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text()
EXAMPLES = [
    dict(line.split("=", 1) for line in text.splitlines())
    for text in re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)
]
COMMON = re.compile(
    r"name|connector\.class|topics|tasks\.max|(value|key)\.converter.*|errors\..*|header\..*|catalog\..*"
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each["connector.class"])
def test_example_is_a_valid_configuration(example: dict[str, str]) -> None:
    found = connector_class(example["connector.class"])
    found.config_def.parse(example)
    assert not found.problems(example)
    assert not [name for name in example if not COMMON.fullmatch(name) and name not in found.config_def]


def test_settings_of_the_tables_exist() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    examples = dict(zip([each.partition("\n")[0] for each in sections], EXAMPLES, strict=True))
    for section in sections:
        settings = connector_class(examples[section.partition("\n")[0]]["connector.class"]).config_def
        rows = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
        names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
        assert [name for name in names if name not in settings] == []
