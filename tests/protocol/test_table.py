"""The table of APIs in the documentation."""

from __future__ import annotations

from tools.pages.protocol import markdown_table

from ottla.protocol.registry import API


def test_the_table_has_a_row_per_api_and_says_what_is_served() -> None:
    lines = markdown_table({0: (3, 12), 46: (0, 0)}).splitlines()
    assert len(lines) == len(API) + 2
    assert "| 0 | Produce | 3-13 | 9+ | 3-12 |" in lines
    assert "| 46 | ListPartitionReassignments | 0 | 0+ | 0 |" in lines
    assert "| 17 | SaslHandshake | 0-1 | never | - |" in lines
