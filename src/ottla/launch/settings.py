"""The settings of a broker from options and a file: `-X` overrides the other options, and these override `--config`."""

from types import SimpleNamespace
from typing import TYPE_CHECKING

from ottla.common.failure import Failure, failing_on
from ottla.config import INSECURE, BrokerConfig, ConfigError, parse_address
from ottla.config.metrics_rows import LISTENER
from ottla.launch import late
from ottla.launch.storage import default_data_directory, known_node_id
from ottla.tools.file_modes import exposure, shown_to_others
from ottla.tools.values import name_and_value, read_properties

if TYPE_CHECKING:
    from ottla.launch.secured import LocalSecurity

# --listen replaces these settings of the file, which describe other listeners.
_LISTENER_SETTINGS = (
    "advertised.listeners",
    "controller.listener.names",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
)


LOOPBACK = "127.0.0.1"
METRICS_ADDRESS = f"{LOOPBACK}:9404"
"""The usual port of Kafka's JMX exporter."""


def broker_config(options: SimpleNamespace, security: "LocalSecurity | None" = None) -> BrokerConfig:
    """Return the settings of the broker; raises Failure with exit code 2 if one is invalid."""
    properties = read_properties(options.config) if options.config else {}
    exposed = [exposure(options.config, properties)] if options.config else []
    exposed.append(shown_to_others("-X", options.overrides, "--config FILE"))
    listen = getattr(options, "listen", None)
    if listen:
        for name in _LISTENER_SETTINGS:
            properties.pop(name, None)
        properties["listeners"] = _listener(listen)
    if options.data is not None or ("log.dirs" not in properties and "log.dir" not in properties):
        properties.pop("log.dir", None)
        properties["log.dirs"] = data_directory(options)
    if options.node_id is not None:
        properties.pop("broker.id", None)
        properties["node.id"] = options.node_id
    if metrics := metrics_address(options):
        properties[LISTENER] = metrics
    if getattr(options, "insecure", False):
        properties[INSECURE] = "true"
    properties.update(name_and_value(override, "-X") for override in options.overrides)
    if security is not None:
        late.secured.refuse_own(properties)
        host = listen_address(listen)[0] if listen else LOOPBACK
        listeners = properties.get("listeners", f"PLAINTEXT://{LOOPBACK}:9092")
        properties |= security.settings(1, 1, host, listeners)
    with failing_on(ConfigError):
        config = BrokerConfig(properties)
        if "node.id" not in properties and "broker.id" not in properties:
            node_id = known_node_id(config.metadata_log_dir)
            if node_id is not None and node_id != config.node_id:
                config = BrokerConfig({**properties, "node.id": str(node_id)})
    config.warnings.extend(filter(None, exposed))
    return config


def data_directory(options: SimpleNamespace) -> str:
    """Return the directory that `--data` names, or the default one; raises Failure."""
    if options.data is None:
        return _directory("the data directory", default_data_directory())
    if not options.data.strip():
        raise Failure("--data is empty; it must name the data directory", exit_code=2)
    return _directory("--data", options.data)


def _directory(what: str, path: str) -> str:
    """Return the path; raises Failure for a path that the list `log.dirs` cannot contain."""
    if "," in path:
        problem = f"{what}: {path!r} contains a comma, which separates directories"
        raise Failure(f"{problem}: name several with -X log.dirs=a,b", exit_code=2)
    if path.strip() != path:
        raise Failure(f"{what}: {path!r} begins or ends with a space, which is not allowed in log.dirs", exit_code=2)
    return path


def metrics_address(options: SimpleNamespace, position: int = 0) -> str | None:
    """Return the address of `--metrics` for a node of a cluster by its position; None without the option."""
    given = getattr(options, "metrics", None)
    if not given:
        return None
    host, port = listen_address(given, "--metrics")
    return f"{f'[{host}]' if ':' in host else host}:{port + position if port else 0}"


def listen_address(text: str, option: str = "--listen") -> tuple[str, int]:
    """Return the host and the port of an option; raises Failure."""
    bare_port = text.removeprefix(":")
    with failing_on(ValueError, about=option):
        # A port alone must not open the broker to the network: there is no authentication.
        host, port = (LOOPBACK, int(bare_port)) if bare_port.isdecimal() else parse_address(text)
    if port > 65535:
        raise Failure(f"{option}: {port} is above 65535, the highest port", exit_code=2)
    return host, port


def _listener(text: str) -> str:
    host, port = listen_address(text)
    return f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
