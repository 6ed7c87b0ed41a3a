"""Node.js scripts that use kafkajs out of the peers' cache."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .cache import KAFKAJS


def node(script: Path, *arguments: object, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a script to its end; raises TimeoutExpired after `timeout` s, when the process is killed."""
    environment = {**os.environ, "NODE_PATH": str(KAFKAJS / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    command = ["node", str(script), *(str(a) for a in arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
