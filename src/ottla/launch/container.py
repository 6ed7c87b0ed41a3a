"""The entry point of the container image: environment variables become settings, by the rules of `apache/kafka`.

Compose files and testcontainers' modules of Kafka start Ottla with another image name. The scripts below
`deploy/container/files` call one of these steps:

    configure    write server.properties from mounted files and variables
    launch       format the storage at the first start, and replace this process by the broker
    run          both; arguments NAME=VALUE are variables
    tool NAME    run an `ottla` command in place of a Kafka tool that health checks and scripts call

KIP-975. Rules: `KAFKA_A_B` is `a.b`, two underscores are one underscore, three are a dash. A mounted
server.properties is the beginning of the file; variables are appended to it and win. Not supported: settings of the JVM
and of log4j. The health check is a program of its own (`container_probe`), whose address `launch` writes.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from ottla.common.failure import Failure
from ottla.config import INSECURE, BrokerConfig, ConfigError, parse_address
from ottla.config.listeners import Listener, SecurityProtocol
from ottla.config.metrics_rows import HEALTH_LISTENER
from ottla.launch import container_probe
from ottla.launch.container_tools import ottla_words
from ottla.tools.values import read_properties

PREFIX: Final = "KAFKA_"
CLUSTER_ID: Final = "CLUSTER_ID"
DEFAULT_CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"
"""The stock image has the same default, so that nodes started from it without CLUSTER_ID form one cluster."""
FORMAT_OPTIONS: Final = "OTTLA_FORMAT_OPTIONS"
LOG_LEVEL: Final = "OTTLA_LOG_LEVEL"
SECURE_ONLY: Final = "OTTLA_INSECURE"
EXCLUDED: Final = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
    }
)
"""Variables that are not settings, in the stock image, too."""
_WITHOUT_EFFECT: Final = {
    "KAFKA_OPTS": "Ottla has no JVM; logins belong in KAFKA_LISTENER_NAME_..._SASL_JAAS_CONFIG",
    **dict.fromkeys(
        ("KAFKA_HEAP_OPTS", "KAFKA_JMX_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS"), "Ottla has no JVM"
    ),
    **dict.fromkeys(
        (
            "KAFKA_LOG4J_OPTS",
            "KAFKA_LOG4J_ROOT_LOGLEVEL",
            "KAFKA_LOG4J_LOGGERS",
            "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        ),
        f"Ottla has no log4j; set {LOG_LEVEL} to debug, info, warning or error",
    ),
}
_SERVER_PROPERTIES: Final = "server.properties"
_HOST: Final = re.compile(r"://[^:]*:")


class Directories(NamedTuple):
    """The directories of the image."""

    defaults: Path
    mounted: Path
    final: Path
    secrets: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Directories":
        """Return the image's directories; OTTLA_CONTAINER_ROOT names another root for tests."""
        root = Path(environment.get("OTTLA_CONTAINER_ROOT", "/"))
        final = root / "opt/kafka/config"
        if not os.access(final, os.W_OK):  # a read-only root file system
            final = root / "tmp/ottla"
        return cls(root / "etc/kafka/docker", root / "mnt/shared/config", final, root / "etc/kafka/secrets")


