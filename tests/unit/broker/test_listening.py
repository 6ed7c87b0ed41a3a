"""Warnings about listeners that other machines can reach."""

from __future__ import annotations

import pytest

from ottla.broker import listening
from ottla.config import BrokerConfig


@pytest.mark.parametrize(
    ("mechanisms", "is_loopback", "warns"),
    [("SCRAM-SHA-512,PLAIN", False, True), ("SCRAM-SHA-512", False, False), ("PLAIN", True, False)],
)
def test_passwords_without_encryption_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mechanisms: str, is_loopback: bool, warns: bool
) -> None:
    monkeypatch.setattr(listening, "is_loopback", lambda _socket: is_loopback)
    listeners = listening.Listeners(
        BrokerConfig(
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": mechanisms,
                "sasl.jaas.config": 'PlainLoginModule required user_alice="hush";',
            }
        )
    )
    try:
        listeners.bind()
    finally:
        listeners.close()
    assert ("passwords and tokens of PLAIN and OAUTHBEARER can be read" in caplog.text) == warns
    assert "without authentication" not in caplog.text
