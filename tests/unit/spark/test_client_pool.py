"""The pool of clients in Spark's workers: reuse, and errors while clients are closed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.clients.errors import RequestTimedOut
from ottla.spark.client_pool import MOST_IDLE, ClientPool


class FailingClose:
    """A client whose `close` fails."""

    made: list[FailingClose]

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.settings = settings
        self.is_closed = False
        self.made.append(self)

    def close(self) -> None:
        self.is_closed = True
        raise RequestTimedOut("No result within 3 s")


@pytest.fixture(autouse=True)
def _no_clients() -> None:
    FailingClose.made = []


def test_error_of_a_task_is_raised_although_closing_its_client_fails() -> None:
    pool = ClientPool(FailingClose)
    with pytest.raises(ZeroDivisionError), pool.client({"a": 1}):
        _ = 1 / 0
    assert [client.is_closed for client in FailingClose.made] == [True]


def test_all_idle_clients_are_closed_although_closing_the_first_fails() -> None:
    pool = ClientPool(FailingClose)
    for number in range(3):
        with pool.client({"a": number}):
            pass
    pool.close()
    assert [client.is_closed for client in FailingClose.made] == [True] * 3


def test_idle_client_with_equal_settings_is_reused_but_a_client_in_use_is_not_shared() -> None:
    pool = ClientPool(FailingClose)
    with pool.client({"a": 1}) as first, pool.client({"a": 1}) as second:
        assert first is not second
    with pool.client({"a": 1}) as third:
        assert third in (first, second)
    pool.close()


def test_oldest_idle_client_is_closed_when_there_are_too_many() -> None:
    pool = ClientPool(FailingClose)
    for number in range(MOST_IDLE + 2):
        with pool.client({"a": number}):
            pass
    assert [client.is_closed for client in FailingClose.made] == [True] * 2 + [False] * MOST_IDLE
    with pool.client({"a": 2}) as client:
        assert client is FailingClose.made[2]
    pool.close()
