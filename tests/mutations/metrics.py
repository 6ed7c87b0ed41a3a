"""Rows of the table of mutations for the endpoint of the metrics."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

TESTS = "tests/unit/broker/metrics"
HTTP = "tests/unit/metrics/test_http.py"
NODE, SCRAPE = f"{TESTS}/test_node.py", f"{TESTS}/test_scrape.py"
CLIENTS = f"{TESTS}/test_clients.py"
PROBES = "tests/unit/broker/test_health.py"
STREAMS = "tests/unit/streams/test_metrics.py"
TLS = "tests/unit/network/test_endpoint_tls.py"

ROWS: tuple[Row, ...] = (
    (
        "Other machines reach the metrics of a run only with the token",
        "streams/metrics_address.py",
        "    if not authenticates and not _is_loopback(host):",
        "    if False:",
        (f"{STREAMS}::test_address_for_other_machines_needs_the_token",),
    ),
    (
        "The metrics of a run are encrypted with a key store",
        "streams/metrics_server.py",
        "accepting(self._given.tls, endpoint.connection)",
        "endpoint.connection",
        (f"{STREAMS}::test_scrape_is_encrypted_and_needs_a_certificate",),
    ),
    (
        "A run looks for a new certificate of its metrics",
        "streams/metrics_server.py",
        "                self._given.tls.reload()",
        "                pass",
        (f"{STREAMS}::test_scrape_is_encrypted_and_needs_a_certificate",),
    ),
    (
        "A run retries while the address of its metrics cannot be used",
        "streams/metrics_server.py",
        "            except (OSError, UnicodeError) as error:",
        "            except UnicodeError as error:",
        (f"{STREAMS}::test_unusable_address_is_one_warning_and_no_wait",),
    ),
    (
        "A scrape that fails is answered",
        "streams/metrics_server.py",
        "        done.complete_with(lambda: render(self._latest(), content_type, units.now_ms()))",
        "        done.complete(render(self._latest(), content_type, units.now_ms()))",
        (f"{STREAMS}::test_scrape_that_fails_is_an_error_for_its_client_only",),
    ),
    (
        "The number of Spark queries with samples is limited",
        "streams/metrics_server.py",
        "if status.key not in self._statuses and len(self._statuses) >= MOST_QUERIES:",
        "if False:",
        (f"{STREAMS}::test_number_of_queries_with_samples_is_limited",),
    ),
    (
        "The number of partitions of a query with samples is limited",
        "streams/metrics_rows.py",
        "        for each in given.partitions[:MOST_PARTITIONS]:",
        "        for each in given.partitions:",
        (f"{STREAMS}::test_many_partitions_have_few_samples_and_one_total",),
    ),
    (
        "`ottla top --by` presents its token",
        "tools/usage.py",
        'headers={"Authorization": f"Bearer {access.token}"} if access.token else {}',
        "headers={}",
        ("tests/cli/test_top.py::test_usage_is_read_from_endpoints_with_the_token",),
    ),
    (
        "`ottla top --by` shows no negative rate after the start of a broker",
        "tools/usage.py",
        "max(0.0, value - earlier.get(counter, 0.0)) / seconds",
        "(value - earlier.get(counter, 0.0)) / seconds",
        ("tests/cli/test_top.py::test_samples_are_parsed_with_escapes_and_summed_rows_are_rates",),
    ),
    (
        "Operators with equal names have one sample",
        "streams/metrics_rows.py",
        "        rows[store.operator] += store.rows",
        "        rows[store.operator] = store.rows",
        (f"{STREAMS}::test_samples_of_a_query",),
    ),
    (
        "A connection counts before its TLS handshake",
        "network/tls_transport.py",
        "        self._connection.connection_made(self)\n",
        "",
        (f"{TLS}::test_handshakes_are_limited_in_number_and_time",),
    ),
    (
        "A certificate of the metrics that cannot be used leaves the old one in use",
        "network/endpoint_tls.py",
        "        except SecuritySettingError as error:\n            logger.warning(",
        "        except OSError as error:\n            logger.warning(",
        (f"{TLS}::test_scrape_is_encrypted_and_a_new_file_is_for_new_connections",),
    ),
    (
        "Scrapes of one second share a collection",
        "metrics/http.py",
        "if known is not None and (not known[1].done or now_s - known[0] < FRESH_S):",
        "if known is not None and now_s < 0:",
        (
            f"{HTTP}::test_scrapes_of_one_second_share_a_body",
            f"{HTTP}::test_scrapes_at_the_same_time_share_a_collection",
        ),
    ),
    (
        "A scrape needs the token",
        "metrics/http.py",
        "        elif not self._endpoint.allows(request.headers):",
        "        elif False:",
        (f"{HTTP}::test_scrape_without_the_token_is_refused",),
    ),
    (
        "Other machines reach the metrics only with a token or the insecure setting",
        "broker/metrics/node.py",
        "        if is_reachable and not authenticates and not config.is_insecure:",
        "        if False:",
        (f"{NODE}::test_address_for_other_machines_needs_a_token_or_the_insecure_setting",),
    ),
    (
        "The header of a scrape is limited",
        "metrics/http.py",
        "        if len(self._received) > MOST_HEADER_BYTES:",
        "        if len(self._received) < 0:",
        (f"{HTTP}::test_other_requests_are_refused_and_end_the_connection",),
    ),
    (
        "Idle connections do not keep scrapes and probes away",
        "metrics/http.py",
        "next((each for each in self.connections if each.is_waiting), None)",
        "None",
        (f"{HTTP}::test_connection_above_the_limit_replaces_the_oldest_that_waits_for_a_request",),
    ),
    (
        "A response in progress does not make room for another connection",
        "metrics/http.py",
        "if each.is_waiting), None)",
        "), None)",
        (f"{HTTP}::test_connection_above_the_limit_is_closed_while_all_are_being_answered",),
    ),
    (
        "Probes of one second share a scan of the metadata",
        "broker/health.py",
        "if self._latest is None or now_s - self._latest[0] >= FRESH_S:",
        "if self._latest is None or now_s >= 0:",
        (f"{PROBES}::test_probes_of_one_second_share_a_scan_of_the_metadata",),
    ),
    (
        "A node that stops is not ready",
        "broker/health.py",
        'state = self.phase if self.phase != "running" else self._health().state',
        "state = self._health().state",
        (f"{PROBES}::test_node_is_live_once_it_has_started_and_until_its_end",),
    ),
    (
        "A client that does not read its scrape is disconnected",
        "metrics/http.py",
        "IDLE_S if not transport.get_write_buffer_size() else SEND_S",
        "IDLE_S",
        (f"{HTTP}::test_client_that_does_not_read_is_disconnected",),
    ),
    (
        "The offsets of one scrape are limited",
        "broker/metrics/lag_rows.py",
        "                if count > left:",
        "                if left < -count:",
        (f"{SCRAPE}::test_commits_above_the_limit_are_dropped_and_counted",),
    ),
    (
        "The reads of one scrape are limited",
        "broker/metrics/lag_rows.py",
        "        return self.first <= number < self.first + MOST_READS",
        "        return number >= 0",
        (f"{SCRAPE}::test_reads_of_the_lag_are_limited_and_the_next_scrape_continues",),
    ),
    (
        "A scrape serves other clients after each read",
        "broker/metrics/lag_rows.py",
        "            yield  # a read may wait for the disk\n",
        "",
        (f"{SCRAPE}::test_scrape_yields_after_each_read_of_the_lag",),
    ),
    (
        "The partitions of a large topic are counted in slices",
        "broker/metrics/cluster_rows.py",
        "            if partitions % _AT_ONCE == 0:",
        "            if partitions < 0:",
        (f"{SCRAPE}::test_partitions_of_one_topic_are_counted_in_slices",),
    ),
    (
        "A scrape does not list the descriptors",
        "broker/metrics/process_rows.py",
        "        if size:\n            return size\n",
        "",
        (f"{SCRAPE}::test_descriptors_are_counted_without_listing_them",),
    ),
    (
        "The age of an open transaction begins when a scrape sees it first",
        "broker/metrics/transaction_ages.py",
        "        if first != offset:",
        "        if first < 0:",
        (f"{SCRAPE}::test_no_alert_for_a_busy_transactional_topic",),
    ),
    (
        "Requests that still wait do not count as complete",
        "broker/metrics/request_rows.py",
        "_Counts(count, max(count - waiting, 0))",
        "_Counts(count, count)",
        (f"{TESTS}/test_requests.py::test_waiting_requests_count_only_in_the_local_time",),
    ),
    (
        "The request of a lost connection does not wait any more",
        "broker/metrics/meter.py",
        "        self.completed(connection)\n        usage =",
        "        usage =",
        (f"{TESTS}/test_requests.py::test_request_of_a_closed_connection_does_not_wait_any_more",),
    ),
    (
        "The number of clients with metrics is limited",
        "broker/metrics/client_usage.py",
        "        if len(self._by_name) >= self._most:",
        "        if len(self._by_name) < 0:",
        (f"{CLIENTS}::test_number_of_clients_is_limited_and_sums_never_decrease",),
    ),
    (
        "The names of clients with metrics are cut",
        "broker/metrics/client_usage.py",
        "        name = user[:LONGEST_NAME], client_id[:LONGEST_NAME]",
        "        name = user, client_id",
        (f"{CLIENTS}::test_long_names_are_cut",),
    ),
    (
        "Counters of a replaced client stay in the sum",
        "broker/metrics/client_usage.py",
        "            self.other.add(self._idle.pop(oldest))",
        "            self._idle.pop(oldest)",
        (f"{CLIENTS}::test_number_of_clients_is_limited_and_sums_never_decrease",),
    ),
    (
        "The lines of the request log are limited",
        "broker/metrics/slow_requests.py",
        "self._log.info(",
        "logger.info(",
        (f"{TESTS}/test_slow_requests.py::test_lines_are_limited_and_the_others_counted",),
    ),
    (
        "Names in the request log are cut",
        "broker/metrics/slow_requests.py",
        "    return text[: 100 if text.isascii() else 50]",
        "    return text",
        (f"{TESTS}/test_slow_requests.py::test_client_id_cannot_break_a_line",),
    ),
)
