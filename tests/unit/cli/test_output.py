"""Tables and JSON lines for any values, also those that other users chose."""

from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.commands import Options
from ottla.cli.names import choose, enumerated
from ottla.cli.output import Column, Output, _without_its_middle, number, one_line

TEXTS = st.text(max_size=12)
ROWS = st.lists(st.fixed_dictionaries({"name": TEXTS, "count": st.integers(0, 10**9), "note": TEXTS}), max_size=5)
COLUMNS = [Column("name"), number("count"), Column("note", optional=True)]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def printed(rows: list[dict[str, Any]], columns: list[Column], stream: io.StringIO, **options: Any) -> list[str]:
    Output(Options(**options), stream).table(columns, rows)
    return stream.getvalue().removesuffix("\n").split("\n")


@given(ROWS)
def test_table_has_a_line_per_row_and_each_value_below_its_heading(rows: list[dict[str, Any]]) -> None:
    heading, *lines = printed(rows, COLUMNS, io.StringIO())
    assert len(lines) == len(rows)
    assert ("NOTE" in heading) == any(row["note"] for row in rows)
    end = heading.index("COUNT") + len("COUNT")  # the column is aligned to the right
    for row, line in zip(rows, lines, strict=True):
        name = one_line(row["name"]) or "-"
        assert line.startswith(name)
        assert line[len(name) : end].strip() == f"{row['count']:,}"


@given(ROWS)
def test_table_cannot_control_the_terminal(rows: list[dict[str, Any]]) -> None:
    assert all(line.isprintable() for line in printed(rows, COLUMNS, io.StringIO()))


@given(ROWS)
def test_json_lines_are_the_rows(rows: list[dict[str, Any]]) -> None:
    lines = printed(rows, COLUMNS, io.StringIO(), json=True)
    assert [json.loads(line) for line in lines if line] == rows


@given(st.text(max_size=300), st.integers(10, 40))
def test_text_that_is_cut_keeps_both_of_its_ends(text: str, width: int) -> None:
    if len(text) > width:
        cut = _without_its_middle(text, width)
        assert len(cut) == width
        head, tail = cut.split("…", 1) if text.count("…") == 0 else (cut[:1], cut[-1:])
        assert text.startswith(head)
        assert text.endswith(tail)


@given(st.lists(st.text("abc", min_size=1, max_size=200), min_size=1, max_size=3))
def test_narrow_columns_fit_into_the_terminal(names: list[str]) -> None:
    stream = Screen()
    with_colours = printed([{"name": name} for name in names], [Column("name", narrow=True)], stream)
    plain = [line.replace("\x1b[2m", "").replace("\x1b[0m", "") for line in with_colours]
    assert all(len(line) <= 80 for line in plain)


@given(st.text())
def test_escaped_text_is_printable_and_stays_so(text: str) -> None:
    escaped = one_line(text)
    assert escaped.isprintable()
    assert one_line(escaped) == escaped


NAMES = st.lists(st.text("ab*?[]-", min_size=1, max_size=4), max_size=5, unique=True)


@given(known=NAMES, wanted=NAMES)
def test_chosen_names_exist_and_are_chosen_once(known: list[str], wanted: list[str]) -> None:
    chosen = choose(wanted, known, "topic", missing_ok=True)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(known)
    assert set(wanted) & set(known) <= set(chosen) or not wanted


@given(st.lists(st.text("abc", min_size=1), min_size=1, max_size=30))
def test_enumeration_names_at_most_five_and_counts_the_rest(names: list[str]) -> None:
    text = enumerated(names)
    shown, _, more = text.partition(" and ")
    assert len(shown.split(", ")) + int(more.removesuffix(" more") or 0) == len(names)
    assert len(shown.split(", ")) <= 5
