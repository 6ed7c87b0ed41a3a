"""The file of profiles: any settings survive it, other content stays, and other users cannot read it."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.common.failure import Failure
from ottla.tools import profile_file

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.one_of(
    st.sampled_from(["a", "b.c", "with space", 'quo"te', "[x]", "current", "profiles"]), TEXT.filter(str.strip)
)
SETTINGS = st.dictionaries(NAMES, st.one_of(TEXT, st.lists(TEXT, max_size=2)), max_size=3)
HAND_WRITTEN = """\
# my clusters
current = "b"  # the usual one

[profiles.b]
# no quotes are needed here
bootstrap.servers = "b:1"
[profiles.b.ssl]
truststore = { location = "/b.pem", password = "p" }

[other.program]
keep = 1
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    # Each example writes several times; a power failure is not part of this test.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return tmp_path / "ottla" / "config.toml"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(NAMES, st.one_of(st.none(), SETTINGS)), max_size=5), st.booleans())
def test_profiles_survive_each_change(
    home: Path, changes: list[tuple[str, dict[str, object] | None]], by_hand: bool
) -> None:
    home.unlink(missing_ok=True)
    expected: dict[str, dict[str, object]] = {}
    if by_hand:
        home.parent.mkdir(exist_ok=True)
        home.write_text(HAND_WRITTEN)
        location = {"ssl.truststore.location": "/b.pem", "ssl.truststore.password": "p"}
        expected["b"] = {"bootstrap.servers": "b:1", **location}
    for name, values in changes:
        profile_file.store(name, values)
        if values is None:
            expected.pop(name, None)
        else:
            expected[name] = values
            profile_file.use(name)
            assert profile_file.settings_in_use() == values
        assert {each: profile_file.settings_of(each) for each in expected} == expected
        assert profile_file.load().get("profiles", {}).keys() == expected.keys()
        assert stat.S_IMODE(home.stat().st_mode) == 0o600
        if by_hand:
            assert tomllib.loads(home.read_text())["other"] == {"program": {"keep": 1}}


def test_other_lines_of_the_file_stay(home: Path) -> None:
    home.parent.mkdir()
    home.write_text(HAND_WRITTEN)
    profile_file.store("c", {"client.id": "c"})
    profile_file.use("c")
    profile_file.store("c", None)
    text = home.read_text()
    assert "# my clusters" in text
    assert "# no quotes are needed here" in text
    assert "current" not in tomllib.loads(text), "the deleted profile is not in use"
    profile_file.store("b", {"client.id": "b"})
    text = home.read_text()
    assert "# my clusters" in text
    assert "ssl" not in text, "the tables in a profile are a part of it"


def test_file_whose_layout_cannot_be_edited_keeps_other_content(home: Path) -> None:
    home.parent.mkdir()
    home.write_text('profiles.a = { "client.id" = "a" }\nother = 1\n')
    before = home.read_text()
    with pytest.raises(Failure, match="cannot be changed without losing its 'other'"):
        profile_file.store("a", {"client.id": "b"})
    assert home.read_text() == before
    home.write_text('profiles.a = { "client.id" = "a" }\n')
    profile_file.store("a", {"client.id": "b"})
    assert profile_file.settings_of("a") == {"client.id": "b"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [("profiles = 1", "profiles are tables"), ("[profiles]\na = 1", "profiles are tables"), ("x", "is not valid TOML")],
)
def test_file_that_is_not_one_of_profiles_is_not_overwritten(home: Path, text: str, problem: str) -> None:
    home.parent.mkdir()
    home.write_text(text)
    with pytest.raises(Failure, match=problem):
        profile_file.store("a", {"client.id": "a"})
    assert home.read_text() == text
