"""`ottla security quota` on a running broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.clients import Admin
from ottla.clients.admin import QuotaEntity, QuotaName

from .conftest import Run


@pytest.fixture(autouse=True)
def _no_quotas_left(ours: Admin) -> Iterator[None]:
    yield
    ours.alter_client_quotas(
        {entity: dict.fromkeys(limits) for entity, limits in ours.describe_client_quotas().items()}
    )


def test_quotas_are_set_listed_and_removed(ottla: Run, ours: Admin) -> None:
    done = ottla("security", "quota", "set", "--user", "ann", "producer_byte_rate=10MiB", "request_percentage=12.5")
    assert done.code == 0
    assert done.out == ("user ann: producer_byte_rate is 10485760 (10.0 MiB)\nuser ann: request_percentage is 12.5\n")
    assert ottla("security", "quota", "set", "--user=ann", "--client=default", "consumer_byte_rate=1000").code == 0
    assert ours.describe_client_quotas() == {
        QuotaEntity(user="ann"): {"producer_byte_rate": 10 * 1024 * 1024.0, "request_percentage": 12.5},
        QuotaEntity(user="ann", client_id=QuotaName.DEFAULT): {"consumer_byte_rate": 1000.0},
    }
    rows = ottla("security", "quota", "list", "--json").objects
    assert {"user": "ann", "client": "default", "ip": None, "quota": "consumer_byte_rate", "value": 1000.0} in rows
    assert len(rows) == 3
    assert "10.0 MiB" in ottla("security", "quota", "list", "--user", "ann").out
    assert ottla("security", "quota", "remove", "--user", "ann", "--yes").code == 0
    left = QuotaEntity(user="ann", client_id=QuotaName.DEFAULT)
    assert ours.describe_client_quotas() == {left: {"consumer_byte_rate": 1000.0}}
    done = ottla("security", "quota", "remove", "--user", "ann", "--client", "default", "consumer_byte_rate")
    assert done.out == "user ann with client default: consumer_byte_rate is not limited\n"
    assert ours.describe_client_quotas() == {}


def test_dry_run_changes_nothing(ottla: Run, ours: Admin) -> None:
    words = ("--ip", "10.0.0.1", "connection_creation_rate=5")
    assert "would be 5" in ottla("security", "quota", "set", *words, "--dry-run").out
    assert ours.describe_client_quotas() == {}
    assert ottla("security", "quota", "set", *words).code == 0
    assert ottla("security", "quota", "remove", "--ip", "10.0.0.1", "--dry-run").code == 0
    assert ours.describe_client_quotas() == {QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 5.0}}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["set", "producer_byte_rate=5"], 2, "name the entity with --user, --client or --ip"),
        (["set", "--user", "a", "--ip", "1.2.3.4", "producer_byte_rate=5"], 2, "--ip excludes --user and --client"),
        (["set", "--user", "a", "producer_rate=5"], 2, "there is no quota 'producer_rate'"),
        (["set", "--user", "a", "producer_byte_rate=fast"], 2, "must be a number"),
        (["set", "--user", "a", "producer_byte_rate=0"], 1, "Quota producer_byte_rate must be greater than 0"),
        (["set", "--ip", "a b", "connection_creation_rate=1"], 1, "a b is not a valid IP or resolvable host"),
        (["remove", "--user", "nobody-here"], 1, "user nobody-here has no quotas"),
    ],
)
def test_errors_name_what_is_wrong(ottla: Run, words: list[str], code: int, text: str) -> None:
    done = ottla("security", "quota", *words)
    assert done.code == code
    assert text in done.err
