"""Random operations on the API, compared with a small independent model; and the replay of the records.

The model knows versions, ids, deletes, modes, contexts and compatibility of primitive types. After each run, the
records are compacted up to a random offset, applied to an empty state, and must give the same state.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ottla.registry.records import Record
from ottla.registry.state import State
from tests.unit.registry.support import Api, MemoryRegistry

SUBJECTS = ("a", "b", ":.c:a", ":.c:b", ":.d:a")
TYPES = ("int", "long", "float", "double", "string", "bytes", "boolean")
READS = {
    "int": {"int"},
    "long": {"int", "long"},
    "float": {"int", "long", "float"},
    "double": {"int", "long", "float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"string", "bytes"},
    "boolean": {"boolean"},
}
subjects = st.sampled_from(SUBJECTS)
scopes = st.sampled_from((None, ":.c:", ":.__GLOBAL:", *SUBJECTS))


class Refused(Exception):
    """The model's error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Entry(NamedTuple):
    """A version in the model."""

    id: int
    type: str
    deleted: bool


def context_of(subject: str | None) -> str:
    """The context of a subject or of a scope."""
    return subject.split(":")[1] if subject and subject.startswith(":") else "."


def scope_of(context: str) -> str | None:
    """The scope of a context."""
    return None if context == "." else f":{context}:"


class Model:
    """The expected versions, ids, modes and levels."""

    def __init__(self) -> None:
        self.versions: dict[str, dict[int, Entry]] = {}
        self.highest: dict[str, int] = {}
        self.modes: dict[str | None, str] = {}
        self.levels: dict[str | None, str] = {}
        self.contexts: set[str] = set()

    def applies(self, table: dict[str | None, str], subject: str | None, default: str) -> str:
        """The value that applies to a subject."""
        for place in (subject, scope_of(context_of(subject)), ":.__GLOBAL:"):
            if place in table:
                return table[place]
        return default

    def mode(self, subject: str | None) -> str:
        """The mode that applies."""
        return self.applies(self.modes, subject, "READWRITE")

    def is_readonly(self, subject: str | None) -> bool:
        """Whether nothing may change."""
        return self.mode(subject) == "READONLY"

    def ids_of(self, context: str, kind: str) -> set[int]:
        """The ids of a type in a context."""
        mine = (versions for name, versions in self.versions.items() if context_of(name) == context)
        return {entry.id for versions in mine for entry in versions.values() if entry.type == kind}

    def register(self, subject: str, kind: str, given: int | None, version: int | None = None) -> tuple[int, int]:
        """The id and the version. An import may give both."""
        mode = self.mode(subject)
        versions = self.versions.get(subject, {})
        number = max(versions, default=0) + 1
        live = {n: entry for n, entry in versions.items() if not entry.deleted}
        equal = {n: entry for n, entry in live.items() if entry.type == kind}
        lowest = min(self.ids_of(context_of(subject), kind), default=0)
        found = max((n for n, entry in equal.items() if entry.id == lowest), default=max(equal, default=0))
        if found and given in (None, equal[found].id) and version in (None, found):
            return equal[found].id, found
        if mode == "READONLY" or (given is None) == (mode == "IMPORT"):
            raise Refused(42205)
        known = self.ids_of(context_of(subject), kind)
        chosen = min(known) if known and (given is None or min(known) == given) else given
        if mode != "IMPORT":
            self.check(subject, kind, [live[n].type for n in sorted(live)])
        if chosen is None:
            chosen = self.highest.get(context_of(subject), 0) + 1
        others = {
            entry.type
            for name in self.versions
            for entry in self.versions[name].values()
            if entry.id == chosen and context_of(name) == context_of(subject)
        }
        if others - {kind}:
            raise Refused(42205)
        number = version or number
        kept = {n: entry for n, entry in versions.items() if not (entry.deleted and entry.id == chosen and n < number)}
        self.versions[subject] = {**kept, number: Entry(chosen, kind, False)}
        self.highest[context_of(subject)] = max(chosen, self.highest.get(context_of(subject), 0))
        if context_of(subject) != ".":
            self.contexts.add(context_of(subject))
        return chosen, number

    def check(self, subject: str, kind: str, live: list[str]) -> None:
        """Refuse an incompatible type."""
        level = self.level(subject)
        direction, _, reach = level.partition("_")
        for other in live if reach else live[-1:]:
            if direction in ("BACKWARD", "FULL") and other not in READS[kind]:
                raise Refused(40901)
            if direction in ("FORWARD", "FULL") and kind not in READS[other]:
                raise Refused(40901)

    def level(self, subject: str) -> str:
        """The compatibility level that applies."""
        return self.applies(self.levels, subject, "BACKWARD")

    def delete_version(self, subject: str, number: int, permanent: bool) -> int:
        """The deleted version."""
        versions = self.versions.get(subject, {})
        if not versions:
            raise Refused(40401)
        if number not in versions:
            raise Refused(40402)
        entry = versions[number]
        if entry.deleted and not permanent:
            raise Refused(40406)
        if self.is_readonly(subject):
            raise Refused(42205)
        if permanent and not entry.deleted:
            raise Refused(40407)
        if permanent:
            self.remove(subject, [number])
        else:
            versions[number] = entry._replace(deleted=True)
        return number

    def remove(self, subject: str, numbers: list[int]) -> None:
        """Delete versions for good, and the settings of a subject without versions."""
        for number in numbers:
            del self.versions[subject][number]
        if not self.versions[subject]:
            del self.versions[subject]
            self.modes.pop(subject, None)
            self.levels.pop(subject, None)

    def delete_subject(self, subject: str, permanent: bool) -> list[int]:
        """The deleted versions."""
        versions = self.versions.get(subject, {})
        live = [n for n, entry in versions.items() if not entry.deleted]
        if not versions:
            raise Refused(40401)
        if not permanent and not live:
            raise Refused(40404)
        if self.is_readonly(subject):
            raise Refused(42205)
        if permanent and live:
            raise Refused(40405)
        if permanent:
            numbers = sorted(versions)
            self.remove(subject, numbers)
            return numbers
        self.versions[subject] = {n: entry._replace(deleted=True) for n, entry in versions.items()}
        return sorted(live)

    def in_scope(self, scope: str | None) -> list[str]:
        """The subjects that a mode concerns."""
        if scope in SUBJECTS:
            return [scope] if scope in self.versions else []
        if scope in (":.__GLOBAL:", None):
            return list(self.versions)
        return [name for name in self.versions if context_of(name) == context_of(scope)]

    def set_mode(self, scope: str | None, mode: str, force: bool) -> None:
        """Set a mode."""
        if mode == "IMPORT" and self.mode(scope) != "IMPORT" and not force:
            names = self.in_scope(scope)
            if any(not entry.deleted for name in names for entry in self.versions[name].values()):
                raise Refused(42205)
            for name in names:
                del self.versions[name]
        self.modes[scope] = mode

    def set_level(self, scope: str | None, level: str) -> None:
        """Set a compatibility level."""
        if self.is_readonly(scope):
            raise Refused(42205)
        self.levels[scope] = level

    def delete_context(self, context: str) -> None:
        """Delete a context."""
        if self.in_scope(f":{context}:"):
            raise Refused(42211)
        self.contexts.discard(context)


