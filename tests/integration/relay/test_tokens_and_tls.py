"""A relay's own port: TLS where there is a certificate, and a token where there is a file of them."""

import asyncio
import json
import logging
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate

from forebay.app.cli import main
from forebay.model import Misconfigured
from forebay.relay.settings import RelaySettings, check_exposure
from forebay.relay.tls import certificate_of
from forebay.relay.tokens import read_tokens
from tests.integration.relay.rigs import RelayRig, a_relay, post

OLD, NEW = "old-token-0123456789", "new-token-0123456789"


def bearer(token: str) -> str:
    return f"Authorization: Bearer {token}"


def rewrite(file: Path, text: str) -> None:
    file.write_text(text)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n\n{NEW}\n")
    return file


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def certificate(authority: trustme.CA, tmp_path: Path) -> str:
    file = tmp_path / "relay.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    return str(file)


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.mark.parametrize("token", [OLD, NEW])
async def test_any_token_of_the_file_is_good_and_stays_with_the_relay(tokens: Path, token: str) -> None:
    async with a_relay(token_file=tokens) as rig, await rig.client() as client:
        client.send(
            post(b"x", "/", bearer(token), "X-Kept: 1"), post(b"y", "/", f"authorization: bearer {token}")
        )
        assert [(await client.answer())[0] for _ in range(2)] == [202, 202]
        first, second = await rig.destination.until(2)
        assert (first.headers, second.headers) == (((b"X-Kept", b"1"),), ())


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([], id="none"),
        pytest.param([bearer("another-token-0123456789")], id="unknown"),
        pytest.param([bearer("")], id="empty"),
        pytest.param([f"Authorization: Basic {OLD}"], id="basic"),
        pytest.param([f"X-Token: {OLD}"], id="other-header"),
        pytest.param([bearer("another-token-0123456789"), bearer(OLD)], id="second-one"),
    ],
)
@pytest.mark.parametrize(
    "asked", [("POST", "/in"), ("GET", "/metrics"), ("GET", "/status"), ("POST", "/healthz")], ids=str
)
async def test_others_are_refused_before_their_body_is_read(
    tokens: Path, headers: list[str], asked: tuple[str, str]
) -> None:
    method, path = asked
    async with a_relay(token_file=tokens) as rig, await rig.client() as client:
        whole = post(b"x" * 100_000, path, *headers, method=method)
        client.send(whole[:1000])
        status, said, body = await client.answer()
        assert (status, said["www-authenticate"][:6]) == (401, "Bearer")
        assert json.loads(body)["status"] == 401
        assert await client.ends()
        assert (rig.destination.seen, rig.relay.pending_bytes) == ([], 0)
        assert rig.relay.requests[401] == 1


async def test_probes_need_no_token(tokens: Path) -> None:
    async with a_relay(token_file=tokens) as rig, await rig.client() as client:
        for path in ("/healthz", "/readyz?x=1"):
            client.send(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            assert (await client.answer())[0] == 200


async def test_without_tokens_the_header_is_the_destinations() -> None:
    async with a_relay() as rig, await rig.client() as client:
        client.send(post(b"x", "/", bearer(OLD)))
        assert (await client.answer())[0] == 202
        (request,) = await rig.destination.until(1)
        assert dict(request.headers)[b"Authorization"] == f"Bearer {OLD}".encode()


async def test_a_client_that_offers_another_protocol_shows_its_token_all_the_same(tokens: Path) -> None:
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA")
    async with a_relay(token_file=tokens) as rig:
        async with await rig.client() as client:
            client.send(post(b"x", "/", *offer, bearer(OLD)))
            assert (await client.answer())[0] == 202
        async with await rig.client() as client:
            client.send(post(b"x", "/", *offer))
            assert (await client.answer())[0] == 401
        (request,) = await rig.destination.until(1)
        assert request.headers == ()


async def test_a_token_is_replaced_without_a_restart(tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with a_relay(token_file=tokens) as rig:
        assert rig.relay.tokens is not None
        rewrite(tokens, f"{NEW}\n")
        rig.relay.tokens.look()
        for token, status in ((OLD, 401), (NEW, 202)):
            async with await rig.client() as client:
                client.send(post(b"x", "/", bearer(token)))
                assert (await client.answer())[0] == status
        rewrite(tokens, "")
        rig.relay.tokens.look()
        rig.relay.tokens.look()
        async with await rig.client() as client:
            client.send(post(b"x", "/", bearer(NEW)))
            assert (await client.answer())[0] == 202
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "can't be read", id="absent"),
        pytest.param(" \n", "holds no token", id="empty"),
        pytest.param("short-secret\n", "fewer than 16", id="short"),
        pytest.param("a token with spaces in it\n", "no header may have", id="spaces"),
    ],
)
def test_a_bad_file_of_tokens_is_said_and_not_quoted(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Misconfigured, match=said) as caught:
        read_tokens(file)
    assert "secret" not in str(caught.value)


async def test_requests_come_over_tls(certificate: str, authority: trustme.CA, tokens: Path) -> None:
    tls = trusting(authority)
    async with a_relay(tls_cert=certificate, token_file=tokens) as rig, await rig.client(tls) as client:
        client.send(*(post(b"%d" % number, "/", bearer(OLD)) for number in range(20)))
        assert {(await client.answer())[0] for _ in range(20)} == {202}
        assert len(await rig.destination.until(20)) == 20
        async with await rig.client(tls) as stranger:
            stranger.send(post(b"x" * 3_000_000, "/"))
            assert (await stranger.answer())[0] == 401


