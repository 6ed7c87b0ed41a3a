"""kill -9 while access control lists change: each change that was answered is in force after the restart."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

from ottla.clients import Admin
from ottla.clients.admin import Acl, AclFilter, AclOperation, AclResource
from ottla.clients.errors import ClientError
from ottla.config.authorization import STANDARD
from tests.ottla_process import ForkedOttla

SETTINGS = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
ROUNDS = 3


def test_answered_changes_of_rules_survive_kill_9(tmp_path: Path) -> None:
    random = Random(7)
    known: set[Acl] = set()
    with ForkedOttla(tmp_path, SETTINGS) as broker:
        for round_number in range(ROUNDS):
            unknown: set[Acl] = set()
            timer = threading.Timer(random.uniform(0.1, 0.5), broker.kill)
            timer.start()
            count = 0
            try:
                with Admin(broker.bootstrap, default_api_timeout_ms=3_000) as admin:
                    while broker.is_running:
                        count += 1
                        removes = known and random.random() < 0.4
                        name = f"t{round_number}.{count}"
                        rule = random.choice(sorted(known, key=str)) if removes else _rule(name)
                        unknown = {rule}
                        if removes:
                            admin.delete_acls([AclFilter.exactly(rule)])
                            known.discard(rule)
                        else:
                            admin.create_acls([rule])
                            known.add(rule)
                        unknown = set()
            except ClientError:
                pass  # the change was not answered
            timer.join(10.0)
            assert count > 1
            broker.start()
            with Admin(broker.bootstrap) as admin:
                found = set(admin.describe_acls())
            assert found ^ known <= unknown
            known = found
    broker.assert_no_traceback()


def _rule(name: str) -> Acl:
    return Acl(AclResource.topic(name), "User:alice", AclOperation.READ)
