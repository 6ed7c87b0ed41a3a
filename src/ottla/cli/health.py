"""Check one node, for probes and rolling restarts: is it alive, is it ready, may it stop now?

live   it answers. A node that starts does not answer yet
ready  it is registered, its disks work, and all its replicas are in sync
stop   no partition that it has a replica of becomes unwritable without it, and
       the metadata quorum keeps its majority. Partitions with a single replica
       do not count. No for a node that is neither an unfenced broker nor a voter

The address is the node's own. Exit code 1: it is not so, or not within --wait.
"""

from __future__ import annotations

import asyncio
import os
import time

from ottla.cli.commands import Argument, Choice, Command, Option, Options
from ottla.cli.connect import client_settings, connection_options
from ottla.cli.output import Output, output_options
from ottla.clients import admin as api
from ottla.clients.errors import ClientError
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.health import Health
from ottla.tools import values
from ottla.tools.health import node_of, obstacles, only_broker, read, read_for_stop, readiness

LEVELS = ("live", "ready", "stop")
_PAUSE_S = 1.0
_PARAMETERS = [
    Argument("level", "LEVEL", type=Choice(LEVELS), help="live, ready or stop"),
    Option("--node ID", "the node id; default: $KAFKA_NODE_ID, or the only broker", type=int),
    Option("--wait DURATION", "repeat the check each second until it succeeds, for that long; default: once"),
    Option("--timeout DURATION", "how long the node may take to answer; default: 5s", default="5s"),
    *output_options(),
    *connection_options(),
]
EXAMPLES = """
ottla health live
ottla health ready --json
ottla health stop --node 1 --wait 30s
"""


def run(options: Options) -> int:
    """Print the state, and return the exit code."""
    wait_s = values.milliseconds(options.wait) / 1000 if options.wait else 0.0
    deadline = time.monotonic() + wait_s
    output = Output(options)
    while True:
        state, reasons, node = asyncio.run(_state(options))
        good = state == options.level or (options.level == "live" and state != "silent")
        if good or time.monotonic() + _PAUSE_S > deadline:
            break
        time.sleep(_PAUSE_S)
    if output.json:
        output.object({"node": node, "state": state, "reasons": list(reasons)})
    else:
        output.line(f"node {'?' if node is None else node}: {'; '.join([state.replace('_', ' '), *reasons])}")
    return 0 if good else 1


async def _state(options: Options) -> tuple[str, tuple[str, ...], int | None]:
    """Return the state, its reasons, and the node; the state is `silent` if the node does not answer."""
    timeout_s = values.milliseconds(options.timeout) / 1000
    node = _node(options)
    try:
        if options.level == "live":
            async with asyncio.timeout(timeout_s):
                known = await only_broker(client_settings(options))
            return "live", (), known if node is None else node
        async with asyncio.timeout(timeout_s), api.AsyncAdmin(client_settings(options)) as admin:
            node = await node_of(admin, timeout_s) if node is None else node
            if node is None:
                raise Failure("the cluster has several nodes", "Name the one with --node ID.", exit_code=2)
            facts = await read(admin, node, timeout_s, units.now_ms())
            if options.level == "stop":
                facts = await read_for_stop(admin, facts, timeout_s)
    except TimeoutError:
        return "silent", (f"no answer within {options.timeout}",), node
    except ClientError as error:
        return "silent", (" ".join(str(error).split()),), node
    health: Health = readiness(facts)
    if options.level == "ready":
        return health.state, health.reasons, node
    if found := obstacles(facts):
        return "needed", found, node
    return "stop", (), node


def _node(options: Options) -> int | None:
    """Return the node that the option or the variable of the container names."""
    if options.node is not None:
        return int(options.node)
    named = os.environ.get("KAFKA_NODE_ID", "")
    return int(named) if named.isdecimal() else None


COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
