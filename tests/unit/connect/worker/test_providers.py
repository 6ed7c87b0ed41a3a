"""Values from outside in configurations, and what hides them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.config.definition import HIDDEN, SettingError
from ottla.connect.errors import InvalidConfigError
from ottla.connect.worker.providers import Providers, Secrets, read_properties
from ottla.network.errors import ConnectFailed
from ottla.network.sasl_settings import sasl_source


def test_variables_are_replaced_and_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_TEST", "from environment")
    (tmp_path / "p.properties").write_text("# comment\nuser : ann\npass\\=word = s\\u0065cret\\\n  long\n")
    (tmp_path / "token").write_text("t0ken\n")
    config = {
        "a": "x ${env:WORKER_TEST} y",
        "b": f"${{file:{tmp_path}/p.properties:pass=word}}",
        "c": f"${{dir:{tmp_path}:token}}",
        "d": "${unknown:x:y} ${topic}",
    }
    secrets = Secrets()
    assert Providers().resolve(config, secrets) == {
        "a": "x from environment y",
        "b": "secretlong",
        "c": "t0ken\n",
        "d": "${unknown:x:y} ${topic}",
    }
    hidden = secrets.hide("secretlong and t0ken, but not ann or from")
    assert hidden == "[hidden] and [hidden], but not ann or from"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("${env:NO_SUCH_ONE}", "there is no such environment variable"),
        ("${file:/no/such/file:x}", "could not read /no/such/file"),
        ("${dir:/etc:../passwd}", "is not the name of a file"),
        ("${dir:/etc:no-such-file}", "could not read"),
    ],
)
def test_missing_value_is_an_error_that_names_the_variable(variable: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message) as caught:
        Providers().resolve({"x": variable})
    assert str(caught.value).startswith(variable)


def test_worker_limits_paths_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "x")
    (tmp_path / "ok").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "ok" / "link").symlink_to(tmp_path / "secret")
    settings = {
        "config.providers": "files, names",
        "config.providers.files.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.files.param.allowed.paths": str(tmp_path / "ok"),
        "config.providers.names.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.names.param.allowlist.pattern": "CONNECT_.*",
    }
    providers = Providers(settings)
    with pytest.raises(InvalidConfigError, match="is not below allowed"):
        providers.resolve({"x": f"${{files:{tmp_path}/ok:link}}"})
    with pytest.raises(InvalidConfigError, match="or it is not allowed"):
        providers.resolve({"x": "${names:OTHER}"})


def test_unknown_provider_class_is_refused() -> None:
    settings = {"config.providers": "vault", "config.providers.vault.class": "com.example.Vault"}
    with pytest.raises(SettingError, match=r"config\.providers\.vault\.class: the providers are"):
        Providers(settings)


@given(st.dictionaries(st.text("ab.=: #!", min_size=1), st.text("ab \\=:\n\t")))
def test_escaped_properties_are_read(values: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        for plain, code in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t")):
            text = text.replace(plain, code)
        return "".join(f"\\{each}" if each in " =:#!" else each for each in text)

    text = "".join(f"{escaped(name)}={escaped(value)}\n" for name, value in values.items())
    assert read_properties(text) == values


def test_credentials_are_read_again_for_each_connection_and_stay_hidden(tmp_path: Path) -> None:
    path, secrets = tmp_path / "p", Secrets()
    path.write_text("k=first-one\n")
    config = {"sasl.password": f"${{file:{path}:k}}", "admin.sasl.jaas.config": "fixed", "other": f"${{file:{path}:k}}"}
    found = Providers().resolve(config, secrets)
    options = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": found["sasl.password"],
               "sasl_jaas_config": None}  # fmt: skip
    source = sasl_source(options)

    async def started() -> bytes:
        return (await source()).start()

    def sent() -> bytes:
        return asyncio.run(started())

    assert sent().endswith(b"\0first-one")
    path.write_text("k=second-one\n")
    assert sent().endswith(b"\0second-one")
    path.write_text("")
    with pytest.raises(ConnectFailed, match="the credentials cannot be read"):
        sent()
    assert secrets.hide("first-one second-one") == f"{HIDDEN} {HIDDEN}"
    assert found["admin.sasl.jaas.config"] == "fixed"
