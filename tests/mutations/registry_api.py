"""Rows of the table of mutations for the state and the API of the schema registry: path, old, new, test."""

from __future__ import annotations

_RECORDS = "tests/unit/registry/test_records.py"
_REGISTRATION = "tests/unit/registry/routes/test_registration.py"
_OUTCOMES = "tests/unit/registry/routes/test_outcomes.py"

_COMPARISONS = "tests/unit/registry/test_comparisons.py"

ROWS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "large schemas are compared in a thread, so that lookups do not wait",
        "registry/comparisons.py",
        "        if not _is_large(new, newest_first):\n",
        "        if True:\n",
        (f"{_COMPARISONS}::test_lookup_is_answered_while_large_schemas_are_compared",),
    ),
    (
        "a result of the thread belongs to the versions that the subject had",
        "registry/lookup.py",
        "        tuple((version.version, version.schema.digest) for version in newest_first),\n",
        "        (),\n",
        (f"{_COMPARISONS}::test_version_that_is_registered_during_a_check_is_checked_too",),
    ),
    (
        "a check of large schemas ends when no request waits for it",
        "registry/comparisons.py",
        "            if not self.waiters:\n",
        "            if False:\n",
        (f"{_COMPARISONS}::test_check_has_a_deadline_and_stops_before_the_next_version",),
    ),
    (
        "the checks that wait for the thread are limited",
        "registry/comparisons.py",
        "            if len(self._running) >= MOST_WAITING:\n",
        "            if False:\n",
        (f"{_COMPARISONS}::test_number_of_waiting_checks_is_limited",),
    ),
    (
        "the highest id of a registry survives a permanent delete",
        "registry/changes.py",
        "return [records.highest_id_record(context, found) for context, found in highest.items()]",
        "return []",
        (f"{_REGISTRATION}::test_ids_are_not_used_again_after_permanent_deletes_and_a_compaction",),
    ),
    (
        "a delete of a schema has the bytes of the key in the topic",
        "registry/state.py",
        "found = self._key_bytes.get(key, key)",
        "found = key",
        (f"{_RECORDS}::test_a_delete_has_the_bytes_of_the_key_that_the_topic_has",),
    ),
    (
        "a record cannot give an id to another schema",
        "registry/stored.py",
        "return stored if stored.digest == digest or stored.text_json == to_json(schema.text) else None",
        "return stored",
        (f"{_RECORDS}::test_a_record_that_reuses_an_id_is_skipped",),
    ),
    (
        "a record that is not valid does not stop the registry",
        "registry/state.py",
        "except (ValueError, RecursionError) as error:",
        "except KeyError as error:",
        (f"{_RECORDS}::test_records_that_are_not_known_are_skipped_and_counted",),
    ),
    (
        "the log lines about skipped records are bounded",
        "registry/state.py",
        "if reason not in self.skipped and len(self.skipped) >= _MOST_REASONS:",
        "if False:",
        (f"{_RECORDS}::test_the_reasons_for_skipped_records_are_bounded",),
    ),
    (
        "a version that is referenced cannot be deleted",
        "registry/changes.py",
        "if state.referrers(subject, version.version, deleted=permanent):",
        "if False:",
        (f"{_REGISTRATION}::test_a_referenced_schema_cannot_be_deleted",),
    ),
    (
        "a subject that is referenced cannot be deleted",
        "registry/changes.py",
        "if _is_referenced_elsewhere(state, version, deleted=permanent):",
        "if False:",
        (f"{_REGISTRATION}::test_a_referenced_schema_cannot_be_deleted",),
    ),
    (
        "an import cannot overwrite the schema of an id",
        "registry/changes.py",
        "        _check_contents(state, context, schema_id, canonical.schema)",
        "        pass",
        (f"{_REGISTRATION}::test_an_import_keeps_ids_and_versions_and_does_not_overwrite",),
    ),
    (
        "a parsed schema is forgotten with its references",
        "registry/parsed.py",
        "self._with_references.clear()",
        "pass",
        (
            f"{_REGISTRATION}::test_a_parsed_schema_is_forgotten_when_its_reference_is_replaced",
            f"{_REGISTRATION}::test_a_new_schema_cannot_reference_a_deleted_one",
        ),
    ),
    (
        "the depth of references is bounded",
        "registry/parsed.py",
        "if depth > _MAX_DEPTH:",
        "if False:",
        (f"{_REGISTRATION}::test_references_that_are_nested_too_deeply_are_an_error",),
    ),
    (
        "a subject that is read-only does not change",
        "registry/changes.py",
        "if state.mode(subject) in READ_ONLY:",
        "if False:",
        (f"{_OUTCOMES}::test_outcome",),
    ),
    (
        "an incompatible schema is not registered",
        "registry/changes.py",
        "if not importing and not request.force:",
        "if False:",
        (f"{_OUTCOMES}::test_outcome",),
    ),
    (
        "a path of the registry has no empty segments",
        "registry/routes/paths.py",
        'if "" in segments:',
        "if False:",
        (f"{_OUTCOMES}::test_outcome",),
    ),
    (
        "a body that is nested too deeply is a bad request",
        "registry/routes/requests.py",
        "except (ValueError, RecursionError) as error:\n        raise errors.bad_request",
        "except ValueError as error:\n        raise errors.bad_request",
        (f"{_OUTCOMES}::test_a_body_that_is_not_a_json_object_is_a_bad_request",),
    ),
    (
        "a body with half a character is a bad request",
        "registry/routes/requests.py",
        'if b"\\\\u" in data:',
        "if False:",
        (f"{_OUTCOMES}::test_a_body_that_is_not_a_json_object_is_a_bad_request",),
    ),
)
