"""Checks that `ottla.clients.typed_settings` matches the option tables. Run as a module, this file writes it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.options import COMMON_OPTIONS, Option
from ottla.clients.producer.settings import PRODUCER_OPTIONS
from ottla.clients.share.settings import SHARE_OPTIONS

ROOT = Path(__file__).parents[3]
TARGET = ROOT / "src" / "ottla" / "clients" / "typed_settings.py"
WIDTH = 120
HEAD = '''"""The settings of each client as types, so that editors complete them and type checkers find misspelt ones.

    settings: ProducerConfig = {"bootstrap_servers": "localhost:9092", "linger_ms": 20}
    producer = Producer(**settings)

Generated from the option tables by `make docs`; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict
'''
ADDRESS, *OTHERS = COMMON_OPTIONS
TABLES = {
    "CommonConfig": ("Settings that every client has, but for the address of the cluster.", OTHERS, None),
    "AdminConfig": ("Settings of `Admin` and `AsyncAdmin`.", (ADDRESS,), "CommonConfig"),
    "ProducerConfig": ("Settings of `Producer` and `AsyncProducer`.", PRODUCER_OPTIONS, "AdminConfig"),
    "ShareConsumerConfig": (
        "Settings of `ShareConsumer` and `AsyncShareConsumer`.",
        SHARE_OPTIONS,
        "AdminConfig",
    ),
    "ConsumerConfig": ("Settings of `Consumer` and `AsyncConsumer`.", CONSUMER_OPTIONS, "AdminConfig"),
}
KINDS = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "password": "str",
    "list": "str | Sequence[str]",
    "object": "Any",
}


def annotation(option: Option) -> str:
    """Return the type of a setting's value as Python source."""
    text = KINDS[option.kind]
    if option.choices:
        numbers = [choice for choice in option.choices if choice.lstrip("-").isdigit()]
        text = f"Literal[{', '.join([*(repr(choice) for choice in option.choices), *numbers])}]".replace("'", '"')
    return f"{text} | None" if option.default is None and option.kind != "object" else text


def wrapped(text: str) -> list[str]:
    """Return a docstring of one or more lines as Python source."""
    if len(text) + 10 <= WIDTH:
        return [f'    """{text}"""']
    lines, line = [], '    """'
    for word in text.split():
        if len(line) + len(word) + 1 > WIDTH:
            lines.append(line.rstrip())
            line = "    "
        line += word + " "
    return [*lines, line.rstrip(), '    """']


def body(options: Sequence[Option]) -> list[str]:
    """Return the fields of a class, including aliases, as Python source."""
    lines = []
    for option in options:
        for name in (option.python_name, *(alias.replace(".", "_") for alias in option.aliases)):
            field = f"    {name}: {annotation(option)}"
            lines.append(field)
            lines += wrapped(option.doc.replace("\\", "\\\\"))
    return lines


def source() -> str:
    """Return the source of the module."""
    parts = [HEAD]
    common = {option.name for option in COMMON_OPTIONS}
    for name, (doc, table, base) in TABLES.items():
        own = [option for option in table if base != "AdminConfig" or option.name not in common]
        parts.append(f'\n\nclass {name}({base or "TypedDict"}, total=False):\n    """{doc}"""\n')
        parts.append("\n".join(body(own)) + "\n")
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input="".join(parts), capture_output=True, text=True, timeout=60, check=True).stdout


def test_types_match_the_option_tables() -> None:
    assert TARGET.read_text() == source(), "run `make docs`"


@pytest.mark.parametrize("name", TABLES)
def test_every_setting_has_a_type(name: str) -> None:
    from ottla.clients import (
        typed_settings,
    )  # not imported at the top, because running this file as a module may have to create it

    _, table, _ = TABLES[name]
    assert {option.python_name for option in table} <= set(getattr(typed_settings, name).__annotations__)


def test_type_checker_finds_misspelt_settings_and_infers_results(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from ottla.clients import Admin, Consumer, Producer, ProducerConfig\n"
        "settings: ProducerConfig = {'bootstrap_servers': 'h:1', 'linger_ms': 2}\n"
        "Producer(**settings)\n"
        "Producer({'bootstrap.servers': 'h:1'}, acks=1, compression_type='lz4')\n"
        "Producer(bootstrap_server='h:1')\n"
        "Producer(bootstrap_servers='h:1', linger_ms='soon')\n"
        "Producer(bootstrap_servers='h:1', compression_type='lz5')\n"
        "consumer = Consumer[str, int](bootstrap_servers='h:1')\n"
        "for record in consumer.poll():\n"
        "    reveal_type(record.key)\n"
        "    reveal_type(record.value)\n"
        "for plain in Consumer(bootstrap_servers='h:1').poll():\n"
        "    reveal_type(plain.value)\n"
        "producer = Producer[str, int](bootstrap_servers='h:1')\n"
        "producer.send('t', 1, key='a')\n"
        "producer.send('t', 'one', key='a')\n"
        "Admin('h:1').create_topic('t', partition=3)\n"
        "reveal_type(Admin('h:1').list_groups(timeout_s=3))\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(program)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False).stdout
    found = {int(line.split(":")[1]): line for line in said.splitlines() if line.startswith("program.py:")}
    assert sorted(found) == [5, 6, 7, 10, 11, 13, 16, 17, 18], said
    assert '"str | None"' in found[10]
    assert '"int | None"' in found[11]
    assert '"bytes | None"' in found[13]
    assert "partitions" in found[17]
    assert '"list[ottla.clients.admin.model.GroupListing]"' in found[18]


if __name__ == "__main__":
    TARGET.write_text(source())
