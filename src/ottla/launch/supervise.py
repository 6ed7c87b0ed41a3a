"""`ottla up --brokers N`: runs the nodes of a cluster on this machine as processes, until a signal stops them.

Ctrl-C and SIGTERM stop all nodes cleanly, a second one at once. A node that ends by itself is named and not restarted;
the others go on, and the exit code is 1. If a node ends before all are ready, the others are stopped, and its error is
reported last. A node ends when its standard input is closed, so that no node outlives this process.
"""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.common.failure import Failure
from ottla.common.style import Style
from ottla.launch.companions import Companions, companions
from ottla.launch.console import announce, start_logging
from ottla.launch.local_nodes import MOST_BROKERS, LocalNode, prepare
from ottla.launch.secured import LocalSecurity, chosen
from ottla.launch.settings import data_directory
from ottla.launch.stopping import ONE_REQUEST_S, SUPERVISED
from ottla.tools.file_modes import shown_to_others

logger = logging.getLogger("ottla.up")

_ANNOUNCEMENT = b"bootstrap="
_READY_WITHIN_S = 120.0
_STOP_WITHIN_S = 90.0
_CHUNK = 1 << 16
_JSON = b'{"time": '
# An error of the command line: its lines with the next step are indented.
_ERROR, _ERROR_GOES_ON = b"ottla: ", b"       "


def run(options: SimpleNamespace) -> int:
    """Run the nodes until a signal arrives; returns the exit code."""
    try:
        brokers = int(options.brokers)
    except ValueError:
        brokers = 0
    if not 1 <= brokers <= MOST_BROKERS:
        raise Failure(f"--brokers {options.brokers} is not a number from 1 to {MOST_BROKERS}", exit_code=2)
    start_logging(options.log_level, options.log_format)
    if exposed := shown_to_others("-X", options.overrides, "--config FILE"):
        logger.warning("%s", exposed)
    security = chosen(options, Path(data_directory(options)).absolute() / "security")
    nodes = prepare(options, brokers, security)
    return asyncio.run(_Supervisor(nodes, options.log_level, security, companions(options)).run())


