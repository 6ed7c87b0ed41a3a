"""Injected faults, and the requests that they hit.

A fault lasts until the end of its test or `with` block, or until `lift()`. A fault that hit no request is reported,
since its test did not test what it claims.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Protocol, Self

from ottla.common.errors import ErrorCode
from ottla.testing.arguments import checked
from ottla.testing.base import BrokerError
from ottla.testing.rules import TOPIC_APIS, Hit, Kind, Rule, checked_apis, checked_error
from ottla.testing.waiting import WAIT_S, wait_until

__tracebackhide__ = True
LEADER_APIS = ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch")
_numbers = count(1)


class Asked(Protocol):
    """The operations of a broker that faults use."""

    def call(self, name: str, /, *arguments: object) -> object:
        """Call a method of its `Control`."""
        ...

    def pause(self) -> None:
        """Stop the broker like SIGSTOP."""
        ...

    def resume(self) -> None:
        """Continue after `pause`."""
        ...


@checked
class Fault:
    """One injected fault; as a context manager, it is lifted at the end of the block."""

    def __init__(self, what: str, *, may_miss: bool = False, now: list[Hit] | None = None) -> None:
        self._what = what
        self._now = now or []
        self.may_miss = may_miss

    @property
    def hits(self) -> list[Hit]:
        """The first hundred hits."""
        return self._now

    @property
    def count(self) -> int:
        """The number of hits."""
        return len(self._now)

    def lift(self) -> None:
        """End the fault."""

    def wait(self, times: int = 1, timeout_s: float = WAIT_S) -> None:
        """Wait for that many hits. Raises NotInTime."""
        wait_until(lambda: self.count >= times, timeout_s, what=f"{self} to hit {times} times; it hit {self.count}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lift()

    def __str__(self) -> str:
        return self._what

    def report(self) -> str:
        """The fault and its hits, for the failure report."""
        hits = self.hits
        if self._now:
            return f"{self}: at +{hits[0].after_s:.3f} s, {hits[0].about}" + (
                f" ({len(hits)})" if len(hits) > 1 else ""
            )
        lines = [f"{self}: hit {self.count} times" if self.count else f"{self}: hit NOTHING"]
        lines += [f"    {hit}" for hit in hits]
        return "\n".join(lines)


class RuleFault(Fault):
    """A fault that applies a rule to requests."""

    def __init__(self, broker: Asked, rule: Rule, *, may_miss: bool) -> None:
        super().__init__(str(rule), may_miss=may_miss)
        self._broker = broker
        self._number = next(_numbers)
        self._last = rule
        self._lifted = False
        broker.call("add_rule", self._number, rule)

    def _look(self) -> Rule:
        if not self._lifted:
            try:
                rule = self._broker.call("rule", self._number)
            except BrokerError:
                return self._last  # paused: the last known state
            if isinstance(rule, Rule):
                self._last = rule
        return self._last

    @property
    def hits(self) -> list[Hit]:
        """The first hundred hits."""
        return self._look().hits

    @property
    def count(self) -> int:
        """The number of hits."""
        return self._look().count

    def lift(self) -> None:
        """End the fault."""
        if self._lifted:
            return
        rule = self._broker.call("remove_rule", self._number)
        self._lifted = True
        if isinstance(rule, Rule):
            self._last = rule


class PauseFault(Fault):
    """A stopped broker."""

    def __init__(self, broker: Asked, began: Callable[[str], list[Hit]]) -> None:
        broker.pause()
        super().__init__("pause()", now=began("the broker stands still"))
        self._broker = broker

    def lift(self) -> None:
        """Continue the broker."""
        self._broker.resume()


@checked
class Faults:
    """Injects faults. APIs and errors have Kafka's names; case and underscores in API names do not matter.

    `times` limits the number of requests (None: no limit), `client_id` the clients, `topic` and `partition` the part of
    a request. `may_miss=True` allows a fault without hits.
    """

    def __init__(self, broker: Asked) -> None:
        self._broker = broker
        self.injected: list[Fault] = []
        """All faults of this test, in their order."""
        self._began_s = time.monotonic()

    def _inject(self, rule: Rule, *, may_miss: bool) -> Fault:
        if (rule.topic is not None or rule.partition is not None) and rule.kind is not Kind.CORRUPT:
            blind = [api for api in rule.apis if api not in TOPIC_APIS]
            if blind or not rule.apis:
                raise ValueError(f"{', '.join(blind) or 'Some requests'}: such a request names no topic or partition")
        if rule.times is not None and rule.times < 1:
            raise ValueError(f"times={rule.times}: at least 1, or None for all")
        fault = RuleFault(self._broker, rule, may_miss=may_miss)
        self.injected.append(fault)
        return fault

    def _now(self, about: str) -> list[Hit]:
        return [Hit(time.monotonic() - self._began_s, "at once", None, about)]

    def _done(self, what: str, about: list[str], *, may_miss: bool = False) -> Fault:
        fault = Fault(what, may_miss=may_miss, now=[hit for each in about for hit in self._now(each)])
        self.injected.append(fault)
        return fault

    # -- requests ------------------------------------------------------------------------------------------------

    def fail(
        self,
        api: str | tuple[str, ...],
        error: str | int | ErrorCode,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        may_miss: bool = False,
    ) -> Fault:
        """Return Kafka's error for these requests, in the field where the API has it; they take no effect.

        With `topic` and `partition` only that part fails: the other partitions of the same request are served.
        """
        rule = Rule(
            Kind.FAIL, checked_apis(api), times, topic, partition, client_id=client_id, error=checked_error(error)
        )
        return self._inject(rule, may_miss=may_miss)

    def delay(
        self,
        api: str | tuple[str, ...],
        seconds: float,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        may_miss: bool = False,
    ) -> Fault:
        """Handle these requests after `seconds`; later requests of the connection wait, too."""
        rule = Rule(Kind.DELAY, checked_apis(api), times, topic, partition, client_id=client_id, seconds=seconds)
        return self._inject(rule, may_miss=may_miss)

    def swallow(
        self,
        api: str | tuple[str, ...],
        *,
        times: int | None = 1,
        close: bool = True,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        may_miss: bool = False,
    ) -> Fault:
        """Execute these requests, but lose their responses: close the connection, or stay silent with `close=False`.

        The client cannot know whether the request took effect. A producer that retries without idempotence creates a
        duplicate.
        """
        rule = Rule(Kind.SWALLOW, checked_apis(api), times, topic, partition, client_id=client_id, close=close)
        return self._inject(rule, may_miss=may_miss)

    def disconnect(
        self,
        api: str | tuple[str, ...] = (),
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        may_miss: bool = False,
    ) -> Fault:
        """Close the connection of such a request (default: any request), which takes no effect."""
        rule = Rule(Kind.DISCONNECT, checked_apis(api), times, topic, partition, client_id=client_id)
        return self._inject(rule, may_miss=may_miss)

    def drop_connections(self, client_id: str | None = None, *, may_miss: bool = False) -> Fault:
        """Close all connections now, or one client's. Without connections it has no hits."""
        dropped = self._broker.call("drop_connections", client_id)
        whose = f"client_id={client_id!r}" if client_id is not None else ""
        assert isinstance(dropped, int)
        return self._done(f"drop_connections({whose})", ["a connection"] * dropped, may_miss=may_miss)

    def move_leader(self, topic: str, partition: int | None = None, *, times: int | None = 1) -> Fault:
        """Return NOT_LEADER_OR_FOLLOWER for that many requests, as if the leader had moved."""
        return self.fail(LEADER_APIS, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=times, topic=topic, partition=partition)

    def corrupt(
        self,
        topic: str,
        partition: int = 0,
        offset: int | None = None,
        *,
        times: int | None = None,
        on_disk: bool = False,
        may_miss: bool = False,
    ) -> Fault:
        """Change a byte of the batch with `offset` (default: the first one requested) in fetch responses.

        The default applies to every fetch; with `times=1` a second fetch returns the correct batch. `on_disk` changes
        the broker's file permanently.
        """
        if on_disk:
            base = self._broker.call("corrupt_on_disk", topic, partition, offset)
            return self._done(f"corrupt({topic!r}, {partition}, on_disk=True)", [f"the batch at offset {base}"])
        rule = Rule(Kind.CORRUPT, ("Fetch",), times, topic, partition, offset)
        return self._inject(rule, may_miss=may_miss)

    # -- groups and the whole broker -----------------------------------------------------------------------------

    def rebalance(self, group: str) -> Fault:
        """Make all members of a group rejoin. Raises ValueError if the group has no members."""
        code = self._broker.call("rebalance", group)
        if code:
            raise ValueError(f"The group {group!r} has no members to rebalance")
        return self._done(f"rebalance({group!r})", [f"the group {group!r}"])

    def pause(self) -> Fault:
        """Stop the broker like SIGSTOP, until `lift()` or the end of the block."""
        fault = PauseFault(self._broker, self._now)
        self.injected.append(fault)
        return fault

    def noted(self, what: str) -> None:
        """Add a restart, a kill or a clock change to the report."""
        self._done(what, ["the broker"])

    # -- the end of a test ---------------------------------------------------------------------------------------

    def end(self) -> None:
        """Lift all faults."""
        for fault in self.injected:
            fault.lift()

    def missed(self) -> list[Fault]:
        """Faults without hits, except those with `may_miss`."""
        return [fault for fault in self.injected if not fault.may_miss and not fault.count]

    def report(self) -> str:
        """All faults, for the failure report; empty if there are none."""
        return "\n".join(fault.report() for fault in self.injected)
