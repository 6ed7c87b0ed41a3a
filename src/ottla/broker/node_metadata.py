"""The metadata log of a node with the parts that only it uses: the lock of its directory, threads, and the quorum."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cluster.config_rules import BrokerConfigRules
from ottla.cluster.metadata.log import MetadataShell
from ottla.cluster.metadata.options import MetadataOptions, NodeIdentity
from ottla.cluster.metadata.snapshotting import MetadataLogSettings
from ottla.cluster.node.peer_security import PeerSecurity
from ottla.cluster.node.quorum_settings import quorum_settings
from ottla.cluster.node.schedulers import FlushThreads, Schedulers
from ottla.cluster.node.waiting import finished
from ottla.cluster.quorum.transport import ChannelTransport
from ottla.controller import ControllerSettings
from ottla.log.storage import DirectoryLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.common.clock import Clock
    from ottla.common.errors import KafkaError
    from ottla.config import BrokerConfig, Listener
    from ottla.log import Files
    from ottla.raft import QuorumConfig

RESIGN_WITHIN_S = 3.0
CLOSE_WITHIN_S = 1.0


class NodeMetadata:
    """Open it once with `open`; `close` may be called at any time."""

    def __init__(self, config: BrokerConfig, clock: Clock, files: Files) -> None:
        self._config = config
        self._clock = clock
        self._files = files
        # Here a start with wrong settings fails before it changes files.
        self._connections = PeerSecurity(config).controllers
        # For a directory that has the metadata log alone; the log manager locks the others.
        self._lock = DirectoryLock(config.metadata_log_dir)
        # The metadata log must not wait for the flushes of a thousand logs: one thread syncs it, one writes snapshots.
        self.threads = FlushThreads(asyncio.get_running_loop(), 2)
        self._transport: ChannelTransport | None = None
        self.quorum: QuorumConfig | None = None
        """The quorum with other nodes, if there are any."""
        self.shell: MetadataShell | None = None

    def claim(self) -> bool:
        """Lock the directory of the metadata log, unless it is a log directory; whether it was locked here."""
        config = self._config
        if config.metadata_log_dir in config.log_dirs:
            return False
        self._files.make_directory(config.metadata_log_dir)
        self._lock.acquire()
        return True

    def unlock(self) -> None:
        """Release the lock of `claim`."""
        self._lock.release()

    def open(
        self,
        node: NodeIdentity,
        controllers: Sequence[Listener],
        schedulers: Schedulers,
        on_failure: Callable[[KafkaError], None],
    ) -> MetadataShell:
        """Load the metadata and enter the quorum."""
        config = self._config
        self.quorum = quorum_settings(config, node, controllers)
        if self.quorum is not None:
            self._transport = ChannelTransport(config.node_id, self._connections)
        self.shell = MetadataShell.open(
            config.metadata_log_dir,
            node,
            BrokerConfigRules(config),
            self._clock,
            MetadataOptions(
                settings=MetadataLogSettings.from_config(config),
                controller_settings=ControllerSettings.from_config(config),
                files=self._files,
                run_in_thread=self.threads.run,
                on_failure=on_failure,
                quorum=self.quorum,
                transport=self._transport,
                call_later=schedulers.call_later,
                worker=schedulers.worker,
            ),
        )
        return self.shell

    async def resign(self) -> None:
        """Let another voter lead the quorum, if there is one. Bounded."""
        if self.quorum is not None and self.shell is not None:
            await finished(self.shell.quorum.shut_down(), RESIGN_WITHIN_S)

    async def close(self) -> None:
        """Close the log, and the connections to the other nodes of the quorum."""
        self.threads.close()
        if self.shell is not None:
            self.shell.close()
        if self._transport is not None:
            await self._transport.aclose(CLOSE_WITHIN_S)
