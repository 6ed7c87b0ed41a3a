"""Values for settings, good and bad, and what stock Kafka says about them.

`attempts(setting)` are values around a row's limits and values of other types, among them what Java's and Python's
number parsers read differently. `Oracle` asks stock Kafka's own classes (tests/peers/ConfigOracle.java).
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from ottla.config import ServerSetting
from tests.peers.cache import HERE
from tests.peers.kafka import java

ORACLE_TIMEOUT_S = 120.0

ANY_TYPE = (
    "", " ", "x", "*", ",", "a,,b", "a,a", " a , b ", "true", "TRUE", " False ", "yes", "null", "none", "-",
    "0", "-0", "1", "+7", "-1", "-2", "-7", "7 ", "1 0", "1_0", "007", "\u0663", "\uff17", "1e3", "0x10", "0x1p3",
    "1.5", ".5", "5.", "1.0d", "1f", "1L", "nan", "NaN", "-NaN", "inf", "Infinity", "-Infinity", "1e999",
    "32767", "32768", "-32769", "2147483647", "2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "\u00a0" + "1", "1\u2003", "\x001",
)  # fmt: skip


def attempts(setting: ServerSetting) -> list[str]:
    """Values to try for a setting, each once: ANY_TYPE, the default and the neighbours of each number in the limits."""
    values = list(ANY_TYPE)
    if setting.default_text is not None:
        values.append(setting.default_text)
    for limit in (setting.low, setting.high, setting.also):
        if limit is not None:
            values += [str(int(limit) + step) for step in (-1, 0, 1)]
    words = list(setting.choices)
    for word in words:
        values += [word, word.upper(), word.lower(), f"{word},{word}"]
    values.append(",".join(words))
    return list(dict.fromkeys(values))


class Oracle:
    """Collects questions; `answers` puts them to one JVM."""

    def __init__(self) -> None:
        self._questions: list[str] = []

    def ask(self, kind: str, settings: Mapping[str, str]) -> None:
        """One question of kind `static`, `topic` or `group`."""
        self._put(kind, *(word for pair in settings.items() for word in pair))

    def ask_properties(self, data: bytes) -> None:
        """Ask for the properties that java.util.Properties reads from a file."""
        self._put("properties", data.decode("latin-1"))

    def _put(self, *words: str) -> None:
        self._questions.append(" ".join(map(_encode, words)))

    def answers(self) -> list[str | None]:
        """The refusal of each question in order; None where the settings are accepted."""
        return [None if answer == "ok" else _decode(answer) for answer in self._run()]

    def properties(self) -> list[dict[str, str] | None]:
        """The names and values of each file in order; None where it cannot be read."""
        read: list[dict[str, str] | None] = []
        for answer in self._run():
            words = [_decode(word) for word in answer.split()[1:]]
            read.append(dict(_pairs(words)) if answer.startswith("ok") else None)
        return read

    def _run(self) -> list[str]:
        command = java(str(HERE / "ConfigOracle.java"))
        text = "".join(f"{question}\n" for question in self._questions)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=ORACLE_TIMEOUT_S, check=True)
        answers = done.stdout.splitlines()
        assert len(answers) == len(self._questions), done.stderr
        return answers


def _pairs(words: Sequence[str]) -> Iterable[tuple[str, str]]:
    return zip(words[::2], words[1::2], strict=True)


def _encode(word: str) -> str:
    return "b" + base64.b64encode(word.encode()).decode()


def _decode(word: str) -> str:
    return base64.b64decode(word[1:]).decode()
