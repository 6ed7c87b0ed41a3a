"""Rules of rights by subject."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ottla.common.failure import Failure
from ottla.registry.rights import CONFIG, Operation, Rights, parse_rules, subject_resource

RULES = {
    "users": [{"username": "ann", "algorithm": "sha512", "salt": "", "password_hash": ""}],
    "permissions": [
        {"username": "ann", "operation": "Write", "resource": "Subject:orders-.*"},
        {"username": "bob", "operation": "Read", "resource": ".*"},
    ],
}
READ, WRITE = Operation.READ, Operation.WRITE
ORDERS, PAYMENTS = subject_resource("orders-value"), subject_resource("payments-value")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(RULES))
    return path


def test_write_includes_read_and_rules_match_the_beginning(path: Path) -> None:
    rights = Rights(str(path))
    assert rights.allows("User:ann", WRITE, ORDERS)
    assert rights.allows("User:ann", READ, ORDERS)
    assert not rights.allows("User:ann", READ, PAYMENTS)
    assert not rights.allows("User:ann", READ, CONFIG)
    assert rights.allows("User:bob", READ, CONFIG)
    assert not rights.allows("User:bob", WRITE, ORDERS)
    assert not rights.allows("User:eve", READ, ORDERS)


def test_super_users_and_a_registry_without_rules_have_no_limit(path: Path) -> None:
    assert Rights(str(path), ["User:eve"]).allows("User:eve", WRITE, CONFIG)
    assert Rights(None).allows("User:eve", WRITE, CONFIG)


def test_changed_file_is_read_again_and_a_broken_one_is_ignored(path: Path) -> None:
    now_s = 0.0
    rights = Rights(str(path), now_s=lambda: now_s)
    for text, is_allowed in ((json.dumps({"permissions": []}), False), ("{", False), (json.dumps(RULES), True)):
        path.write_text(text)
        os.utime(path, ns=(0, int(now_s) + 1))
        now_s += 2
        assert rights.allows("User:ann", WRITE, ORDERS) == is_allowed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "permissions"),
        ('{"permissions": [{"username": "a"}]}', "permission 0 needs"),
        ('{"permissions": [{"username": "a", "operation": "All", "resource": "x"}]}', "Read or Write"),
        ('{"permissions": [{"username": "a", "operation": "Read", "resource": "("}]}', "permission 0 has the resource"),
    ],
)
def test_wrong_rules_are_named(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_rules(text)


def test_missing_file_prevents_the_start(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot be used"):
        Rights(str(tmp_path / "absent"))