def path(kind: str, scope: str | None) -> str:
    """The path of settings or modes."""
    return f"/{kind}" if scope is None else f"/{kind}/{scope}"


class Operations(RuleBasedStateMachine):
    """The operations."""

    def __init__(self) -> None:
        super().__init__()
        self.api = Api()
        self.model = Model()

    def compare(self, response: Any, expected: Any, *arguments: Any) -> Any:
        """Run the model's operation and compare the outcome."""
        try:
            value = expected(*arguments)
        except Refused as error:
            refused = error.code
        else:
            assert response.status < 300, (response, value)
            return value
        assert response.error == (refused // 100, refused)
        return None

    @rule(subject=subjects, kind=st.sampled_from(TYPES))
    def register(self, subject: str, kind: str) -> None:
        response = self.api.post(f"/subjects/{subject}/versions", {"schema": json.dumps(kind)})
        found = self.compare(response, self.model.register, subject, kind, None)
        assert found is None or (response.json["id"], response.json["version"]) == found

    @precondition(lambda self: "IMPORT" in self.model.modes.values())
    @rule(
        subject=subjects,
        kind=st.sampled_from(TYPES),
        given=st.integers(1, 6),
        version=st.none() | st.integers(1, 3),
    )
    def import_schema(self, subject: str, kind: str, given: int, version: int | None) -> None:
        body = {"schema": json.dumps(kind), "id": given, "version": version}
        response = self.api.post(f"/subjects/{subject}/versions", body)
        found = self.compare(response, self.model.register, subject, kind, given, version)
        assert found is None or (response.json["id"], response.json["version"]) == found

    @rule(subject=subjects, number=st.integers(1, 3), permanent=st.booleans())
    def delete_version(self, subject: str, number: int, permanent: bool) -> None:
        response = self.api.delete(f"/subjects/{subject}/versions/{number}?permanent={str(permanent).lower()}")
        found = self.compare(response, self.model.delete_version, subject, number, permanent)
        assert found is None or response.json == found

    @rule(subject=subjects, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        response = self.api.delete(f"/subjects/{subject}?permanent={str(permanent).lower()}")
        found = self.compare(response, self.model.delete_subject, subject, permanent)
        assert found is None or response.json == found

    @rule(scope=scopes, mode=st.sampled_from(("READWRITE", "READWRITE", "READONLY", "IMPORT")), force=st.booleans())
    def set_mode(self, scope: str | None, mode: str, force: bool) -> None:
        response = self.api.put(f"{path('mode', scope)}?force={str(force).lower()}", {"mode": mode})
        self.compare(response, self.model.set_mode, scope, mode, force)

    @rule(scope=scopes)
    def delete_mode(self, scope: str | None) -> None:
        response = self.api.delete(path("mode", scope))
        if scope in self.model.modes:
            assert response.json == {"mode": self.model.modes.pop(scope)}
        else:
            assert response.status == (200 if scope in (None, ":.__GLOBAL:") else 404)

    @rule(scope=scopes, level=st.sampled_from(("NONE", "BACKWARD", "FORWARD_TRANSITIVE", "FULL")))
    def set_level(self, scope: str | None, level: str) -> None:
        response = self.api.put(path("config", scope), {"compatibility": level})
        self.compare(response, self.model.set_level, scope, level)

    @rule(context=st.sampled_from((".c", ".d")))
    def delete_context(self, context: str) -> None:
        response = self.api.delete(f"/contexts/:{context}:")
        self.compare(response, self.model.delete_context, context)

    @invariant()
    def versions_agree(self) -> None:
        state = self.api.registry.state
        actual = {
            name: {item.version: (item.schema.id, item.schema.text, item.deleted) for item in state.versions(name)}
            for name in state.subjects()
        }
        expected = {
            name: {number: (entry.id, f'"{entry.type}"', entry.deleted) for number, entry in versions.items()}
            for name, versions in self.model.versions.items()
        }
        assert actual == expected

    @invariant()
    def listings_agree(self) -> None:
        live = [name for name, found in self.model.versions.items() if any(not item.deleted for item in found.values())]
        assert self.api.get("/subjects").json == sorted(live)
        assert self.api.get("/subjects?deleted=true").json == sorted(self.model.versions)
        assert self.api.get("/contexts").json == [".", *sorted(self.model.contexts)]
        for subject in SUBJECTS:
            assert self.api.get(f"/mode/{subject}?defaultToGlobal=true").json == {"mode": self.model.mode(subject)}
            level = self.api.get(f"/config/{subject}?defaultToGlobal=true").json["compatibilityLevel"]
            assert level == self.model.level(subject)

    @invariant()
    def ids_are_never_used_for_another_schema(self) -> None:
        for context, highest in self.model.highest.items():
            assert self.api.registry.state.highest_id(f":{context}:x" if context != "." else "x") == highest

    def teardown(self) -> None:
        written = self.api.registry.written
        expected = dump(self.api.registry.state)
        for cut in {0, len(written) // 3, len(written) - 1, len(written)}:
            for keep_tombstones in (True, False):
                compacted = compact(written, cut, keep_tombstones=keep_tombstones)
                assert dump(MemoryRegistry(compacted).state) == expected, (cut, keep_tombstones)


def compact(records: list[Record], cut: int, *, keep_tombstones: bool) -> list[Record]:
    """Return the records as the log cleaner leaves them when it has cleaned all before the index `cut`."""
    last = {record.key: index for index, record in enumerate(records[:cut])}
    kept = [record for index, record in enumerate(records[:cut]) if last[record.key] == index]
    return [record for record in kept if keep_tombstones or record.value is not None] + records[cut:]


def dump(state: State) -> Any:
    """Return everything that clients can see."""
    versions = {
        name: [(item.version, item.schema.id, item.schema.text, item.deleted) for item in state.versions(name)]
        for name in state.subjects()
    }
    places = (None, ":.c:", ":.__GLOBAL:", *SUBJECTS)
    found = {
        (context.name, number): sorted((use.subject, use.version) for use in stored.uses)
        for context in state.contexts.values()
        for number, stored in context.schemas.items()
    }
    digests = {
        (context.name, digest): stored.id
        for context in state.contexts.values()
        for digest, stored in context.digests.items()
    }
    highest = {name: state.highest_id(f":{name}:x" if name != "." else "x") for name in (".", ".c", ".d")}
    scoped = [(state.settings.config(place), state.settings.mode(place)) for place in places]
    return versions, found, digests, highest, scoped, state.context_names()


@pytest.mark.parametrize("steps", [10, 40])
def test_operations_agree_with_the_model_and_replay(steps: int) -> None:
    """Random operations."""
    run_state_machine_as_test(
        Operations,
        settings=settings(
            max_examples=20,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
