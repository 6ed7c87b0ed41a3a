"""A network of namespaces on this machine, whose links a test can cut. Needs root, and a kernel with bridges."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence

from tests.cluster.processes import Place

WITHIN_S = 10


class NetworkUnavailable(Exception):
    """This machine, or this user, cannot create network namespaces; the message says why."""


class Network:
    """One namespace for each node, all at one bridge; the test itself is at the bridge, too."""

    def __init__(self, nodes: Sequence[int]) -> None:
        # Several networks may exist at a time, in runs of several users of the machine.
        self._name = f"ot{os.getpid() % 0xFFFF:x}"
        self._subnet = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self._nodes = list(nodes)

    def place(self, node_id: int) -> Place:
        """Where a node runs."""
        return Place(f"{self._subnet}.{node_id}", ("ip", "netns", "exec", self._namespace(node_id)))

    def cut(self, node_id: int) -> None:
        """Drop all packets from and to a node, as a pulled cable does."""
        _ip("link", "set", self._link(node_id), "down")

    def heal(self, node_id: int) -> None:
        """Connect the node again."""
        _ip("link", "set", self._link(node_id), "up")

    def _namespace(self, node_id: int) -> str:
        return f"{self._name}-{node_id}"

    def _link(self, node_id: int) -> str:
        return f"{self._name}v{node_id}"

    def create(self) -> None:
        """Create everything. Raises NetworkUnavailable."""
        _ip("link", "add", self._name, "type", "bridge")
        _ip("addr", "add", f"{self._subnet}.254/24", "dev", self._name)
        _ip("link", "set", self._name, "up")
        for node_id in self._nodes:
            namespace, link = self._namespace(node_id), self._link(node_id)
            _ip("netns", "add", namespace)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", link, "master", self._name, "up")
            _ip("-n", namespace, "addr", "add", f"{self._subnet}.{node_id}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")

    def delete(self) -> None:
        """Delete what exists of it."""
        for node_id in self._nodes:
            with contextlib.suppress(NetworkUnavailable):
                _ip("netns", "del", self._namespace(node_id))
        with contextlib.suppress(NetworkUnavailable):
            _ip("link", "del", self._name)


@contextlib.contextmanager
def network(nodes: Sequence[int]) -> Iterator[Network]:
    """A network until the end of the block. Raises NetworkUnavailable."""
    created = Network(nodes)
    try:
        created.create()
        yield created
    finally:
        created.delete()


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=WITHIN_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkUnavailable(str(error)) from error
    if done.returncode:
        raise NetworkUnavailable(f"ip {' '.join(words)}: {done.stderr.strip()}")
