"""SASL mechanisms: the examples of the RFCs, both sides against each other, and malicious servers."""

from __future__ import annotations

import base64
import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security import oauthbearer, plain, scram
from ottla.security.mechanism import SaslError

RFC_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_FIRST = f"r={RFC_CLIENT_NONCE}{RFC_SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
RFC_FINAL = f"c=biws,r={RFC_CLIENT_NONCE}{RFC_SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
RFC_SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
passwords = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def credential(mechanism: str, password: str, salt: bytes = RFC_SALT, iterations: int = 4096) -> scram.Credential:
    return scram.derive(mechanism, scram.salted_password(mechanism, password, salt, iterations), salt, iterations)


# -- SCRAM -----------------------------------------------------------------------------------------------------


def test_scram_client_messages_match_rfc_7677() -> None:
    client = scram.ScramClient("SCRAM-SHA-256", "user", "pencil", RFC_CLIENT_NONCE)
    assert client.start() == f"n,,n=user,r={RFC_CLIENT_NONCE}".encode()
    assert (client.answer(RFC_FIRST), client.is_complete) == (RFC_FINAL, False)
    assert client.answer(RFC_SIGNATURE) is None
    assert client.is_complete
    assert client.answer(b"") is None


def test_scram_server_messages_match_rfc_7677() -> None:
    first = scram.read_client_first(f"n,,n=user,r={RFC_CLIENT_NONCE}".encode())
    server = scram.ScramServer("SCRAM-SHA-256", first, credential("SCRAM-SHA-256", "pencil"), RFC_SERVER_NONCE)
    assert server.challenge() == RFC_FIRST
    assert server.verify(RFC_FINAL) == RFC_SIGNATURE


@pytest.mark.parametrize("mechanism", scram.NAMES)
@given(username=names, password=passwords, salt=st.binary(min_size=1, max_size=30), other=passwords)
@settings(max_examples=25, deadline=None)
def test_only_the_correct_password_is_accepted(
    mechanism: str, username: str, password: str, salt: bytes, other: str
) -> None:
    kept = credential(mechanism, password, salt)
    for tried in {password, other}:
        client = scram.ScramClient(mechanism, username, tried, "abc")
        first = scram.read_client_first(client.start())
        assert first.username == username
        server = scram.ScramServer(mechanism, first, kept, "xyz")
        proof = client.answer(server.challenge())
        assert proof is not None
        if tried == password:
            client.answer(server.verify(proof))
            assert client.is_complete
        # HMAC pads its key with zeros: a password that differs in trailing NULs only is the same one.
        elif tried.rstrip("\0") != password.rstrip("\0"):
            with pytest.raises(SaslError, match="Wrong password"):
                server.verify(proof)


def test_scram_message_marks_a_delegation_token() -> None:
    first = scram.read_client_first(scram.ScramClient("SCRAM-SHA-512", "id", "hmac", "n", token_auth=True).start())
    assert (first.username, first.extensions) == ("id", {"tokenauth": "true"})


UNFAIR = [
    (b"r=other,s=QQ==,i=4096", "does not continue"),
    (f"r={RFC_CLIENT_NONCE},s=QQ==,i=4096".encode(), "does not continue"),
    (f"r={RFC_CLIENT_NONCE}x,s=QQ==,i=4095".encode(), "fewer than the 4096"),
    (f"r={RFC_CLIENT_NONCE}x,s=QQ==,i=999999999".encode(), "more than the 131072"),
    (f"r={RFC_CLIENT_NONCE}x,s=QQ==,i=9999999999999999".encode(), "no sense"),
    (f"r={RFC_CLIENT_NONCE}x,s=Q,i=4096".encode(), "not base64"),
    (b"", "no sense"),
    (b"\xff", "not UTF-8"),
    (b"r=" + b"x" * 9000, "too long"),
    (b"e=unknown-user", "unknown-user"),
]


@pytest.mark.parametrize(("challenge", "message"), UNFAIR, ids=[message for _, message in UNFAIR])
def test_server_with_invalid_challenge_receives_no_proof(challenge: bytes, message: str) -> None:
    client = scram.ScramClient("SCRAM-SHA-256", "user", "pencil", RFC_CLIENT_NONCE)
    client.start()
    with pytest.raises(SaslError, match=message) as caught:
        client.answer(challenge)
    assert "pencil" not in str(caught.value)
    with pytest.raises(SaslError, match="after the end"):
        client.answer(RFC_FIRST)


@pytest.mark.parametrize("last", [RFC_SIGNATURE.replace(b"6", b"7", 1), b"v=", b"", b"e=other-error", b"v=QQ=="])
def test_server_without_valid_signature_is_rejected(last: bytes) -> None:
    client = scram.ScramClient("SCRAM-SHA-256", "user", "pencil", RFC_CLIENT_NONCE)
    client.start()
    client.answer(RFC_FIRST)
    with pytest.raises(SaslError):
        client.answer(last)
    assert not client.is_complete