async def shown(rig: RelayRig) -> int:
    """The serial number of the certificate that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with await rig.client(context) as client:
        found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return load_der_x509_certificate(found).serial_number


def issue(authority: trustme.CA, file: Path, kind: trustme.KeyType) -> int:
    """Write a new certificate with its key; its serial number."""
    made = authority.issue_cert("127.0.0.1", key_type=kind)
    rewrite(file, made.private_key_and_cert_chain_pem.bytes().decode())
    return load_pem_x509_certificate(made.cert_chain_pems[0].bytes()).serial_number


async def test_a_certificate_is_replaced_without_a_restart(
    authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "relay.pem"
    first = issue(authority, file, trustme.KeyType.ECDSA)
    async with a_relay(tls_cert=str(file)) as rig, await rig.client(trusting(authority)) as before:
        assert rig.relay.certificate is not None
        assert await shown(rig) == first
        # Another kind of key: a context that has both would go on showing the first.
        second = issue(authority, file, trustme.KeyType.RSA)
        rig.relay.certificate.look()
        assert await shown(rig) == second
        for bad in ("nonsense", "", None):
            rewrite(file, bad) if bad is not None else file.unlink()
            rig.relay.certificate.look()
            rig.relay.certificate.look()
            assert await shown(rig) == second
        third = issue(authority, file, trustme.KeyType.ECDSA)
        rig.relay.certificate.look()
        assert await shown(rig) == third
        before.send(post(b"x"))
        assert (await before.answer())[0] == 202
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 3


async def test_a_key_that_does_not_fit_leaves_the_certificate_as_it_was(
    authority: trustme.CA, tmp_path: Path
) -> None:
    file, key = tmp_path / "relay.pem", tmp_path / "relay.key"
    first = issue(authority, file, trustme.KeyType.RSA)
    authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(str(key))
    with pytest.raises(Misconfigured, match="the key in"):
        certificate_of(RelaySettings(tls_cert=str(file), tls_key=str(key)))
    rewrite(key, file.read_text())
    async with a_relay(tls_cert=str(file), tls_key=str(key)) as rig:
        assert rig.relay.certificate is not None
        second = issue(authority, file, trustme.KeyType.RSA)
        rig.relay.certificate.look()
        assert await shown(rig) == first
        rewrite(key, file.read_text())
        rig.relay.certificate.look()
        assert await shown(rig) == second


async def test_a_running_relay_looks_at_its_files_by_itself(
    authority: trustme.CA, tmp_path: Path, tokens: Path
) -> None:
    file = tmp_path / "relay.pem"
    issue(authority, file, trustme.KeyType.ECDSA)
    async with a_relay(tls_cert=str(file), token_file=tokens) as rig:
        second = issue(authority, file, trustme.KeyType.ECDSA)
        rewrite(tokens, f"{NEW}\n")
        async with asyncio.timeout(60):
            while await shown(rig) != second:
                pass
            status = 0
            while status != 401:
                async with await rig.client(trusting(authority)) as client:
                    client.send(post(b"x", "/", bearer(OLD)))
                    status = (await client.answer())[0]


async def test_who_speaks_plainly_to_a_port_with_tls_gets_nothing(certificate: str) -> None:
    async with a_relay(tls_cert=certificate) as rig, await rig.client() as client:
        client.send(post(b"x"))
        assert await client.ends()
        assert rig.destination.seen == []


async def test_status_shows_a_relay_with_tls_and_tokens(
    certificate: str,
    authority: trustme.CA,
    tokens: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with a_relay(tls_cert=certificate, token_file=tokens) as rig:
        words = ["relay", "status", "--relay", f"https://127.0.0.1:{rig.port}", "--json"]
        words += ["--ca-file", str(tmp_path / "ca.pem")]
        assert await asyncio.to_thread(main, words) == 3
        assert "--token-file" in capsys.readouterr().err
        assert await asyncio.to_thread(main, [*words, "--token-file", str(tokens)]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert row["destination"] == "recorder-0"


def test_a_bad_certificate_is_said_before_anything_starts(
    tmp_path: Path, tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Misconfigured, match="holds no certificate in PEM format"):
        certificate_of(RelaySettings(tls_cert=str(tokens)))
    with pytest.raises(Misconfigured, match="without tls_cert"):
        RelaySettings(tls_key="key.pem")
    file = tmp_path / "relay.yaml"
    file.write_text(f"relay: {{tls_cert: {tokens}, token_file: {tmp_path}/none}}")
    assert main(["config", "check", str(file), "--relay", "--json"]) == 3
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert [fault["key"] for fault in faults] == ["relay.tls_cert", "relay.token_file"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param(RelaySettings(), None, id="loopback"),
        pytest.param(RelaySettings(listen="0.0.0.0:1", insecure=True), "no --token-file", id="open"),
        pytest.param(RelaySettings(listen="0.0.0.0:1", token_file="t"), "no --tls-cert", id="in-the-clear"),
        pytest.param(RelaySettings(listen="0.0.0.0:1", token_file="t", tls_cert="c"), None, id="guarded"),
    ],
)
def test_a_port_that_others_reach_is_warned_of(settings: RelaySettings, said: str | None) -> None:
    warning = check_exposure(settings)
    assert warning is None if said is None else said in (warning or "")


def test_a_port_without_tokens_stays_on_loopback_unless_that_is_said() -> None:
    with pytest.raises(Misconfigured, match="--insecure"):
        check_exposure(RelaySettings(listen="0.0.0.0:1"))
