"""Clients without `close`: collected ones warn, finish and disconnect; others end with the program."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path

from ottla.clients import Admin, AsyncConsumer, AsyncProducer, Consumer
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import WAIT_S, unique, wait_until


def sockets() -> set[str]:
    """Return the open sockets of this process by inode. Sockets that close in the meantime do not count."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed after it was listed
            found.add(str(link.readlink()))
    return {name for name in found if name.startswith("socket:")}


def test_dropped_asyncio_clients_finish_on_their_loop(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), unique("g")

    async def story() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            before = sockets()
            producer = AsyncProducer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000)
            delivery = await producer.send(topic, b"kept")
            consumer = AsyncConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
            consumer.subscribe(topic)
            await consumer.poll(0.2)
            del producer, consumer
            gc.collect()
            assert (await asyncio.wait_for(delivery, WAIT_S)).offset == 0
            for _ in range(int(WAIT_S / 0.05)):
                if sockets() <= before:
                    break
                await asyncio.sleep(0.05)
            assert sockets() <= before
        return sorted(str(warning.message) for warning in caught if warning.category is ResourceWarning)

    warned = asyncio.run(asyncio.wait_for(story(), 3 * WAIT_S))
    assert warned == [f"unclosed consumer of group {group}", "unclosed producer with 1 records to send"]
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([(topic, 0)])
        assert [record.value for record in reader.poll(WAIT_S)] == [b"kept"]


def test_dropped_admin_clients_end_their_threads(broker: RunningBroker) -> None:
    before = threading.active_count()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            admin = Admin(broker.bootstrap)
            admin.list_topics()
        del admin
        gc.collect()
    warned = [str(warning.message) for warning in caught]
    assert warned.count("unclosed admin client") == 5
    wait_until(lambda: threading.active_count() == before, "the threads of the dropped admin clients end")


def test_program_without_close_ends_its_threads_first(tmp_path: Path) -> None:
    """Python would end such a thread in the middle of C code, which may be a segmentation fault."""
    program = tmp_path / "program.py"
    program.write_text("""
import atexit, threading
atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))  # runs after the imports' functions
from ottla.clients import Admin, Consumer, Producer
clients = [kind(bootstrap_servers="127.0.0.1:1") for kind in (Admin, Consumer, Producer)]
print(len(threading.enumerate()) > 1)
""")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["True", "['MainThread']"]
