"""The report about clients that a test left open: the clients, and how to close them."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.testing.listeners import Unclosed

ANY_CLIENT = "call its close() (aiokafka: await its stop()), in a fixture after the yield or by a with block"
HOW_TO_CLOSE = {
    "confluent-kafka-python": "call close() of the Consumer; flush() a Producer and drop the last reference to it",
    "ottla": "use it in a with block, or call its close()",
    "kafka-python": "call its close()",
    "aiokafka": "await its stop()",
}
ADVICE = (
    "Their connections were closed, and they were removed from their groups. For a client that lives longer than a test"
    " use ottla_session_broker.bootstrap."
)


def describe(unclosed: Iterable[Unclosed]) -> str:
    """Several lines, for the report."""
    lines = ["The test left clients open:"]
    for each in unclosed:
        library = f" ({each.software})" if each.software else ""
        lines.append(f"  client.id {each.client_id!r}{library}: {_state(each)}")
        lines.append(f"    To close it: {HOW_TO_CLOSE.get(each.software, ANY_CLIENT)}")
    return "\n".join([*lines, ADVICE])


def _state(client: Unclosed) -> str:
    groups = ", ".join(repr(name) for name in client.groups)
    member = f"{'member of the groups' if len(client.groups) > 1 else 'member of the group'} {groups}"
    if not client.connections:
        return f"disconnected without leaving; {member}"
    connections = f"{client.connections} connection{'s' if client.connections > 1 else ''}"
    return f"{connections}, {member}" if client.groups else connections
