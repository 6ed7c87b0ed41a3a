"""The language check rejects the idioms of the style page's glossary, and accepts plain English."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import check_language

STYLE = (Path(__file__).parents[2] / "docs" / "STYLE.md").read_text(encoding="utf-8")
# A pattern would also reject correct sentences with these words.
READERS_ONLY = {"home (of a log)", "a mistake", "kept"}


def glossary() -> list[str]:
    """The terms of the left column."""
    rows = STYLE.partition("| Instead of |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [row.split("|")[1].strip() for row in rows]
    return [term for cell in cells for term in re.split(r", (?![^(]*\))", cell) if term not in READERS_ONLY]


@pytest.mark.parametrize("term", glossary())
def test_each_term_of_the_glossary_is_rejected(term: str) -> None:
    assert list(check_language.findings(f"The segment {term} here."))


@pytest.mark.parametrize(
    "sentence",
    [
        "The follower truncates its log; there is none to fetch from, and there is no longer a leader.",
        "There is room for 5 bytes, and headroom. The interface faces the network. It left the group.",
        "A mailbox name such as `is_gone` in code is not prose, nor is `made anew`.",
        "The broker told the client nothing.",
        "It takes a third of Kafka's time, and a module of Spark's launcher with whatever it needs.",
    ],
)
def test_plain_sentences_are_accepted(sentence: str) -> None:
    assert not list(check_language.findings(sentence))


def test_docstring_that_begins_with_what_is_rejected() -> None:
    assert list(check_language.findings('"""What the broker returns."""'))
    assert not list(check_language.findings('"""Return what the broker sent."""'))
    assert not list(check_language.findings('"What the broker returns"'))


def test_findings_name_the_line_of_a_comment_a_string_and_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_language, "ROOT", tmp_path)
    source = tmp_path / "test_sample.py"
    source.write_text(
        '"""A segment."""\n\n# The index is\n# made anew.\ndef test_it_is_harmed() -> str:\n    return f"it is gone"\n'
    )
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nFine.\n\n```\nmade anew\n```\n\nThe topic\nis gone.\n")
    assert list(check_language.check([source, page])) == [
        'page.md:9: "is gone": write is deleted, is lost, has disconnected',
        'test_sample.py:5: "harmed": write corrupt, corrupted, damage',
        'test_sample.py:6: "is gone": write is deleted, is lost, has disconnected',
        'test_sample.py:3: "anew": write again; rebuild, recreate',
    ]
