"""Compatibility checks of large schemas, in a thread: one can take seconds, and lookups must not wait for it.

A check of small schemas runs at once. `Comparisons.check` raises NotCompared for a large one, whose result is not known
yet. `Comparisons.complete` runs the caller again after the check in the thread, whose result is then known. So a change
is still built in one event loop iteration. If the versions of the subject change in between, the next check is another
one.

The thread shares the interpreter with the event loop, which waits for it up to five milliseconds at a time
(`sys.getswitchinterval`). A request has a deadline for its checks. A check whose requests have all ended stops before
the next version; the comparison of two schemas is limited by the number of their pairs.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from ottla.registry.errors import busy, operation_timed_out
from ottla.registry.stored import Version
from ottla.schemas.compatibility import Conflict, Level, check
from ottla.schemas.compatibility import Version as Compared
from ottla.schemas.model import ParsedSchema, SchemaType

R = TypeVar("R")

LONGEST_S: Final = 20.0
"""The time that a request may wait for its checks."""
MOST_WAITING: Final = 32
"""The most checks that wait or run at the same time."""
_MOST_KNOWN: Final = 200
# The alternatives of a schema are compared all with all, so the product of the sizes limits the time: each of these
# takes at most about 20 ms on the event loop. Comparisons of Avro and Protobuf follow names.
_LARGE: Final = {SchemaType.JSON: 1 << 20, SchemaType.AVRO: 1 << 26, SchemaType.PROTOBUF: 1 << 26}


class Question(NamedTuple):
    """A check. Equal ones have equal results: versions, digests and `generation` identify all texts and references."""

    level: Level
    context: str
    digest: bytes
    versions: tuple[tuple[int, bytes], ...]
    """The number and the digest of each version, the newest first."""
    generation: int


class NotCompared(Exception):
    """The check must run in the thread first."""

    def __init__(self, question: Question, new: ParsedSchema, newest_first: list[Compared]) -> None:
        super().__init__("the schemas are not compared yet")
        self.question = question
        self.new = new
        self.newest_first = newest_first


class _Abandoned(Exception):
    """No request waits for the check any more."""


class _Running:
    """A check in the thread. `waiters` is the number of the requests that wait for it."""

    __slots__ = ("future", "waiters")

    def __init__(self) -> None:
        self.future: asyncio.Future[Conflict | None]
        self.waiters = 0

    def versions(self, newest_first: Sequence[Compared]) -> Iterator[Compared]:
        """Return the versions as long as a request waits."""
        for each in newest_first:
            if not self.waiters:
                raise _Abandoned
            yield each


class Comparisons:
    """The checks of one registry, and the results of the latest ones in the thread. Belongs to one event loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[Question, Conflict | None] = OrderedDict()
        self._running: dict[Question, _Running] = {}
        self._threads: ThreadPoolExecutor | None = None

    def check(
        self,
        question: Question,
        new: ParsedSchema,
        newest_first: Sequence[Version],
        parse: Callable[[Version], Compared],
    ) -> Conflict | None:
        """Compare a schema with the versions before it. Raises NotCompared, InvalidSchema."""
        if not _is_large(new, newest_first):
            return check(question.level, new, map(parse, newest_first))
        if question in self._known:
            self._known.move_to_end(question)
            return self._known[question]
        raise NotCompared(question, new, [parse(version) for version in newest_first])

    async def complete(self, work: Callable[[], Awaitable[R]]) -> R:
        """Run `work` until all its checks are known, and return its result.

        Raises RegistryError: 50002 after the deadline, 50303 if too many checks wait.
        """
        try:
            async with asyncio.timeout(LONGEST_S) as limit:
                while True:
                    try:
                        return await work()
                    except NotCompared as needed:
                        await self._compare(needed)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise operation_timed_out(f"The compatibility check takes longer than {LONGEST_S:g} s") from error

    def close(self) -> None:
        """End the thread after the comparison that it runs."""
        for running in self._running.values():
            running.waiters = 0
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _compare(self, needed: NotCompared) -> None:
        question = needed.question
        running = self._running.get(question)
        if running is None:
            if len(self._running) >= MOST_WAITING:
                raise busy("Too many compatibility checks of large schemas wait; retry later")
            running = self._running[question] = _Running()
        running.waiters += 1
        if running.waiters == 1:
            self._start(running, needed)
        try:
            await asyncio.shield(running.future)
        finally:
            running.waiters -= 1
            if not running.waiters:
                # It may still wait for the thread: the next request for the same check must start another one.
                self._forget(question, running)

    def _start(self, running: _Running, needed: NotCompared) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "compare schemas")
        arguments: Any = (needed.question.level, needed.new, running.versions(needed.newest_first))
        running.future = asyncio.get_running_loop().run_in_executor(self._threads, check, *arguments)
        running.future.add_done_callback(lambda done: self._done(needed.question, running, done))

    def _done(self, question: Question, running: _Running, done: asyncio.Future[Conflict | None]) -> None:
        self._forget(question, running)
        if done.cancelled() or done.exception() is not None:
            return  # its waiters get the error
        self._known[question] = done.result()
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    def _forget(self, question: Question, running: _Running) -> None:
        if self._running.get(question) is running:
            del self._running[question]


def _is_large(new: ParsedSchema, versions: Sequence[Version]) -> bool:
    size = len(new.canonical)
    return any(size * len(version.schema.text_json) > _LARGE[version.schema.type] for version in versions)
