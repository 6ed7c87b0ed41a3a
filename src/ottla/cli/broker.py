"""Drain, replace and remove brokers of a cluster."""

from __future__ import annotations

from ottla.cli.commands import Argument, Group, Options, yes_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.moving import move, moving_options
from ottla.cli.names import confirm
from ottla.cli.output import Output, output_options
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.tools.admin import placement
from ottla.tools.admin.replicas import replicas_of, targets_of

COMMAND = Group(
    __doc__,
    """
    ottla broker drain 3
    ottla broker replace 3 4 --throttle 50MiB
    ottla broker remove 3
    """,
    shared=[*output_options(), *connection_options()],
)


@COMMAND.verb(
    "drain",
    Argument("brokers", "BROKER", nargs=-1, required=True, type=int, help="node ids"),
    *moving_options(),
    examples="""
    ottla broker drain 3 --dry-run
    ottla broker drain 3 --throttle 50MiB --yes
    """,
)
def _drain(options: Options) -> None:
    """Move all replicas away from brokers, to those with the fewest replicas. Clients notice nothing but moved
    leaders. Afterwards the brokers can be stopped, and `ottla broker remove` lets the cluster forget them.
    """
    admin, leaving = connect(options), set(options.brokers)
    _check_known(admin, leaving)
    before = replicas_of(admin)
    moves = placement.drained(before, leaving, targets_of(admin))
    names = ", ".join(map(str, sorted(leaving)))
    question = f"Move {units.plural(len(moves), 'partition')} away from broker {names}?"
    if move(admin, options, question, moves, before):
        Output(options).note(f"Broker {names} has no replicas. Stop it, then: ottla broker remove {min(leaving)}")


@COMMAND.verb(
    "replace",
    Argument("old", "OLD", type=int, help="the node id of the broker that leaves"),
    Argument("new", "NEW", type=int, help="the node id of the broker that takes its place"),
    *moving_options(),
    examples="""
    ottla broker replace 3 4
    ottla broker replace 3 4 --throttle 50MiB --yes
    """,
)
def _replace(options: Options) -> None:
    """Put a new broker where another one is: it gets exactly the replicas of the old broker, which may be down."""
    admin = connect(options)
    _check_known(admin, {options.old, options.new})
    if options.new not in {target.node_id for target in targets_of(admin)}:
        raise Failure(f"broker {options.new} is not up", "Start it first: replicas can only move to a running broker.")
    before = replicas_of(admin)
    moves = placement.replaced(before, options.old, options.new)
    question = f"Move {units.plural(len(moves), 'partition')} from broker {options.old} to broker {options.new}?"
    if move(admin, options, question, moves, before):
        note = f"Broker {options.old} has no replicas. Stop it, then: ottla broker remove {options.old}"
        Output(options).note(note)


@COMMAND.verb(
    "remove",
    Argument("broker", "BROKER", type=int, help="the node id of a broker that is down"),
    yes_option(),
    examples="ottla broker remove 3",
)
def _remove(options: Options) -> None:
    """Let the cluster forget a broker that is down and has no replicas."""
    admin, broker = connect(options), options.broker
    _check_known(admin, {broker})
    if broker in {target.node_id for target in targets_of(admin)}:
        raise Failure(f"broker {broker} is up", "Stop it first: a running broker registers again.")
    replicas = sum(broker in nodes for nodes in replicas_of(admin).values())
    if replicas:
        raise Failure(
            f"broker {broker} has {units.plural(replicas, 'replica')}",
            f"`ottla broker drain {broker}` moves them, also while it is down.",
        )
    confirm(f"Remove broker {broker}?", "nothing was removed", "--yes removes without asking.", yes=options.yes)
    admin.unregister_broker(broker)
    Output(options).changed(f"broker {broker}: removed", {"broker": broker, "removed": True})


def _check_known(admin: api.Admin, wanted: set[int]) -> None:
    known = {broker.node_id for broker in admin.describe_cluster(include_fenced=True).brokers}
    if missing := wanted - known:
        ids = ", ".join(map(str, sorted(known)))
        raise Failure(f"there is no broker {min(missing)}", f"There are: {ids}. `ottla cluster` shows them.")
