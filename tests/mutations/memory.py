"""Rows of the table of mutations for memory that is freed at once, and not only by a garbage collection."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

ALLOCATOR = "tests/unit/common/test_allocator.py"
GARBAGE = "tests/unit/clients/test_garbage.py"

ROWS: tuple[Row, ...] = (
    (
        "memory: a refused connection is freed at once, with its buffer",
        "network/client.py",
        "            raise connect_error(\n",
        "            cause = error\n            raise connect_error(\n",
        (f"{GARBAGE}::test_refused_connections_leave_no_garbage",),
    ),
    (
        "memory: a failed attempt to connect is freed at once, with the frames of its traceback",
        "clients/network.py",
        "            del task\n\n    def _connect_ended",
        "            pass\n\n    def _connect_ended",
        (f"{GARBAGE}::test_refused_connections_leave_no_garbage",),
    ),
    (
        "memory: a lost connection is freed at once, with its buffer",
        "network/connection_end.py",
        "        callbacks, self.callbacks = self.callbacks, []\n",
        "        callbacks = self.callbacks\n",
        (f"{GARBAGE}::test_lost_and_closed_connections_leave_no_garbage",),
    ),
    (
        "memory: a closed consumer or admin client is freed at once, with its event loop",
        "clients/network.py",
        "        self.telemetry = None  # it refers to the client and to this object\n",
        "",
        ("tests/clients/test_freed_clients.py::test_closed_consumers_and_admin_clients_leave_no_garbage[ottla]",),
    ),
    (
        "memory: the failures of a repeated query are freed at once",
        "clients/consumer/queries.py",
        "        del last\n",
        "        pass\n",
        (f"{GARBAGE}::test_repeated_query_leaves_no_garbage",),
    ),
    (
        "memory: a failed completion is freed at once, with the frames of its callbacks",
        "common/completion.py",
        "        if isinstance(self.error, ExpectedError):\n",
        "        if False:\n",
        (
            "tests/unit/common/test_completion.py::test_failed_completions_are_freed_without_a_garbage_collection",
            "tests/unit/network/test_node_channel.py::test_refused_requests_leave_no_garbage",
        ),
    ),
    (
        "memory: a lost connection of a client is freed at once, with its reader and its transport",
        "network/connection.py",
        "        self._transport = None  # it refers to this object\n",
        "",
        ("tests/unit/network/test_server.py::test_lost_connections_leave_no_garbage",),
    ),
    (
        "memory: a lost connection of a client does not stay because of its reader",
        "network/frame_reader.py",
        "        del self._owner\n",
        "",
        ("tests/unit/network/test_server.py::test_lost_connections_leave_no_garbage",),
    ),
    (
        "memory: the timers of members that have left do not stay until their time",
        "coordinators/timers.py",
        "        if len(self._heap) > max(_REBUILT_FROM, _MOST_ENTRIES * len(self._deadlines)):\n",
        "        if False:\n",
        ("tests/unit/coordinators/test_timers.py::test_cancelled_timers_do_not_stay_until_their_time",),
    ),
    (
        "memory: a probe imports no settings of other clients",
        "tools/client_kinds.py",
        "from ottla.tools import late\n",
        "from ottla.clients.producer import settings\nfrom ottla.tools import late\n",
        ("tests/unit/cli/test_health.py::test_probe_of_life_imports_no_admin_client",),
    ),
    (
        "memory: an error that each poll raises does not grow by the frames of each",
        "clients/consumer/delivery.py",
        "                raise state.lookup.error.with_traceback(None)\n",
        "                raise state.lookup.error\n",
        ("tests/unit/clients/test_consumer_core.py::test_error_that_each_poll_raises_does_not_grow",),
    ),
    (
        "memory: the threads of a Connect worker share one arena of the allocator",
        "common/allocator.py",
        "    return set_options({ARENA_MAX: 1})\n",
        "    return True\n",
        (f"{ALLOCATOR}::test_threads_of_a_server_share_one_arena_unless_the_user_sets_another_number",),
    ),
    (
        "memory: a Connect worker imports the HTTP client when it sends the first request to another worker",
        "connect/peers.py",
        "from ottla.connect import late\n",
        "import httpx as late\n",
        (
            "tests/unit/connect/test_worker_imports.py::test_worker_does_not_import_packages_that_only_some_workers_need",
        ),
    ),
)
