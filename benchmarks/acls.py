"""The cost of the authorizer: decisions with many rules and users, and changes of rules.

    python -m benchmarks.acls

10,000 rules of 1,000 users: literal topics, prefixes of 100 teams, and groups; every 17th rule denies. The worst case
has a rule for each prefix of a name of 249 characters. It takes two seconds.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.security.acl import Acl, Operation, Pattern, PatternType, PermissionType, ResourceType
from ottla.security.authorizer import Rules, StandardAuthorizer

RULES, USERS, TEAMS = 10_000, 1_000, 100
HOST = "10.0.0.7"
# A decision that is remembered, and one that is not, in microseconds.
CACHED_AIM, NEW_AIM = 2.0, 50.0

T = TypeVar("T")


def main() -> int:
    """Print the figures; exit code 1 if a decision takes longer than it may."""
    chance = random.Random(1)
    users = [f"User:user{number}" for number in range(USERS)]
    rules = [_rule(number, users, chance) for number in range(RULES)]
    authorizer = StandardAuthorizer(Rules(frozenset({"User:admin"})))
    authorizer.finish_loading()
    figures = {"add a rule": _each_us(rules, authorizer.add)}
    operations = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
    questions = [
        (
            chance.choice(users),
            HOST,
            chance.choice(operations),
            ResourceType.TOPIC,
            f"team{chance.randrange(TEAMS)}.topic{chance.randrange(RULES)}",
        )
        for _ in range(20_000)
    ]
    figures["new decision"] = _each_us(questions, lambda each: authorizer.authorize(*each))
    figures["cached decision"] = _each_us(questions, lambda each: authorizer.authorize(*each))
    kind = (Operation.WRITE, ResourceType.TOPIC)
    figures["new decision by type"] = _each_us(
        users, lambda each: authorizer.authorize_by_resource_type(each, HOST, *kind)
    )

    def move(rule: Acl) -> None:
        authorizer.remove(rule)
        authorizer.add(rule)

    figures["remove a rule and add it"] = _each_us(rules[:1000], move)
    name = "x" * 249
    for length in range(1, 250):
        prefix = Pattern(ResourceType.TOPIC, name[:length], PatternType.PREFIXED)
        authorizer.add(Acl(prefix, users[0], "*", Operation.READ, PermissionType.ALLOW))
    worst = [(user, HOST, Operation.READ, ResourceType.TOPIC, name) for user in users]
    figures["new decision with 249 prefixes"] = _each_us(worst, lambda each: authorizer.authorize(*each))
    for what, figure in figures.items():
        print(f"{what:32} {figure:8.2f} us")
    return int(figures["cached decision"] > CACHED_AIM or figures["new decision"] > NEW_AIM)


def _rule(number: int, users: list[str], chance: random.Random) -> Acl:
    team, kind = f"team{number % TEAMS}", number // USERS
    if kind < 5:
        pattern = Pattern(ResourceType.TOPIC, f"{team}.topic{number}")
    elif kind < 8:
        pattern = Pattern(ResourceType.TOPIC, f"{team}." + "x" * (number % 20), PatternType.PREFIXED)
    else:
        pattern = Pattern(ResourceType.GROUP, team, PatternType.PREFIXED)
    operation = chance.choice((Operation.READ, Operation.WRITE, Operation.ALL))
    permission = PermissionType.ALLOW if number % 17 else PermissionType.DENY
    return Acl(pattern, users[number % USERS], "*", operation, permission)


def _each_us(items: Sequence[T], call: Callable[[T], object]) -> float:
    begun = time.perf_counter()
    for item in items:
        call(item)
    return (time.perf_counter() - begun) / len(items) * 1e6


if __name__ == "__main__":
    sys.exit(main())
