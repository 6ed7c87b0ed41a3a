"""Rows of the table of mutations for the web console."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

HERE = "tests/console"

ROWS: tuple[Row, ...] = (
    (
        "the console refuses forms without the token of this browser",
        "console/calls.py",
        "    if not console.sessions.is_csrf(token, given):\n",
        "    if False:\n",
        (f"{HERE}/test_protection.py::test_post_without_the_token_of_this_browser_is_refused",),
    ),
    (
        "the console refuses forms of other sites",
        "console/protection.py",
        '        if scope["method"] == "POST" and not is_same_origin(headers):\n',
        "        if False:\n",
        (f"{HERE}/test_protection.py::test_post_from_another_site_is_refused[headers2]",),
    ),
    (
        "the console is not a picture of other sites' pages",
        "console/protection.py",
        "        if is_embedded_elsewhere(headers):\n",
        "        if False:\n",
        (f"{HERE}/test_protection.py::test_pages_of_other_sites_cannot_contain_pages",),
    ),
    (
        "the console keeps threads for quick pages",
        "console/calls.py",
        "    if not _slow_pages.acquire(blocking=False):\n",
        "    if not _slow_pages.acquire():\n",
        (f"{HERE}/test_protection.py::test_slow_pages_leave_threads_for_others",),
    ),
    (
        "the console redrives no letter of an aborted transaction",
        "console/pages/dead_letters.py",
        '    return call.session.consumer(**{"isolation.level": "read_committed"})\n',
        "    return call.session.consumer()\n",
        (f"{HERE}/test_dead_letters.py::test_letters_of_aborted_transactions_are_not_redriven",),
    ),
    (
        "the console does not search masked messages of dead letters",
        "console/pages/dead_letters.py",
        '    if given.get("reason") and call.settings.masks.of(call.session.user, call.params["topic"]):\n',
        "    if False:\n",
        (f"{HERE}/test_dead_letters.py::test_messages_of_masked_topics_are_not_shown",),
    ),
    (
        "the console refuses foreign host names",
        "console/protection.py",
        "        if len(hosts) != 1 or not self.is_known(hosts[0]):\n",
        "        if len(hosts) != 1:\n",
        (f"{HERE}/test_protection.py::test_foreign_host_name_is_refused",),
    ),
    (
        "the console escapes texts of records",
        "console/calls.py",
        "        autoescape=True,\n",
        "        autoescape=False,\n",
        (f"{HERE}/test_protection.py::test_scripts_in_records_are_text",),
    ),
    (
        "the console signs in as its user, without the credentials of its own settings",
        "console/settings.py",
        '            given |= {"sasl.username": user, "sasl.password": password}\n',
        "            given = self.clients[kind] | {}\n",
        (f"{HERE}/test_users.py::test_acls_of_the_user_decide",),
    ),
    (
        "the console gives a new cookie at each sign-in",
        "console/sessions.py",
        "        token = self.new_token()\n",
        '        token = "t" * 43\n',
        (f"{HERE}/test_users.py::test_each_sign_in_has_a_cookie_of_its_own",),
    ),
    (
        "messages of dead letters are hidden where fields are masked",
        "console/pages/dead_letters.py",
        "    is_masked = bool(call.settings.masks.of(call.session.user, topic))\n",
        "    is_masked = False\n",
        (f"{HERE}/test_dead_letters.py::test_messages_of_masked_topics_are_not_shown",),
    ),
    (
        "records at positions are hidden where fields are masked",
        "console/pages/why.py",
        "masked=bool(call.settings.masks.rules))\n",
        "masked=False)\n",
        (f"{HERE}/test_why.py::test_records_are_hidden_where_fields_are_masked",),
    ),
    (
        "a preview redrives nothing",
        "console/pages/dead_letters.py",
        "    dry_run = not call.form\n",
        "    dry_run = False\n",
        (f"{HERE}/test_dead_letters.py::test_redrive_writes_each_letter_once_after_a_preview",),
    ),
    (
        "a rule is removed only after the question was answered",
        "console/pages/access_changes.py",
        '    if call.form.get("confirm"):\n',
        '    if call.form or call.query.get("host"):\n',
        (f"{HERE}/test_access_changes.py::test_rules_are_added_and_removed",),
    ),
    (
        "a registry retries for a topic that a broker does not know yet",
        "registry/topic.py",
        "            if time.monotonic() >= deadline_s:\n",
        "            if True:\n",
        ("tests/registry/test_topic.py::test_new_topic_is_asked_for_again_until_brokers_know_it",),
    ),
    (
        "a search of the console holds no large records",
        "console/records.py",
        "    is_large = sum(len(part) for part in parts if part is not None) > _LARGE\n",
        "    is_large = False\n",
        (f"{HERE}/test_pages.py::test_search_holds_large_records_as_shortened_rows",),
    ),
    (
        "`ottla mcp` refuses arguments beyond their limits",
        "mcp_server/tools.py",
        "            if value < 0 or (self.most is not None and value > self.most):\n",
        "            if value < 0:\n",
        ("tests/mcp_server/test_mcp.py::test_errors_are_one_sentence",),
    ),
    (
        "`ottla mcp` limits the size of its answers",
        "mcp_server/answers.py",
        "        fitting[longest] = rows[: len(rows) // 2]\n",
        "        return text\n",
        ("tests/mcp_server/test_mcp.py::test_large_answers_are_shortened",),
    ),
    (
        "`ottla mcp` masks fields for the user of its settings",
        "cli/mcp.py",
        '    return str(settings.clients["admin"].get("sasl.username") or "")\n',
        '    return ""\n',
        ("tests/mcp_server/test_mcp.py::test_acls_of_the_configured_user_decide",),
    ),
    (
        "the console changes a setting of a broker only after a question",
        "console/pages/node_settings.py",
        "    call.admin.alter_config(resource, {entry.name: value}, validate_only=not is_confirmed)\n",
        "    call.admin.alter_config(resource, {entry.name: value})\n",
        (f"{HERE}/test_changes.py::test_dynamic_setting_of_a_broker_changes_after_a_question",),
    ),
    (
        "the console cancels moves only after a question",
        "console/pages/nodes.py",
        '    if call.form.get("confirm"):\n        call.admin.alter_partition',
        "    if True:\n        call.admin.alter_partition",
        (f"{HERE}/test_changes.py::test_moves_of_one_topic_are_cancelled_after_a_question",),
    ),
    (
        "the console creates no connector with faults",
        "console/pages/connector_changes.py",
        '    if found["error_count"]:\n',
        "    if False:\n",
        (f"{HERE}/test_changes.py::test_connector_is_created_from_a_form_with_errors_at_fields",),
    ),
)
