"""Rows of the table of mutations for connections between nodes, secured starts, and secrets."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

PEERS = "tests/unit/cluster/test_peer_security.py"
COMMANDS = "tests/unit/cli/test_security.py"
TOKENS = "tests/unit/clients/test_security_settings.py"
LAUNCH = "tests/unit/launch/test_settings.py"
BROKEN = "tests/unit/network/test_broken_http.py"
START = "tests/cluster/test_quick_start.py"
SECRETS = "tests/cluster/test_secrets.py"
LEAKS = f"{SECRETS}::test_node_shows_no_secret_whatever_clients_do"
SPARK = "tests/unit/spark/test_secrets.py::test_no_repr_shows_a_secret"

ROWS: tuple[Row, ...] = (
    (
        "A token endpoint whose response ends early has not refused the client",
        "network/oauth.py",
        "read_body(response, LARGEST_ANSWER_BYTES)",
        "response.read(LARGEST_ANSWER_BYTES)",
        (f"{BROKEN}::test_connection_that_breaks[token_endpoint-cut within the body-plain]",),
    ),
    (
        "A connector repeats a request whose response it cannot decode",
        "connect/connectors/http/client.py",
        "(httpx.TransportError, httpx.DecodingError)",
        "httpx.TransportError",
        (f"{BROKEN}::test_response_that_a_connector_cannot_decode_is_retried",),
    ),
    (
        "A key set whose download breaks is retrieved again",
        "broker/jwks.py",
        "    except http.client.HTTPException as error:",
        "    except ZeroDivisionError as error:",
        (f"{BROKEN}::test_connection_that_breaks[key_set-not HTTP-plain]",),
    ),
    (
        "A token endpoint that does not send HTTP is an error that a retry may solve",
        "network/oauth.py",
        "    except (OSError, http.client.HTTPException) as error:",
        "    except OSError as error:",
        (f"{BROKEN}::test_connection_that_breaks[token_endpoint-not HTTP-plain]",),
    ),
    (
        "A response that ends early is not taken for a whole one",
        "common/http_body.py",
        "    if response.length and len(data) < most_bytes:",
        "    if False:",
        (f"{BROKEN}::test_connection_that_breaks[top_command-cut within the body-tls]",),
    ),
    (
        "A voter that is denied the right asks less and less often",
        "raft/core.py",
        "succeeded=succeeded, is_denied=is_denied)",
        "succeeded=succeeded)",
        ("tests/unit/raft/test_elections.py::test_voter_that_is_denied_the_right_waits_longer_each_time",),
    ),
    (
        "A token is replaced before its own expiry, whatever the endpoint says",
        "network/oauth.py",
        "    ends_ms = [] if (claimed_ms := expiry_of(value)) is None else [claimed_ms]",
        "    ends_ms = []",
        (f"{TOKENS}::test_token_is_reused_until_its_own_expiry[0-2]",),
    ),
    (
        "A broker that other brokers cannot log in to does not start",
        "config/broker.py",
        "        if enabled := self._without(broker, self.inter_broker_listener):",
        '        if enabled := "":',
        ("tests/unit/config/test_listeners.py::test_broker_that_other_brokers_cannot_log_in_to_does_not_start",),
    ),
    (
        "Connections between brokers use the security of their listener",
        "cluster/node/peer_security.py",
        "    tls = TlsOfPeers(listener, current) if protocol.uses_tls else None",
        "    tls = None",
        (f"{PEERS}::test_host_names_are_checked_unless_the_algorithm_is_empty",),
    ),
    (
        "Each listener has its own login",
        "cluster/node/peer_security.py",
        "        config = self._current().for_listener(self._listener, mechanism)",
        '        config = self._current().for_listener("inside", mechanism)',
        (f"{PEERS}::test_each_listener_has_the_credentials_of_its_own_login",),
    ),
    (
        "Host names are checked between nodes",
        "network/tls_settings.py",
        '    context.check_hostname = algorithm == "https"',
        "    context.check_hostname = False",
        (f"{PEERS}::test_host_names_are_checked_unless_the_algorithm_is_empty",),
    ),
    (
        "A rotated certificate is used by new connections",
        "cluster/node/peer_security.py",
        "        if _state(options) == self._state:",
        "        if True:",
        (f"{PEERS}::test_new_connections_use_a_rotated_certificate",),
    ),
    (
        "A broken certificate file does not cut a node off",
        "cluster/node/peer_security.py",
        "            self._context = self._load(options)\n        except KafkaError as error:",
        "            self._context = self._load(options)\n        except ZeroDivisionError as error:",
        (f"{PEERS}::test_new_connections_use_a_rotated_certificate",),
    ),
    (
        "A denied connection does not prove a dead process",
        "network/node_channel.py",
        "        if is_refused and not is_denied and",
        "        if is_refused and",
        (f"{PEERS}::test_untrusted_node_is_not_reported_as_lost",),
    ),
    (
        "A node without a supported mechanism does not start",
        "cluster/node/peer_security.py",
        "        if mechanism not in MECHANISMS:",
        "        if False:",
        (f"{PEERS}::test_wrong_login_is_an_error_of_the_start_without_secrets",),
    ),
    (
        "Nodes ask each other for certificates",
        "tools/secured_files.py",
        '            settings[f"listener.name.{name.lower()}.ssl.client.auth"] = "required"',
        '            settings[f"listener.name.{name.lower()}.ssl.client.auth"] = "requested"',
        (
            f"{COMMANDS}::test_settings_of_each_node_are_valid_and_have_no_plaintext_listener",
            f"{START}::test_stranger_with_a_certificate_is_not_a_node",
        ),
    ),
    (
        "Written settings have an authorizer",
        "tools/secured_files.py",
        '        "authorizer.class.name": AUTHORIZER,\n',
        "",
        (f"{START}::test_quick_start_of_three_nodes", f"{START}::test_stranger_with_a_certificate_is_not_a_node"),
    ),
    (
        "Files with keys and passwords are private whatever the umask is",
        "tools/secured_files.py",
        "_PRIVATE, _PUBLIC = 0o600, 0o644",
        "_PRIVATE, _PUBLIC = 0o640, 0o644",
        (f"{COMMANDS}::test_each_file_with_a_key_or_password_is_private",),
    ),
    (
        "The certificate of a client is not valid for a server",
        "tools/certificates.py",
        "    if hosts:\n        roles.append",
        "    roles.append(ExtendedKeyUsageOID.SERVER_AUTH)\n    if hosts:\n        roles.append",
        (f"{COMMANDS}::test_certificates_are_for_the_hosts_of_their_node_and_no_client_can_be_a_server",),
    ),
    (
        "A client gets no certificate with the name of a node",
        "tools/secured_files.py",
        '        if re.fullmatch(r"node-\\d+", name):',
        "        if False:",
        (f"{COMMANDS}::test_client_cannot_have_the_certificate_of_a_node",),
    ),
    (
        "Existing certificates are not overwritten",
        "tools/secured_files.py",
        "        if renew or not (home / KEY_STORE).exists():",
        "        if True:",
        (f"{COMMANDS}::test_second_call_keeps_every_file_and_adds_what_is_missing",),
    ),
    (
        "A profile with a secret that others can read is refused",
        "cli/connect.py",
        "    profile_file.refuse_exposed(settings)\n",
        "",
        (f"{COMMANDS}::test_profile_with_a_password_that_others_can_read_is_refused",),
    ),
    (
        "A secured directory is not started without --secure",
        "launch/secured.py",
        "    if (directory / ADMIN_PROPERTIES).exists():",
        "    if False:",
        (f"{LAUNCH}::test_secured_directory_is_not_started_without_the_option",),
    ),
    (
        "The client settings of a read are not in its repr",
        "spark/options.py",
        "    ending: Place\n    client: Mapping[str, str] = field(repr=False)",
        "    ending: Place\n    client: Mapping[str, str]",
        (SPARK,),
    ),
    (
        "The client settings of a pipeline are not in its repr",
        "streams/settings.py",
        "    client: Mapping[str, str] = field(repr=False)",
        "    client: Mapping[str, str]",
        (SPARK,),
    ),
    (
        "DescribeConfigs has no value of a secret setting",
        "config/resolve.py",
        "    if setting.sensitive:",
        "    if False:",
        (LEAKS,),
    ),
)
