"""Print the table of rights for docs/authorization.md: `python -m tools.pages.authorization`."""

import sys
from collections.abc import Iterator

from ottla.broker.authorization_table import NEEDS, Need
from ottla.protocol.registry import API

HEAD = """\
# Rights of each API

Generated from `src/ottla/broker/authorization_table.py`. [Security](security.md) explains ACLs.

Each request needs all of its rights. READ, WRITE, DELETE and ALTER include DESCRIBE, and
ALTER_CONFIGS includes DESCRIBE_CONFIGS. Super users have all rights.

| Key | API | Right | When | Without it |
|--:|---|---|---|---|
"""


def main() -> None:
    """Print each API with its rights."""
    sys.stdout.write(HEAD)
    for key, needs in NEEDS.items():
        for row in _rows(key, needs):
            sys.stdout.write(f"| {' | '.join(row)} |\n")


def _rows(key: int, needs: tuple[Need, ...]) -> Iterator[tuple[str, ...]]:
    first = str(key), API[key].name
    if not needs:
        yield (*first, "none", "", "")
    for need in needs:
        yield (*first, " or ".join(map(str, need.any_of)), need.when, _without(need))
        first = "", ""


def _without(need: Need) -> str:
    return need.effect.value.replace("the error", need.error.name)


if __name__ == "__main__":
    main()
