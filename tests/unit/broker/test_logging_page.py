"""The loggers in docs/logging.md exist as soon as a broker has started, so that their level can be set."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/logging.md"


def test_documented_loggers_exist_before_their_modules_are_imported() -> None:
    named = set(re.findall(r"`(ottla\.[\w.]+)`", PAGE.read_text()))
    assert len(named) > 8
    code = "import ottla.broker.server; from ottla.broker.loggers import levels; print(*levels(), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert named <= set(done.stdout.split())
