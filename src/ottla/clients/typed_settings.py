"""The settings of each client as types, so that editors complete them and type checkers find misspelt ones.

    settings: ProducerConfig = {"bootstrap_servers": "localhost:9092", "linger_ms": 20}
    producer = Producer(**settings)

Generated from the option tables by `make docs`; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict


class CommonConfig(TypedDict, total=False):
    """Settings that every client has, but for the address of the cluster."""

    client_id: str
    """A name for this client in the brokers' logs, metrics and quotas."""
    request_timeout_ms: int
    """How long a broker may take to answer."""
    default_api_timeout_ms: int
    """How long a call with retries may take."""
    socket_connection_setup_timeout_ms: int
    """How long opening a connection may take."""
    connections_max_idle_ms: int
    """After this idle time a connection is closed."""
    reconnect_backoff_ms: int
    """How long to wait before reconnecting to a broker."""
    reconnect_backoff_max_ms: int
    """The longest such wait; it doubles with each failure."""
    retry_backoff_ms: int
    """How long to wait before a request is retried."""
    retry_backoff_max_ms: int
    """The longest such wait; it doubles with each failure."""
    metadata_max_age_ms: int
    """After this time the metadata of topics is refreshed."""
    on_event: Any
    """A function of one event: problems, connections, rebalances, statistics."""
    statistics_interval_ms: int
    """How often statistics are reported to on.event; 0 is never."""
    enable_metrics_push: bool
    """Push metrics to brokers that ask for them (KIP-714)."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """The protocol of connections to the brokers."""
    ssl_context: Any
    """An ssl.SSLContext, used instead of the other ssl settings."""
    ssl_truststore_location: str | None
    """A PEM file (or directory) of trusted authorities; default: the system's."""
    ssl_ca_location: str | None
    """A PEM file (or directory) of trusted authorities; default: the system's."""
    ssl_truststore_certificates: str | None
    """The same as PEM text."""
    ssl_ca_pem: str | None
    """The same as PEM text."""
    ssl_truststore_type: str
    """The format of that file: PEM only."""
    ssl_truststore_password: str | None
    """Not supported: PEM files of certificates have no password."""
    ssl_keystore_location: str | None
    """A PEM file with this client's private key and certificates."""
    ssl_keystore_certificate_chain: str | None
    """This client's certificates as PEM text."""
    ssl_certificate_pem: str | None
    """This client's certificates as PEM text."""
    ssl_keystore_key: str | None
    """This client's private key as PEM text."""
    ssl_key_pem: str | None
    """This client's private key as PEM text."""
    ssl_keystore_type: str
    """The format of that file: PEM only."""
    ssl_keystore_password: str | None
    """Not supported: for PEM files set ssl.key.password."""
    ssl_certificate_location: str | None
    """A PEM file with this client's certificates alone."""
    ssl_key_location: str | None
    """A PEM file with this client's private key."""
    ssl_key_password: str | None
    """The password of the private key."""
    ssl_endpoint_identification_algorithm: Literal["https", "none", ""]
    """https: a broker's certificate must name its host. Empty: the name is not checked."""
    enable_ssl_certificate_verification: bool
    """False: every certificate is accepted. Not safe."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None
    """The SASL mechanism."""
    sasl_mechanisms: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None
    """The SASL mechanism."""
    sasl_username: str | None
    """The user's name, for PLAIN and SCRAM."""
    sasl_password: str | None
    """The user's password."""
    sasl_jaas_config: str | None
    """User name and password in the syntax of Kafka's Java clients."""
    sasl_oauth_token_provider: Any
    """A function that returns an OAUTHBEARER token, as a string or OAuthToken. It may block."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """The address of the token endpoint (KIP-768), or the URL of a file with a token: file:///..."""
    sasl_oauthbearer_jwt_retriever_class: str | None
    """JwtBearerJwtRetriever: the JWT bearer grant in place of client credentials (KIP-1139)."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client id for the token endpoint."""
    sasl_oauthbearer_client_id: str | None
    """The client id for the token endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str | None
    """The client secret for the token endpoint."""
    sasl_oauthbearer_client_secret: str | None
    """The client secret for the token endpoint."""
    sasl_oauthbearer_scope: str | None
    """The requested scope."""
    sasl_oauthbearer_assertion_file: str | None
    """A file with a signed assertion for the token endpoint."""
    sasl_oauthbearer_assertion_private_key_file: str | None
    """A PEM file with the private key that signs assertions; needs ottla[security]."""
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    """The password of that key."""
    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"]
    """The algorithm that signs assertions."""
    sasl_oauthbearer_assertion_template_file: str | None
    """A JSON file with header and payload of assertions."""
    sasl_oauthbearer_assertion_claim_iss: str | None
    """The issuer of assertions."""
    sasl_oauthbearer_assertion_claim_sub: str | None
    """The subject of assertions."""
    sasl_oauthbearer_assertion_claim_aud: str | None
    """The audience of assertions."""
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    """The lifetime of an assertion."""
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    """How long before its creation an assertion is valid."""
    sasl_oauthbearer_assertion_claim_jti_include: bool
    """Whether each assertion has an id of its own."""
    sasl_oauthbearer_extensions: str | Sequence[str]
    """SASL extensions sent with the token: name=value, ... (KIP-342)."""


class AdminConfig(CommonConfig, total=False):
    """Settings of `Admin` and `AsyncAdmin`."""

    bootstrap_servers: str | Sequence[str]
    """Some brokers of the cluster as host:port; the client discovers the others."""


class ProducerConfig(AdminConfig, total=False):
    """Settings of `Producer` and `AsyncProducer`."""

    acks: Literal["0", "1", "all", "-1", 0, 1, -1]
    """Which replicas must have a record before it is acknowledged: 0, 1, all."""
    enable_idempotence: bool | None
    """Write each record once and in order despite retries; default true."""
    batch_size: int
    """Most bytes of records in one batch."""
    linger_ms: float
    """How long a batch waits for more records."""
    buffer_memory: int
    """Most bytes of unacknowledged records; send() waits for memory."""
    max_block_ms: int
    """How long send() waits for memory, or for the metadata of a topic."""
    max_request_size: int
    """Most bytes in one request."""
    max_in_flight_requests_per_connection: int
    """Requests to a broker that may wait for responses."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """How batches are compressed."""
    compression_gzip_level: int
    """From 1 (quick) to 9 (small); -1 is 6."""
    compression_lz4_level: int
    """From 1 (quick) to 17 (small)."""
    compression_zstd_level: int
    """From -131072 (quick) to 22 (small)."""
    delivery_timeout_ms: int
    """When an unacknowledged record fails."""
    retries: int
    """How often a batch is sent again; delivery.timeout.ms is the better limit."""
    allow_auto_create_topics: bool
    """Let brokers create missing topics if they are allowed to."""
    partitioner: Any
    """murmur2_random (default, as in Java), consistent_random (as in librdkafka), murmur2, consistent, fnv1a,
    fnv1a_random, random, or a callable of topic, key, value, partition count.
    """
    transactional_id: str | None
    """Enables transactions; each producer that runs needs its own id."""
    transaction_timeout_ms: int
    """When the broker aborts an open transaction."""
    key_serializer: Any
    """Serializes keys: a function, or "string", "json", "int64" ..."""
    value_serializer: Any
    """Serializes values: a function, or "string", "json", "int64" ..."""


class ShareConsumerConfig(AdminConfig, total=False):
    """Settings of `ShareConsumer` and `AsyncShareConsumer`."""

    group_id: str | None
    """The group that shares the topics and stores committed offsets; None: no group."""
    max_poll_interval_ms: int
    """A member that does not poll for this long leaves its group."""
    fetch_min_bytes: int
    """A broker waits for this many bytes, or until fetch.max.wait.ms."""
    fetch_max_wait_ms: int
    """How long a broker may wait for fetch.min.bytes."""
    fetch_max_bytes: int
    """The maximum size of a fetch response."""
    max_poll_records: int
    """The maximum number of records that one poll returns."""
    check_crcs: bool
    """Whether the checksum of each batch is verified."""
    client_rack: str
    """The rack of this client: a replica in the same rack may serve it (KIP-392)."""
    key_deserializer: Any
    """A function of bytes, or a format: "string", "json", "int64", ..."""
    value_deserializer: Any
    """A function of bytes, or a format: "string", "json", "int64", ..."""
    on_deserialization_error: Literal["raise", "skip"]
    """Whether poll raises DeserializationFailed, once, or logs the record and skips it."""
    share_acknowledgement_mode: Literal["implicit", "explicit"]
    """implicit: the next poll accepts all records of the previous one; explicit: each needs acknowledge()."""
    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    """batch_optimized: whole batches are acquired; record_limit: at most max.poll.records records (Kafka 4.2)."""


class ConsumerConfig(AdminConfig, total=False):
    """Settings of `Consumer` and `AsyncConsumer`."""

    group_id: str | None
    """The group that shares the topics and stores committed offsets; None: no group."""
    group_instance_id: str | None
    """Makes the member static: a restart within the session timeout causes no rebalance."""
    group_protocol: Literal["classic", "consumer"]
    """consumer: the broker assigns the partitions (KIP-848, Kafka 4.0 or newer); classic: the members do."""
    group_remote_assignor: str | None
    """The assignor of the broker for group.protocol=consumer: uniform, range; None: the broker chooses."""
    partition_assignment_strategy: Any
    """Assignors by name or as Assignor objects, the preferred first; all members need one in common."""
    session_timeout_ms: int
    """A member without a heartbeat for this long is removed from its group."""
    heartbeat_interval_ms: int
    """How often a heartbeat is sent; at most a third of the session."""
    max_poll_interval_ms: int
    """A member that does not poll for this long leaves its group."""
    enable_auto_commit: bool
    """Commit the positions after earlier polls in the background."""
    enable_auto_offset_store: bool
    """Whether the records of earlier polls count as processed; false: only those given to store_offsets()."""
    auto_commit_interval_ms: int
    """The interval of automatic commits."""
    auto_offset_reset: Literal["earliest", "latest", "none"]
    """Where to begin without a committed offset."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """Whether records of open and aborted transactions are returned."""
    fetch_min_bytes: int
    """A broker waits for this many bytes, or until fetch.max.wait.ms."""
    fetch_max_wait_ms: int
    """How long a broker may wait for fetch.min.bytes."""
    fetch_max_bytes: int
    """The maximum size of a fetch response."""
    max_partition_fetch_bytes: int
    """The maximum size of one partition in a fetch."""
    max_poll_records: int
    """The maximum number of records that one poll returns."""
    check_crcs: bool
    """Whether the checksum of each batch is verified."""
    client_rack: str
    """The rack of this client: a replica in the same rack may serve it (KIP-392)."""
    allow_auto_create_topics: bool
    """Whether a request for a topic's metadata may create the topic."""
    exclude_internal_topics: bool
    """Whether a pattern excludes the cluster's internal topics."""
    key_deserializer: Any
    """A function of bytes, or a format: "string", "json", "int64", ..."""
    value_deserializer: Any
    """A function of bytes, or a format: "string", "json", "int64", ..."""
    on_deserialization_error: Literal["raise", "skip"]
    """Whether poll raises DeserializationFailed, once, or logs the record and skips it."""
    on_problem: Literal["log", "raise"]
    """Whether poll also raises, once, what the consumer retries: an unreachable broker, an unknown topic."""
    queued_max_bytes: int
    """The maximum number of fetched bytes that wait for a poll."""
    on_corrupt_records: Literal["raise", "skip"]
    """Whether poll raises CorruptRecords, or logs the corrupt batch and skips it."""
