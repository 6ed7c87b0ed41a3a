"""The schema registry beside the brokers of `ottla up --registry`: a process of its own, which stops before them."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.common.failure import Failure
from ottla.launch.stopping import SUPERVISED

logger = logging.getLogger("ottla.up")

DEFAULT_ADDRESS: Final = "127.0.0.1:8081"
_STOP_WITHIN_S: Final = 20.0


class RegistryProcess:
    """The process. It writes its address and log lines to the streams of this process."""

    def __init__(self, address: str, log_level: str) -> None:
        """Raises Failure if the registry is not installed."""
        if importlib.util.find_spec("uvicorn") is None:
            raise Failure("--registry needs more packages", "`pip install 'ottla[registry]'` installs them.")
        self._address = address
        self._log_level = log_level
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    def start(self, bootstrap: str, security: Path | None) -> None:
        """Start it for these brokers; `security` is the directory of `--secure`. Does not wait."""
        words = ["registry", "serve", "-b", bootstrap, "--log-level", self._log_level]
        words += ["--listen", self._address] if security is None else secured_words(security, self._address)
        self._watcher = asyncio.create_task(self._run(words), name="the schema registry")

    async def stop(self) -> None:
        """Stop it, and wait until it has left its group."""
        if self._process is not None and self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self._watcher is not None:
            _, late = await asyncio.wait([self._watcher], timeout=_STOP_WITHIN_S)
            if late and self._process is not None:
                logger.error("The schema registry does not stop: killing it")
                self._process.kill()
                await asyncio.wait(late)

    async def _run(self, words: Sequence[str]) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ottla.cli.main",
            *words,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, SUPERVISED: "1"},
            # A Ctrl-C of the terminal is for this process, which stops the registry first.
            start_new_session=True,
        )
        code = await self._process.wait()
        if code:
            logger.error("The schema registry ended with exit code %d; the brokers go on", code)


def secured_words(security: Path, address: str) -> list[str]:
    """Return the options of a registry with the certificates and users of `ottla up --secure`."""
    node = security / "node-1"
    settings = {
        "ssl.keystore.location": node / "keystore.pem",
        "ssl.truststore.location": node / "ca.pem",
        "authentication.method": "BASIC",
        "super.users": "User:admin",
    }
    listen = address if "://" in address else f"https://{address}"
    words = ["--listen", listen, "--command-config", str(security / "admin.properties")]
    for name, value in settings.items():
        words += ["-X", f"{name}={value}"]
    return words
