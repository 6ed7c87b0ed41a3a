"""Rows of the table of mutations for nodes of the schema registry and their HTTP servers."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

LOG = "tests/registry/test_log.py"
NODES = "tests/registry/test_several_nodes.py"
SECURITY = "tests/registry/test_security.py"
SERVER = "tests/unit/web/test_server.py"
ACCESS = "tests/unit/registry/test_access.py"
RIGHTS = "tests/unit/registry/test_rights.py"

ROWS: tuple[Row, ...] = (
    (
        "A leader that does not accept the certificate of a node is an error of forwarding",
        "registry/forwarding.py",
        "(httpx.HTTPError, httpx.InvalidURL, ssl.SSLError)",
        "(httpx.HTTPError, httpx.InvalidURL)",
        (
            "tests/unit/network/test_broken_http.py::test_certificate_that_the_server_does_not_accept[registry_node-None]",
        ),
    ),
    (
        "A search in other contexts finds only what the user may read",
        "registry/access.py",
        '        scope["state"][MAY_READ] = lambda subject: self._may_read(principal, subject)\n',
        "",
        ("tests/unit/registry/test_access.py::test_search_in_other_contexts_finds_only_what_the_user_may_read",),
    ),
    (
        "A new primary of the registry fences the old one",
        "registry/writer.py",
        '                "transactional.id": self._settings.transactional_id,',
        '                "transactional.id": f"{self._settings.transactional_id}-{id(self)}",',
        (f"{LOG}::test_new_primary_fences_the_old_one",),
    ),
    (
        "A schema is acknowledged only after its transaction is committed",
        "registry/writer.py",
        "            await producer.begin_transaction()\n",
        (
            "            for change in group.changes:\n"
            "                change.succeed()\n"
            "            await producer.begin_transaction()\n"
        ),
        (f"{NODES}::test_killed_primary_loses_no_schema_and_no_id_is_used_twice",),
    ),
    (
        "A new primary of the registry reads everything before it writes",
        "registry/writer.py",
        "            await self._catch_up(plain)\n",
        "",
        (f"{LOG}::test_new_primary_writes_only_after_it_has_read_everything",),
    ),
    (
        "Schemas are invisible until their transaction is committed",
        "registry/writer.py",
        "        preview.undo()\n",
        "",
        (f"{LOG}::test_concurrent_changes_see_each_other_and_no_reader_sees_them_before_their_commit",),
    ),
    (
        "Changes of one transaction see each other",
        "registry/writer.py",
        "            if self._waiting and not preview.apply(records):",
        "            if False:",
        (f"{LOG}::test_concurrent_changes_see_each_other_and_no_reader_sees_them_before_their_commit",),
    ),
    (
        "A change of settings is committed before the next change",
        "registry/writer.py",
        "        if len(keys) < len(records):\n            return False",
        "        if len(keys) < len(records):\n            return True",
        (f"{LOG}::test_change_of_settings_ends_its_group",),
    ),
    (
        "The last record of the idle topic of schemas is an ordinary one",
        "registry/writer.py",
        "                await self._append_noop(plain)\n                self._owes_noop",
        "                self._owes_noop",
        (f"{LOG}::test_last_record_of_the_idle_topic_is_an_ordinary_one",),
    ),
    (
        "A schema that exceeds the limit of the topic fails alone",
        "registry/writer.py",
        "        if any(_size(record) > self._largest_bytes for record in records):",
        "        if False:",
        (f"{LOG}::test_failed_change_does_not_disturb_the_others_of_its_group",),
    ),
    (
        "A forwarded request is not forwarded again",
        "registry/forwarding.py",
        "        if FORWARDED in given:",
        "        if False:",
        (f"{NODES}::test_forwarded_request_is_not_forwarded_again",),
    ),
    (
        "A topic of schemas that is not compacted is refused",
        "registry/topic.py",
        "    if policy != _COMPACT:",
        "    if False:",
        (f"{NODES}::test_topic_that_is_not_compacted_is_refused",),
    ),
    (
        "A registry that has not read its topic answers 503",
        "registry/server.py",
        "        if not log.loaded.is_set():",
        "        if False:",
        ("tests/registry/test_node.py::test_requests_wait_for_the_topic_with_503",),
    ),
    (
        "A schema needs the right for one of its subjects",
        "registry/access.py",
        "        if required.is_schema:",
        "        if False:",
        (f"{ACCESS}::test_schema_needs_the_right_for_one_of_its_subjects",),
    ),
    (
        "Listings show only subjects that the user may read",
        "registry/access.py",
        "            visible = [item for item in items if self._may_read(principal, item)]",
        "            visible = items",
        (f"{ACCESS}::test_listings_have_only_what_the_user_may_read_and_pages_are_full",),
    ),
    (
        "The right to read schemas does not include writes",
        "registry/rights.py",
        "        is_included = operation is Operation.READ or self.operation is Operation.WRITE",
        "        is_included = True",
        (f"{RIGHTS}::test_write_includes_read_and_rules_match_the_beginning",),
    ),
    (
        "Wrong credentials of the registry are refused",
        "registry/logins.py",
        "        if credentials is None or method not in self._settings.methods:",
        "        if credentials is None:\n            return 'User:x'\n        if method not in (BASIC, BEARER):",
        (f"{SECURITY}::test_wrong_credentials_are_refused",),
    ),
    (
        "An HTTP listener for other machines needs authentication",
        "web/listeners.py",
        "        if exposed and not insecure:",
        "        if False:",
        (f"{SERVER}::test_listener_for_other_machines_needs_authentication_or_insecure",),
    ),
    (
        "An HTTP client that does not finish its headers is disconnected",
        "web/connection.py",
        "        elif self._timer is None and self.timeout_keep_alive_task is None:",
        "        elif False:",
        (f"{SERVER}::test_half_request_after_a_response_is_limited_too",),
    ),
    (
        "HTTP headers have a limit of size",
        "web/connection.py",
        "        if self._pending_header_bytes > self.limits.header_bytes:",
        "        if False:",
        (f"{SERVER}::test_headers_have_a_limit_of_size",),
    ),
    (
        "Chunked HTTP bodies have a limit of size",
        "web/guard.py",
        "        if self._received_bytes > self.limit_bytes:",
        "        if False:",
        (f"{SERVER}::test_chunked_body_is_counted",),
    ),
    (
        "A client that stops to send a body does not wait for ever",
        "web/guard.py",
        "            async with asyncio.timeout(self._limits.idle_s):",
        "            async with asyncio.timeout(None):",
        (f"{SERVER}::test_body_that_stops_is_a_timeout",),
    ),
)
