"""`.properties` files: parsed as by java.util.Properties, but as UTF-8 if the bytes are valid UTF-8."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import BrokerConfig, format_properties, load_properties, parse_properties


def test_properties_are_parsed_as_in_java() -> None:
    lines = (
        "# comment = 1",
        "  ! another",
        "plain=value",
        "  spaced  :  some words  ",
        "bare",
        "no.separator value",
        r"escaped\=key\:=a\tb\\c",
        r"unicode=\u00e9\ud83d\ude00",
        "long=one,\\",
        "    two,\\",
        "    # not a comment",
        r"even\\",
        "twice=1",
        "twice=2",
        "last=\\",
    )
    assert parse_properties("\r\n".join(lines)) == {
        "plain": "value",
        "spaced": "some words  ",
        "bare": "",
        "no.separator": "value",
        "escaped=key:": "a\tb\\c",
        "unicode": "é😀",
        "long": "one,two,# not a comment",
        "even\\": "",
        "twice": "2",
        "last": "",
    }


def test_broken_escape_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\\u12"):
        parse_properties("a=\\u12")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_survive_escaping(values: dict[str, str]) -> None:
    def escape(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    written = "\n".join(f"{escape(name)}={escape(value)}" for name, value in values.items())
    assert parse_properties(written) == values


@given(st.dictionaries(st.text(), st.text(st.sampled_from(" \t\f\n\r\\=:#!aä\ufeff\x85\u2028"), max_size=8)))
def test_formatted_properties_are_read_as_they_were(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values)) == values


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n# no comment\n", {"a": "1# no comment"}),
        ("\\\n# a comment\na=1", {"a": "1"}),
        ("# a comment is not continued \\\na=1", {"a": "1"}),
        ("a=\\\r\n  1,\\\r\n  2", {"a": "1,2"}),
        ("a\\ b = c ", {"a b": "c "}),
        ("a=\\q\\u0041", {"a": "qA"}),
        ("\f a\tb", {"a": "b"}),
        ("a=1\x0b", {"a": "1\x0b"}),
        ("a\u0085b=1", {"a\u0085b": "1"}),
        ("\\", {"": ""}),
        ("\\\n", {"": ""}),
        ("\\\r\n", {}),
    ],
)
def test_line_ends_and_continued_lines_are_parsed_as_in_java(text: str, read: dict[str, str]) -> None:
    assert parse_properties(text) == read


@pytest.mark.parametrize(
    ("data", "rack"),
    [
        (b"\xef\xbb\xbfbroker.rack=one\nnum.partitions=3\n", "one"),
        (b"\xef\xbb\xbf# first a comment\r\nbroker.rack=one\r\nnum.partitions=3\r\n", "one"),
        ("broker.rack=\u00e9t\u00e9\nnum.partitions=3".encode(), "\u00e9t\u00e9"),
        ("broker.rack=\u00e9t\u00e9\nnum.partitions=3".encode("latin-1"), "\u00e9t\u00e9"),
        (b"broker.rack=\\u00e9t\\u00e9\nnum.partitions=3", "\u00e9t\u00e9"),
    ],
    ids=["mark", "mark, CRLF", "UTF-8", "ISO 8859-1", "escapes"],
)
def test_byte_order_mark_and_encoding_of_an_editor_are_accepted(data: bytes, rack: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(data)
    config = BrokerConfig(load_properties(file))
    assert (config.rack, config.int("num.partitions"), config.warnings) == (rack, 3, [])


def test_file_in_utf_16_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\n", encoding="utf-16")
    with pytest.raises(ValueError, match="UTF-16: save it as UTF-8"):
        load_properties(file)
