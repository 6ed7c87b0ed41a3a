"""The parts of a worker that standalone and distributed ones share: plugins, runtime, validation, cluster id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.clients.admin import AsyncAdmin
from ottla.clients.errors import ClientError
from ottla.clients.options import COMMON_OPTIONS
from ottla.common.failure import Failure
from ottla.connect.api import Config
from ottla.connect.config.definition import SettingError
from ottla.connect.errors import ConnectError
from ottla.connect.herder.common_settings import CONVERTERS
from ottla.connect.herder.herder import Environment, Herder
from ottla.connect.herder.installed_plugins import InstalledPlugins
from ottla.connect.herder.overrides import OverridePolicy
from ottla.connect.herder.plugin_source import PluginKind
from ottla.connect.herder.validation import Validator, WorkerRules
from ottla.connect.herder.versions import absent, matches
from ottla.connect.runtime import Membership, Store
from ottla.connect.worker import stock_settings
from ottla.connect.worker.providers import Providers
from ottla.connect.worker.runtime import WorkerRuntime
from ottla.connect.worker.settings import WorkerSettings

_COMMON: Final = frozenset(name for each in COMMON_OPTIONS for name in (each.name, *each.aliases))
_CLUSTER_S: Final = 20.0


class Worker:
    """One worker, by its settings. Raises Failure for settings that cannot be used."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._plugins = InstalledPlugins()
        try:
            self._providers = Providers(given)
            self.given = self._providers.resolve(given)
            """All settings, without variables."""
            stock_settings.check(self.given)
            self._settings = WorkerSettings.read(self.given)
            converters = {name: self._converter(name) for name in CONVERTERS}
            policy = OverridePolicy.read(self.given)
        except (SettingError, ConnectError) as error:
            raise Failure(str(error), exit_code=2) from error
        self._rules = WorkerRules(
            converters,
            self._settings.exactly_once,
            self._settings.group_id,
            policy,
        )

    def _converter(self, name: str) -> str:
        """Return the class name of a converter of the worker. Raises ConnectError, also for another version of it."""
        kind = PluginKind.HEADER_CONVERTER if name == "header.converter" else PluginKind.CONVERTER
        plugin, wanted = self._plugins.find(kind, self._settings.get(name)), self.given.get(f"{name}.plugin.version")
        if not matches(plugin.version, wanted):
            raise ConnectError(f"{name}.plugin.version: {absent(plugin.name, str(wanted), plugin.version)}")
        return plugin.name

    def herder(self, store: Store, membership: Membership, *, remembers_tasks: bool = True) -> Herder:
        """Return the herder of the worker. Raises Failure. `remembers_tasks`: see `Environment`."""
        exactly_once = self._settings.exactly_once
        environment = Environment(_ClusterId(self.given), exactly_once, self._resolve, remembers_tasks)
        validator = Validator(self._plugins, self._rules)
        try:
            return Herder(
                store, lambda listener: WorkerRuntime(self.given, listener), membership, validator, environment
            )  # fmt: skip
        except (SettingError, ConnectError) as error:
            raise Failure(str(error), exit_code=2) from error

    def _resolve(self, config: Config) -> Config:
        return self._providers.resolve(config)


class _ClusterId:
    """Asks the brokers for the id of their cluster, once."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._clients = {name: value for name, value in given.items() if name in _COMMON}
        self._clients.setdefault("bootstrap.servers", "localhost:9092")
        self._found: str | None = None

    async def __call__(self) -> str:
        """Return the id. Raises ConnectError."""
        if self._found is None:
            try:
                async with AsyncAdmin(self._clients) as admin:
                    self._found = (await admin.describe_cluster(timeout_s=_CLUSTER_S)).cluster_id
            except ClientError as error:
                raise ConnectError(f"The brokers do not answer: {error}") from error
        return self._found