def property_name(variable: str) -> str:
    """Return the setting of a variable `KAFKA_...`."""
    name = variable.removeprefix(PREFIX).lower()
    return name.replace("_", ".").replace("...", "-").replace("..", "_")


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the variables name."""
    return {
        property_name(name): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in EXCLUDED
    }


def derive(environment: MutableMapping[str, str], secrets: Path) -> None:
    """Add the variables that the stock image derives from others. Raises Failure for missing files and variables."""
    if environment.get("KAFKA_PROCESS_ROLES") == "controller":
        if environment.get("KAFKA_ADVERTISED_LISTENERS"):
            raise Failure("KAFKA_ADVERTISED_LISTENERS is not supported on a KRaft controller.", exit_code=1)
        environment.pop("KAFKA_ADVERTISED_LISTENERS", None)
    advertised = environment.get("KAFKA_ADVERTISED_LISTENERS", "")
    if advertised and not environment.get("KAFKA_LISTENERS"):
        environment["KAFKA_LISTENERS"] = _HOST.sub("://0.0.0.0:", advertised)
    if "SSL://" not in advertised:
        return
    # Files in PEM need no password, and are named by KAFKA_SSL_KEYSTORE_LOCATION.
    if environment.get("KAFKA_SSL_KEYSTORE_FILENAME"):
        _store(environment, secrets, "KEYSTORE")
        environment["KAFKA_SSL_KEY_PASSWORD"] = _secret(environment, secrets, "KAFKA_SSL_KEY_CREDENTIALS")
    client_auth = environment.get("KAFKA_SSL_CLIENT_AUTH", "")
    if client_auth in {"required", "requested"} and environment.get("KAFKA_SSL_TRUSTSTORE_FILENAME"):
        _store(environment, secrets, "TRUSTSTORE")


def _store(environment: MutableMapping[str, str], secrets: Path, kind: str) -> None:
    location = secrets / environment[f"KAFKA_SSL_{kind}_FILENAME"]
    if not location.exists():
        raise Failure(f"{location} does not exist", "Mount the directory with the stores at /etc/kafka/secrets.")
    environment[f"KAFKA_SSL_{kind}_LOCATION"] = str(location)
    environment[f"KAFKA_SSL_{kind}_PASSWORD"] = _secret(environment, secrets, f"KAFKA_SSL_{kind}_CREDENTIALS")


def _secret(environment: Mapping[str, str], secrets: Path, variable: str) -> str:
    """Return the contents of the file that a variable names."""
    if not environment.get(variable):
        raise Failure(f"{variable} environment variable not set", exit_code=1)
    try:
        return (secrets / environment[variable]).read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise Failure(f"{secrets / environment[variable]}: {error.strerror}") from error


def server_properties(environment: Mapping[str, str], directories: Directories) -> str:
    """Return the contents of server.properties: mounted settings, then variables; without both, the defaults."""
    lines = "".join(f"\n{name}={value}" for name, value in settings_of(environment).items())
    mounted = directories.mounted / _SERVER_PROPERTIES
    text = (mounted.read_text(encoding="utf-8") if mounted.exists() else "") + lines
    return text if text.strip() else (directories.defaults / _SERVER_PROPERTIES).read_text(encoding="utf-8")


def configure(environment: MutableMapping[str, str]) -> Path:
    """Write server.properties, and return its path. Raises Failure."""
    directories = Directories.of(environment)
    derive(environment, directories.secrets)
    for name in sorted(_WITHOUT_EFFECT.keys() & environment.keys()):
        print(f"===> {name} has no effect: {_WITHOUT_EFFECT[name]}", flush=True)
    path = directories.final / _SERVER_PROPERTIES
    try:
        directories.final.mkdir(parents=True, exist_ok=True)
        # The file may contain passwords: no other user may read it.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(server_properties(environment, directories))
    except OSError as error:
        raise Failure(
            f"{path}: {error.strerror}", "With a read-only root file system, mount a tmpfs at /tmp."
        ) from error
    return path


def cluster_id(environment: Mapping[str, str]) -> str:
    """Return the id of the cluster; some modules of testcontainers write it in plain base64."""
    given = environment.get(CLUSTER_ID) or DEFAULT_CLUSTER_ID
    return given.rstrip("=").replace("+", "-").replace("/", "_")


def format_words(environment: Mapping[str, str], properties: Path) -> list[str]:
    """Return the command that formats the storage unless it is formatted."""
    options = environment.get(FORMAT_OPTIONS, "").split()
    # With `=`: an id may start with a dash.
    identity = f"--cluster-id={cluster_id(environment)}"
    return ["format", "--config", str(properties), identity, "--ignore-formatted", *options]


def broker_words(environment: Mapping[str, str], properties: Path) -> list[str]:
    """Return the command that runs the broker.

    The stock image lets other machines connect without authentication: a container has a network of its own.
    """
    words = ["up", "--config", str(properties)]
    insecure = environment.get(SECURE_ONLY, "true").lower() == "true"
    if insecure and INSECURE not in read_properties(str(properties)):
        words.append("--insecure")
    if level := environment.get(LOG_LEVEL):
        words += ["--log-level", level]
    return words


def launch(environment: Mapping[str, str]) -> int:
    """Format the storage, then become the broker. Returns the exit code if formatting fails."""
    properties = Directories.of(environment).final / _SERVER_PROPERTIES
    target = properties.with_name(container_probe.TARGET)
    with contextlib.suppress(ConfigError):  # `format` reports it
        target.write_text(" ".join(health_target(BrokerConfig(read_properties(str(properties))))), encoding="utf-8")
    done = subprocess.run(ottla(format_words(environment, properties)), env=dict(environment), check=False)  # noqa: S603 - our own command
    if done.returncode == 0:
        become(broker_words(environment, properties), environment)
    return done.returncode


def become(words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by an `ottla` command."""
    sys.stdout.flush()
    os.execve(sys.executable, ottla(words), dict(environment))  # noqa: S606 - our own command


def ottla(words: Sequence[str]) -> list[str]:
    """Return the command line of an `ottla` command."""
    return [sys.executable, "-m", "ottla", *words]


def tool(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a Kafka tool; `words` are its name and its arguments."""
    properties = Directories.of(environment).final / _SERVER_PROPERTIES
    translated = ottla_words(words, format_words(environment, properties))
    if not isinstance(translated, str):
        become(translated, environment)
    print(translated)
    return 0


def health_target(config: BrokerConfig) -> tuple[str, str, str]:
    """Return what the health check asks: a kind of `container_probe`, a host and a port.

    The endpoint of the probes, else the first listener without encryption and login, else it only connects: the check
    has no certificate and no password, and a controller alone does not answer clients.
    """
    if (address := config.text(HEALTH_LISTENER)) is not None:
        return container_probe.HTTP, *_own_address(Listener("HEALTH", *parse_address(address)))
    plain = [each for each in config.listeners if each.protocol is SecurityProtocol.PLAINTEXT]
    if plain:
        return container_probe.KAFKA, *_own_address(plain[0])
    return container_probe.CONNECT, *_own_address((*config.listeners, *config.controller_listeners)[0])


def _own_address(listener: Listener) -> tuple[str, str]:
    """Return where this machine reaches its own listener."""
    loopback = "::1" if listener.host == "::" else "127.0.0.1"
    return (loopback if listener.is_wildcard else listener.host), str(listener.port)


def main(words: Sequence[str]) -> int:
    """Run a step; returns the exit code."""
    step, arguments = (words[0], words[1:]) if words else ("run", [])
    environment = dict(os.environ)
    try:
        if step == "tool":
            return tool(arguments, environment)
        if step == "run":
            environment |= dict(argument.split("=", 1) for argument in arguments if "=" in argument)
        if step in {"run", "configure"}:
            configure(environment)
        return launch(environment) if step in {"run", "launch"} else 0
    except Failure as failure:
        print(f"ottla: {failure}", file=sys.stderr)
        return failure.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
