"""The processes beside the brokers of `ottla up`: the schema registry and the web console, which stop before them."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from ottla.common.failure import Failure
from ottla.launch.stopping import SUPERVISED

logger = logging.getLogger("ottla.up")

REGISTRY_ADDRESS: Final = "127.0.0.1:8081"
CONSOLE_ADDRESS: Final = "127.0.0.1:8083"
_STOP_WITHIN_S: Final = 20.0

Words = Callable[[Path | None], Sequence[str]]
"""The words of a command, without the brokers' address; the argument is the directory of `--secure`."""


def companions(options: SimpleNamespace) -> Companions | None:
    """Return the processes that the options of `ottla up` ask for. Raises Failure if packages are missing."""
    registry, console = getattr(options, "registry", None), getattr(options, "console", None)
    found = []
    if registry is not None:
        _require("uvicorn", "registry")
        found.append(_Process("schema registry", lambda security: registry_words(registry, security)))
    if console is not None:
        _require("jinja2", "console")
        found.append(_Process("web console", lambda security: console_words(console, registry, security)))
    return Companions(found, options.log_level) if found else None


def _require(module: str, option: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise Failure(f"--{option} needs more packages", f"`pip install 'ottla[{option}]'` installs them.")


class Companions:
    """All of them."""

    def __init__(self, processes: Sequence[_Process], log_level: str) -> None:
        self._processes = processes
        self._log_level = log_level

    def start(self, bootstrap: str, security: Path | None) -> None:
        """Start them for these brokers; `security` is the directory of `--secure`. Does not wait."""
        for process in self._processes:
            process.start(bootstrap, security, self._log_level)

    async def stop(self) -> None:
        """Stop them, and wait until they have left their groups."""
        await asyncio.gather(*(process.stop() for process in self._processes))


class _Process:
    """One process. It writes its address and log lines to the streams of this process."""

    def __init__(self, name: str, words: Words) -> None:
        self._name = name
        self._words = words
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    def start(self, bootstrap: str, security: Path | None, log_level: str) -> None:
        words = [*self._words(security), "-b", bootstrap, "--log-level", log_level]
        self._watcher = asyncio.create_task(self._run(words), name=f"the {self._name}")

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self._watcher is not None:
            _, late = await asyncio.wait([self._watcher], timeout=_STOP_WITHIN_S)
            if late and self._process is not None:
                logger.error("The %s does not stop: killing it", self._name)
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
            # A Ctrl-C of the terminal is for this process, which stops its companions first.
            start_new_session=True,
        )
        code = await self._process.wait()
        if code:
            logger.error("The %s ended with exit code %d; the brokers go on", self._name, code)


def registry_words(address: str, security: Path | None) -> list[str]:
    """Return the command of a registry; with the certificates and users of `ottla up --secure`."""
    words = ["registry", "serve"]
    if security is None:
        return [*words, "--listen", address]
    settings = {
        "ssl.keystore.location": security / "node-1" / "keystore.pem",
        "ssl.truststore.location": security / "node-1" / "ca.pem",
        "authentication.method": "BASIC",
        "super.users": "User:admin",
    }
    words += ["--listen", _https(address), "--command-config", str(security / "admin.properties")]
    for name, value in settings.items():
        words += ["-X", f"{name}={value}"]
    return words


def console_words(address: str, registry: str | None, security: Path | None) -> list[str]:
    """Return the command of a console; `registry` is the address of the registry beside it."""
    words = ["console"]
    # The port that a registry chooses by itself is not known here.
    if registry is not None and not registry.endswith(":0") and registry != "0":
        listen = registry if ":" in registry else f"127.0.0.1:{registry}"
        words += ["--registry", _https(listen) if security is not None or "://" in listen else f"http://{listen}"]
    if security is None:
        return [*words, "--listen", address]
    keystore = security / "node-1" / "keystore.pem"
    words += ["--listen", _https(address), "--tls", f"ssl.keystore.location={keystore}"]
    return [*words, "--command-config", str(security / "admin.properties")]


def _https(address: str) -> str:
    return address if "://" in address else f"https://{address}"
