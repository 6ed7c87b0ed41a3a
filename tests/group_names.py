"""The list of failed tests, for `make test-failed`, has the names of tests without their groups.

With `--dist loadgroup`, pytest-xdist adds `@GROUP` to the names, also of failures. `--last-failed` compares them with
names without groups: it would repeat no failed test of a group, and say nothing of it.
"""

from __future__ import annotations

import re

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remove the group from the name of a test, in the process that collects the reports of the others."""
    if hasattr(report, "node"):
        report.nodeid = re.sub(r"@[\w.-]+$", "", report.nodeid)