class _Process:
    """One node's process."""

    def __init__(self, node: LocalNode, process: asyncio.subprocess.Process) -> None:
        self.node = node
        self.process = process
        self.address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The address for clients; empty if the process ended before it announced one."""
        self.error: list[str] = []
        """The error that the process printed last: the problem, then lines with the next step."""

    async def read_output(self) -> None:
        """Read the address that the node announces; skip the rest of its standard output."""
        assert self.process.stdout is not None
        first = b""
        while chunk := await self.process.stdout.read(_CHUNK):
            if not self.address.done():
                first += chunk
                line, newline, _ = first.partition(b"\n")
                if newline:
                    self.address.set_result(line.removeprefix(_ANNOUNCEMENT).decode())

    async def copy_log(self, prefix: bytes) -> None:
        """Copy the node's log lines to standard error, each after `prefix`, or with the node if it is JSON."""
        node = b'{"node": %d, ' % self.node.node_id

        def named(line: bytes) -> bytes:
            return node + line[1:] + b"\n" if line.startswith(_JSON) else prefix + line + b"\n"

        assert self.process.stderr is not None
        rest = b""
        while chunk := await self.process.stderr.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                self._remember_error(lines)
                sys.stderr.buffer.write(b"".join(map(named, lines)))
                sys.stderr.buffer.flush()
        if rest:
            sys.stderr.buffer.write(named(rest))
            sys.stderr.buffer.flush()

    def _remember_error(self, lines: list[bytes]) -> None:
        for line in lines:
            if line.startswith(_ERROR):
                self.error = [line.removeprefix(_ERROR).decode(errors="replace")]
            elif self.error and line.startswith(_ERROR_GOES_ON):
                self.error.append(line.strip().decode(errors="replace"))

    def stop(self) -> None:
        """Stop it cleanly, as one of a cluster that ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()


class _Supervisor:
    def __init__(
        self,
        nodes: list[LocalNode],
        log_level: str,
        security: LocalSecurity | None,
        companions: Companions | None = None,
    ) -> None:
        self._nodes = nodes
        self._companions = companions
        self._security = security
        self._log_level = log_level
        self._processes: list[_Process] = []
        self._stop = asyncio.Event()
        self._signalled_s: float | None = None
        self._died = False
        self._ready = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop_on, number)
        watchers: list[asyncio.Task[None]] = []
        try:
            for node in self._nodes:
                started = await self._start(node)
                self._processes.append(started)
                watchers.append(asyncio.create_task(self._watch(started)))
            self._ready = await self._all_ready()
            if self._ready:
                self._announce()
                await self._stop.wait()
        finally:
            self._stop.set()
            if self._companions is not None:
                await self._companions.stop()
            for each in self._processes:
                each.stop()
            await self._wait_for_end(watchers)
        if not self._ready:
            self._raise_error_of_the_start()
        if not self._died:
            logger.info("Stopped all %d nodes", len(self._processes))
        return 1 if self._died else 0

    async def _start(self, node: LocalNode) -> _Process:
        words = ["-m", "ottla.cli.main", "up", "--config", str(node.properties_file), "--log-level", self._log_level]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=os.environ | {SUPERVISED: "1"},
            process_group=0,  # Ctrl-C reaches this process only, which stops the nodes in its own way
        )
        return _Process(node, process)

    async def _watch(self, started: _Process) -> None:
        """Copy the output of a node until it ends, and report an end that was not ordered."""
        style = Style.of(sys.stderr)
        prefix = style.dim(f"{started.node.node_id} |") + " "
        await asyncio.gather(started.read_output(), started.copy_log(prefix.encode()))
        code = await started.process.wait()
        if not started.address.done():
            started.address.set_result("")
        if self._stop.is_set() and code in (0, -signal.SIGKILL):
            return
        self._died = True
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        others = "the others go on" if self._ready and not self._stop.is_set() else "stopping all nodes"
        logger.error("Node %d %s; %s", started.node.node_id, how, others)
        if self._ready and not self._stop.is_set():
            logger.error("Start it again in another terminal: ottla up --config %s", started.node.properties_file)
        if all(each.process.returncode is not None for each in self._processes):
            self._stop.set()

    async def _all_ready(self) -> bool:
        """Wait for the addresses of all nodes; False if one ended before, or a signal arrived."""
        stopped = asyncio.create_task(self._stop.wait())
        try:
            for each in self._processes:
                waiting: list[asyncio.Future[Any]] = [each.address, stopped]
                await asyncio.wait(waiting, timeout=_READY_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
                if self._stop.is_set():
                    return False
                if not each.address.done():
                    self._died = True
                    logger.error(
                        "Node %d is not ready after %.0f s: stopping all nodes", each.node.node_id, _READY_WITHIN_S
                    )
                if not each.address.done() or not each.address.result():
                    return False
        finally:
            stopped.cancel()
        return True

    def _raise_error_of_the_start(self) -> None:
        """Raise Failure with the error of the first node that printed one: hundreds of log lines may follow it."""
        for each in self._processes:
            if each.error:
                raise Failure(f"node {each.node.node_id} did not start: {each.error[0]}", *each.error[1:])

    def _announce(self) -> None:
        bootstrap = ",".join(each.address.result() for each in self._processes)
        first = self._processes[0].address.result()
        where = f"-b {first}" if self._security is None else self._security.announced(bootstrap)
        replicas = min(3, len(self._nodes))
        rows = {
            "data": f"{self._nodes[0].data.parent.parent}/node-*",
            "copies": f"{replicas} of each partition, unless a topic is created with another number",
            "write": f"echo hello | ottla produce greetings --create {where}",
            "read": f"ottla tail greetings {where}",
            "look": f"ottla cluster {where}",
            **({} if self._security is None else {"users": f"ottla security user add ann {where}"}),
            "stop": "Ctrl-C; the same command starts the cluster again",
        }
        announce(bootstrap, first, f"{len(self._nodes)} brokers are up.", rows)
        if self._companions is not None:
            self._companions.start(bootstrap, None if self._security is None else self._security.directory)

    def _stop_on(self, number: signal.Signals) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._signalled_s is not None:
            if now_s - self._signalled_s < ONE_REQUEST_S:
                return
            self._died = True
            logger.warning("Stopping at once: received %s a second time", number.name)
            self._kill_all()
            return
        logger.info("Stopping %d nodes: %s", len(self._processes), number.name)
        self._signalled_s = now_s
        self._stop.set()

    def _kill_all(self) -> None:
        for each in self._processes:
            if each.process.returncode is None:
                each.process.kill()

    async def _wait_for_end(self, watchers: list[asyncio.Task[None]]) -> None:
        if not watchers:
            return
        _, late = await asyncio.wait(watchers, timeout=_STOP_WITHIN_S)
        if late:
            self._died = True
            logger.error("%d nodes do not stop: killing them", len(late))
            self._kill_all()
            await asyncio.wait(late)
