"""The examples of docs/python-connectors.md run as they stand there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.testing.test_plugin import Run

PAGE = Path(__file__).parents[3] / "docs" / "python-connectors.md"
FILES = re.findall(r"^```(python|toml)\n# file: (\S+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(python|toml)$", PAGE.read_text(), re.MULTILINE)
    assert len(FILES) == len(blocks) >= 8, "each example names its file"
    for _, name, text in FILES:
        (tmp_path / name).write_text(text)
    code, out = Run(tmp_path, timeout_s=110)("", "--timeout=60", *sorted(map(str, tmp_path.glob("test_*.py"))))
    assert code == 0, out
    assert "4 passed" in out


def test_the_other_files_are_valid(tmp_path: Path, monkeypatch) -> None:
    for kind, name, text in FILES:
        (tmp_path / name).write_text(text)
        if kind == "toml":
            config = tomllib.loads(text)
    monkeypatch.syspath_prepend(tmp_path)
    from ottla.connect import plugins

    for name in ("weather:readings", "settings_example:api", "stations:stations", "warehouse:write"):
        assert plugins.connector_class(name).config_def is not None
    plugins.connector_class(config["connector.class"]).config_def.parse(config)
