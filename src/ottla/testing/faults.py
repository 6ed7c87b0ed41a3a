"""Injected faults: what a test lets go wrong, and what it hit.

Each fault lasts until its test ends, or its `with` block, or `lift()`. One that hits nothing is reported: a test that
believes it saw a fault and did not is worse than none.
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
    """What is needed of a broker here."""

    def call(self, name: str, /, *arguments: object) -> object:
        """Ask its `Control`."""
        ...

    def pause(self) -> None:
        """Let it stand still."""
        ...

    def resume(self) -> None:
        """Let it go on."""
        ...


@checked
class Fault:
    """One injected fault; a context manager that lifts it at its end."""

    def __init__(self, what: str, *, may_miss: bool = False, now: list[Hit] | None = None) -> None:
        self._what = what
        self._now = now or []
        self.may_miss = may_miss

    @property
    def hits(self) -> list[Hit]:
        """What it has hit so far, the first hundred."""
        return self._now

    @property
    def count(self) -> int:
        """How often it has hit."""
        return len(self._now)

    def lift(self) -> None:
        """No more of it."""

    def wait(self, times: int = 1, timeout_s: float = WAIT_S) -> None:
        """Wait until it has hit that often; fails with NotInTime."""
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
        """For the failure report: what was injected and what it hit."""
        hits = self.hits
        if self._now:
            return f"{self}: at +{hits[0].after_s:.3f} s, {hits[0].about}" + (
                f" ({len(hits)})" if len(hits) > 1 else ""
            )
        lines = [f"{self}: hit {self.count} times" if self.count else f"{self}: hit NOTHING"]
        lines += [f"    {hit}" for hit in hits]
        return "\n".join(lines)


class RuleFault(Fault):
    """A fault that waits in the broker for requests."""

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
                return self._last  # paused: as it was when it was last looked at
            if isinstance(rule, Rule):
                self._last = rule
        return self._last

    @property
    def hits(self) -> list[Hit]:
        """What it has hit so far, the first hundred."""
        return self._look().hits

    @property
    def count(self) -> int:
        """How often it has hit."""
        return self._look().count

    def lift(self) -> None:
        """No more of it."""
        if self._lifted:
            return
        rule = self._broker.call("remove_rule", self._number)
        self._lifted = True
        if isinstance(rule, Rule):
            self._last = rule


class PauseFault(Fault):
    """A broker that stands still."""

    def __init__(self, broker: Asked, began: Callable[[str], list[Hit]]) -> None:
        broker.pause()
        super().__init__("pause()", now=began("the broker stands still"))
        self._broker = broker

    def lift(self) -> None:
        """It goes on."""
        self._broker.resume()


@checked
class Faults:
    """What can go wrong. Names of APIs and errors are Kafka's; case and underscores in API names do not matter.

    `times` is how many requests it hits (None: all, as long as it lasts), `client_id` whose, `topic` and `partition`
    which part of them. `may_miss=True` says that it is well if it hits nothing.
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
        """Answer these requests with Kafka's error, where that API's answers have it; nothing of them takes effect.

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
        """Handle these requests only after `seconds`; what the connection sends behind them waits as well."""
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
        """These requests take effect, and their answer is lost: the connection dies, or (`close=False`) stays silent.

        A client cannot know whether it was heard: who sends a produce again without idempotence doubles it.
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
        """Close the connection that such a request (default: any) comes in on; it takes no effect."""
        rule = Rule(Kind.DISCONNECT, checked_apis(api), times, topic, partition, client_id=client_id)
        return self._inject(rule, may_miss=may_miss)

    def drop_connections(self, client_id: str | None = None, *, may_miss: bool = False) -> Fault:
        """Close all connections now, or those of one client. It hits nothing if there are none."""
        dropped = self._broker.call("drop_connections", client_id)
        whose = f"client_id={client_id!r}" if client_id is not None else ""
        assert isinstance(dropped, int)
        return self._done(f"drop_connections({whose})", ["a connection"] * dropped, may_miss=may_miss)

    def move_leader(self, topic: str, partition: int | None = None, *, times: int | None = 1) -> Fault:
        """For that many requests the leader seems to be elsewhere: NOT_LEADER_OR_FOLLOWER, until they look again."""
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
        """Change a byte of the batch that holds `offset` (default: the first one asked for) on its way to consumers.

        As often as it is fetched, unless `times` says otherwise: with 1 a consumer that asks again gets it whole.
        `on_disk` changes it in the broker's file, and for good.
        """
        if on_disk:
            base = self._broker.call("corrupt_on_disk", topic, partition, offset)
            return self._done(f"corrupt({topic!r}, {partition}, on_disk=True)", [f"the batch at offset {base}"])
        rule = Rule(Kind.CORRUPT, ("Fetch",), times, topic, partition, offset)
        return self._inject(rule, may_miss=may_miss)

    # -- groups and the whole broker -----------------------------------------------------------------------------

    def rebalance(self, group: str) -> Fault:
        """Have all members of a group join again, now. Raises ValueError if it has none."""
        code = self._broker.call("rebalance", group)
        if code:
            raise ValueError(f"The group {group!r} has no members to rebalance")
        return self._done(f"rebalance({group!r})", [f"the group {group!r}"])

    def pause(self) -> Fault:
        """Let the broker stand still, as SIGSTOP would; `lift()`, or the end of the block, lets it go on."""
        fault = PauseFault(self._broker, self._now)
        self.injected.append(fault)
        return fault

    def noted(self, what: str) -> None:
        """Have a restart, a kill or a moved clock in the report."""
        self._done(what, ["the broker"])

    # -- the end of a test ---------------------------------------------------------------------------------------

    def end(self) -> None:
        """Lift all of them."""
        for fault in self.injected:
            fault.lift()

    def missed(self) -> list[Fault]:
        """Those that hit nothing and should have."""
        return [fault for fault in self.injected if not fault.may_miss and not fault.count]

    def report(self) -> str:
        """All of them, for the failure report; empty if there were none."""
        return "\n".join(fault.report() for fault in self.injected)
