"""`.properties` files are read as java.util.Properties reads them: files of an editor, and files made at random."""

from __future__ import annotations

from random import Random

import pytest

from ottla.config import parse_properties

from .setting_values import Oracle

pytestmark = pytest.mark.jvm

PIECES = (
    b"a", b"b", b"=", b":", b" ", b"\t", b"\f", b"\v", b"\\", b"#", b"!", b"\n", b"\r", b"\r\n", b"\\\n", b"\\\r\n  ",
    b"\\u0041", b"\\u00e9", b"\\u", b"\\n", b"\xe9", b"\x85", b"\x00",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_files_made_at_random_are_read_as_by_java(seed: int) -> None:
    random = Random(seed)
    files = [b"".join(random.choice(PIECES) for _ in range(random.randrange(1, 14))) for _ in range(10_000)]
    oracle = Oracle()
    for data in files:
        oracle.ask_properties(data)
    for data, expected in zip(files, oracle.properties(), strict=True):
        # Java reads bytes as ISO 8859-1; load_properties does so where they are not UTF-8.
        text = data.decode("latin-1")
        if expected is None:
            with pytest.raises(ValueError, match="broken escape"):
                parse_properties(text)
        else:
            assert parse_properties(text) == expected, data