@given(st.binary(max_size=200))
def test_malformed_message_is_a_sasl_error_on_both_sides(data: bytes) -> None:
    first = scram.read_client_first(f"n,,n=user,r={RFC_CLIENT_NONCE}".encode())
    server = scram.ScramServer("SCRAM-SHA-256", first, credential("SCRAM-SHA-256", "pencil"), RFC_SERVER_NONCE)
    for read in (scram.read_client_first, server.verify, plain.read_message, oauthbearer.read_message):
        with contextlib.suppress(SaslError):
            read(data)


def test_proof_of_another_exchange_or_with_channel_binding_is_rejected() -> None:
    with pytest.raises(SaslError, match="channel binding"):
        scram.read_client_first(b"p=tls-unique,,n=user,r=abc")
    first = scram.read_client_first(b"n,,n=user,r=abc")
    server = scram.ScramServer("SCRAM-SHA-256", first, credential("SCRAM-SHA-256", "pencil"), "xyz")
    with pytest.raises(SaslError, match="not of this exchange"):
        server.verify(RFC_FINAL)


# -- PLAIN -----------------------------------------------------------------------------------------------------


def test_plain_token_matches_rfc_4616() -> None:
    client = plain.PlainClient("tim", "tanstaaftanstaaf")
    assert client.start() == b"\0tim\0tanstaaftanstaaf"
    client.answer(b"")
    assert client.is_complete
    assert plain.read_message(b"Ursel\0Kurt\0xipj3plmq") == ("Ursel", "Kurt", "xipj3plmq")


@pytest.mark.parametrize("token", [b"", b"\0\0", b"\0a\0", b"\0a\0b\0c", b"a\0b", b"\0\xff\0b"])
def test_malformed_plain_token_is_rejected(token: bytes) -> None:
    with pytest.raises(SaslError):
        plain.read_message(token)


def test_plain_rejects_nul_in_name_or_password() -> None:
    with pytest.raises(SaslError) as caught:
        plain.PlainClient("tim", "xyzzy\0")
    assert "xyzzy" not in str(caught.value)


# -- OAUTHBEARER -----------------------------------------------------------------------------------------------


def test_oauthbearer_token_matches_rfc_7628() -> None:
    token = oauthbearer.OAuthToken(
        "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", extensions={"host": "server", "port": "143"}
    )
    client = oauthbearer.OAuthBearerClient(token)
    assert client.start() == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01host=server\x01port=143\x01\x01"
    )
    assert client.answer(b"") is None
    assert client.is_complete
    message = oauthbearer.read_message(client.start())
    assert (message.token, message.authorization_id, message.extensions) == (token.value, "", dict(token.extensions))


def test_rejected_token_raises_the_reason_after_the_dummy_response() -> None:
    client = oauthbearer.OAuthBearerClient(oauthbearer.OAuthToken("abc"))
    client.start()
    assert client.answer(b'{"status":"invalid_token"}') == b"\x01"
    assert not client.is_complete
    with pytest.raises(SaslError, match="invalid_token"):
        client.answer(b"")


@pytest.mark.parametrize(
    "token",
    [
        oauthbearer.OAuthToken("a b"),
        oauthbearer.OAuthToken(""),
        oauthbearer.OAuthToken("a", extensions={"auth": "x"}),
        oauthbearer.OAuthToken("a", extensions={"k1": "x"}),
        oauthbearer.OAuthToken("a", extensions={"k": "x\x01auth=Bearer b"}),
    ],
)
def test_token_with_invalid_characters_is_rejected(token: oauthbearer.OAuthToken) -> None:
    with pytest.raises(SaslError):
        oauthbearer.OAuthBearerClient(token)


def test_unsecured_token_has_subject_and_expiry() -> None:
    token = oauthbearer.unsecured_jws("alice", now_s=1000.0, lifetime_s=60, claims={"scope": ["a"]})
    header, body, signature = token.value.split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    assert claims == {"sub": "alice", "iat": 1000.0, "exp": 1060.0, "scope": ["a"]}
    assert token.expires_at_ms == oauthbearer.expiry_of(token.value) == 1_060_000
    assert "alice" not in repr(token)
    assert token.value not in repr(token)


@pytest.mark.parametrize("token", ["", "a.b.c", "opaque", "a.bnVsbA.c", "a.eyJleHAiOnRydWV9.c"])
def test_token_without_expiry_has_no_expiry_time(token: str) -> None:
    assert oauthbearer.expiry_of(token) is None


_EXPIRIES = ["1e999", "-1e999", "Infinity", "NaN", "true", '"7"', "1e300", "9" * 40, "-1", "[" * 100_000]


@pytest.mark.parametrize("expiry", _EXPIRIES)
def test_invalid_expiry_is_ignored(expiry: str) -> None:
    body = base64.urlsafe_b64encode(b'{"exp": %s}' % expiry.encode()).decode().rstrip("=")
    assert oauthbearer.expiry_of(f"e30.{body}.") is None


def test_token_is_reused_for_four_fifths_of_its_lifetime() -> None:
    cache = oauthbearer.TokenCache()
    assert cache.get(0) is None
    token = oauthbearer.OAuthToken("a", expires_at_ms=2000)
    cache.put(token, now_ms=1000)
    assert cache.get(1799) is token
    assert cache.get(1800) is None
    cache.put(oauthbearer.OAuthToken("b"), now_ms=0)
    assert cache.get(0) is None
