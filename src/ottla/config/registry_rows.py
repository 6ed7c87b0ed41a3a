"""Settings of a broker's connection to a schema registry, by the names of Confluent Server, as in `broker_rows.py`.

Without the prefix `confluent.` they are the settings of registry clients (`ottla.registry_client`).
"""

from ottla.config.server_setting import (
    HIGH,
    INT,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    READ_ONLY,
    STRING,
    WORKS,
    ServerSetting,
)

PREFIX = "confluent."

ROWS = (
    ServerSetting("confluent.basic.auth.credentials.source", STRING, None,
        "Where the user name and password for the schema registry are: in its URL, or in the setting below.",
        MEDIUM, WORKS, READ_ONLY, choices=("URL", "USER_INFO")),
    ServerSetting("confluent.basic.auth.user.info", PASSWORD, None,
        "The user name and password for the schema registry, as `name:password`.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting("confluent.bearer.auth.credentials.source", STRING, None,
        "Where the token for the schema registry is.",
        MEDIUM, WORKS, READ_ONLY, choices=("STATIC_TOKEN",)),
    ServerSetting("confluent.bearer.auth.token", PASSWORD, None,
        "The token for the schema registry.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting("confluent.schema.registry.url", LIST, None,
        "URLs of the schema registry that knows the schemas of topics with schema validation (contracts.md).",
        HIGH, WORKS, READ_ONLY, non_empty=True),
    ServerSetting("confluent.ssl.endpoint.identification.algorithm", STRING, "https",
        "Whether the registry's certificate must have the host name of its URL; empty: no.",
        LOW, WORKS, READ_ONLY, choices=("https", "")),
    ServerSetting("confluent.ssl.key.password", PASSWORD, None,
        "The password of the private key for the schema registry.",
        HIGH, WORKS, READ_ONLY),
    ServerSetting("confluent.ssl.keystore.location", STRING, None,
        "The file of the key and the certificates that this broker presents to the schema registry.",
        HIGH, WORKS, READ_ONLY),
    ServerSetting("confluent.ssl.keystore.password", PASSWORD, None,
        "The password of that file.",
        HIGH, WORKS, READ_ONLY),
    ServerSetting("confluent.ssl.keystore.type", STRING, "PEM",
        "The format of that file: PEM or PKCS12.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting("confluent.ssl.truststore.location", STRING, None,
        "The file of the certificates that verify the schema registry; the system's if not set.",
        HIGH, WORKS, READ_ONLY),
    ServerSetting("confluent.ssl.truststore.password", PASSWORD, None,
        "The password of that file.",
        HIGH, WORKS, READ_ONLY),
    ServerSetting("confluent.ssl.truststore.type", STRING, "PEM",
        "The format of that file: PEM or PKCS12.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting("ottla.schema.validation.timeout.ms", INT, 5000,
        "How long a Produce request waits for the schema registry, if it names a schema id for the first time.",
        MEDIUM, WORKS, READ_ONLY, low=1),
)  # fmt: skip
