import ssl

import pytest

from ottla.registry_client.errors import RegistrySettingError
from ottla.registry_client.settings import is_registry_setting, read_settings

URL = {"schema.registry.url": "http://127.0.0.1:8081/"}
BASIC = "Basic dTpw"


def test_several_addresses():
    assert read_settings({"schema_registry_url": "http://a, https://b/api/"}).urls == ("http://a", "https://b/api")


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({}, None),
        ({"basic.auth.user.info": "u:p"}, BASIC),
        ({"schema.registry.basic.auth.user.info": "u:p", "basic.auth.credentials.source": "USER_INFO"}, BASIC),
        ({"basic.auth.credentials.source": "SASL_INHERIT", "sasl.username": "u", "sasl.password": "p"}, BASIC),
        ({"bearer.auth.token": "t"}, "Bearer t"),
        ({"bearer.auth.token.provider": lambda: "x"}, "Bearer x"),
    ],
)
def test_credentials(given, header):
    assert read_settings({**URL, **given}).authorization() == header


def test_credentials_of_the_address_are_removed_from_it():
    read = read_settings({"url": "http://u:p%40@127.0.0.1:1"})
    assert read.urls == ("http://127.0.0.1:1",)
    assert read.authorization() == "Basic dTpwQA=="


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "schema.registry.url is missing"),
        ({"url": "u:secret@localhost:8081"}, "schema.registry.url has"),
        ({**URL, "url": "http://b"}, "given twice"),
        ({**URL, "basic.auth.credentials.source": "OTHER"}, "USER_INFO"),
        ({**URL, "basic.auth.credentials.source": "SASL_INHERIT"}, "sasl.username"),
        ({**URL, "basic.auth.credentials.source": "USER_INFO"}, "basic.auth.user.info"),
        ({**URL, "basic.auth.user.info": "u:p", "bearer.auth.token": "t"}, "choose one"),
        ({**URL, "basic.auth.user.info": "secret"}, "NAME:PASSWORD"),
        ({**URL, "max.retries": "many"}, "whole number"),
        ({**URL, "max.retries": -1}, "at least 0"),
        ({**URL, "basic.auth.userinfo": "u:p"}, "did you mean 'basic.auth.user.info'"),
        ({**URL, "basic.auth.user.info": 5}, "is a int"),
    ],
)
def test_wrong_settings_are_named_and_secrets_are_not_shown(given, text):
    with pytest.raises(RegistrySettingError) as caught:
        read_settings(given)
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


def test_tls_context_only_for_https():
    assert read_settings(URL).tls() is None
    context = read_settings({"url": "https://a", "schema.registry.enable.ssl.certificate.verification": "false"}).tls()
    assert context.verify_mode is ssl.CERT_NONE


def test_unreadable_tls_file_is_a_setting_error():
    with pytest.raises(RegistrySettingError, match=r"schema\.registry\.ssl\.truststore\.location"):
        read_settings({"url": "https://a", "ssl.ca.location": "/missing.pem"}).tls()


def test_names_of_registry_settings_in_a_mixed_mapping():
    assert is_registry_setting("schema.registry.url")
    assert is_registry_setting("basic_auth_user_info")
    assert not is_registry_setting("sasl.username")
    assert not is_registry_setting("ssl.key.location")
