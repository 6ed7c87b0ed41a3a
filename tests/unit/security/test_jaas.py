"""`sasl.jaas.config`: Kafka's syntax, and errors without secrets."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security import jaas
from ottla.security.mechanism import SaslError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_users_of_plain() -> None:
    module = jaas.parse(f'{PLAIN} required\n  username="admin" password="a;b" user_alice=\'x"y\' user_b-c.d=e1;')
    assert (module.name, module.short_name) == (PLAIN, "PlainLoginModule")
    assert module.options == {"username": "admin", "password": "a;b", "user_alice": 'x"y', "user_b-c.d": "e1"}


def test_names_and_values_may_be_quoted_and_escaped() -> None:
    module = jaas.parse('M REQUIRED "user_a@b c"="p\\"w\\\\d\\n" /* of a=b; */ user_x = "" // rest\n ;')
    assert module.options == {"user_a@b c": 'p"w\\d\n', "user_x": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        f"{PLAIN} required",
        f'{PLAIN} user_a="hush";',
        f'{PLAIN} perhaps user_a="hush";',
        f'{PLAIN} required user_a="hush"',
        f'{PLAIN} required user_a "hush";',
        f'{PLAIN} required user_a="hush;',
        f'{PLAIN} required user_a=="hush";',
        f"{PLAIN} required user_a=hush@x;",
        f'{PLAIN} required user_a="hush"; {PLAIN} required;',
        f'{PLAIN} required ="hush" user_a;',
    ],
)
def test_malformed_text_is_an_error_without_the_text(text: str) -> None:
    with pytest.raises(SaslError, match=r"sasl\.jaas\.config is not of the form") as error:
        jaas.parse(text)
    assert "hush" not in str(error.value)


def test_repr_has_no_secret() -> None:
    assert "hush" not in repr(jaas.parse(f"{PLAIN} required user_a=hush;"))


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=3))
def test_any_names_and_values_can_be_written(options: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    line = " ".join(f"{quoted(name)}={quoted(value)}" for name, value in options.items())
    assert jaas.parse(f"M required {line};").options == options


@given(st.text(alphabet="M req=;\"'\\/*\n", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(SaslError):
        jaas.parse(text)
