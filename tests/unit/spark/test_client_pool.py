"""Clients that are kept: an end that goes wrong hides nothing and leaves no other client open."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.clients.errors import RequestTimedOut
from ottla.spark.client_pool import Kept


class Stubborn:
    """A client whose brokers do not answer when it is closed."""

    made: list[Stubborn]

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.settings = settings
        self.is_closed = False
        self.made.append(self)

    def close(self) -> None:
        self.is_closed = True
        raise RequestTimedOut("Not done within 3 s")


@pytest.fixture(autouse=True)
def _none_made() -> None:
    Stubborn.made = []


def test_the_error_of_a_task_is_not_hidden_by_one_while_its_client_is_closed() -> None:
    kept = Kept(Stubborn)
    with pytest.raises(ZeroDivisionError), kept.client({"a": 1}):
        _ = 1 / 0
    assert [client.is_closed for client in Stubborn.made] == [True]


def test_all_idle_clients_are_closed_though_the_first_fails_to() -> None:
    kept = Kept(Stubborn)
    for number in range(3):
        with kept.client({"a": number}):
            pass
    kept.close()
    assert [client.is_closed for client in Stubborn.made] == [True] * 3


def test_a_client_of_the_same_settings_is_used_again_and_one_that_is_in_use_is_not_shared() -> None:
    kept = Kept(Stubborn)
    with kept.client({"a": 1}) as first, kept.client({"a": 1}) as second:
        assert first is not second
    with kept.client({"a": 1}) as third:
        assert third in (first, second)
    kept.close()
