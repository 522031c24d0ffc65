"""Receivers of Standard Webhooks can verify what we sign."""

import importlib
import time
from base64 import b64encode
from typing import Any

import pytest

from forebay.deliver.signature import parse_secret, signature_headers
from forebay.model import Misconfigured
from tests.servers import absent

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + b64encode(b"another secret of 32 bytes, okay").decode()
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
NOW = 1_614_265_330
BODY = b'{"test": 2432232314}'


def test_the_signature_is_that_of_the_specification() -> None:
    headers = dict(signature_headers([parse_secret(SECRET)], ID, NOW, BODY))
    assert headers == {
        b"webhook-id": ID.encode(),
        b"webhook-timestamp": b"1614265330",
        b"webhook-signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_every_live_secret_signs() -> None:
    keys = [parse_secret(SECRET), parse_secret(OTHER)]
    both = dict(signature_headers(keys, ID, NOW, BODY))[b"webhook-signature"].split(b" ")
    alone = [dict(signature_headers([key], ID, NOW, BODY))[b"webhook-signature"] for key in keys]
    assert both == alone
    assert len(set(both)) == 2


def verifier(secret: str) -> Any:
    try:
        module = importlib.import_module("standardwebhooks")
    except ModuleNotFoundError:
        absent("standardwebhooks isn't installed")
    return module.Webhook(secret)


@pytest.mark.parametrize("secret", [SECRET, OTHER])
def test_the_package_of_the_standard_verifies_it_with_either_secret(secret: str) -> None:
    webhook = verifier(secret)
    signed = signature_headers([parse_secret(SECRET), parse_secret(OTHER)], ID, int(time.time()), BODY)
    headers = {name.decode(): value.decode() for name, value in signed}
    assert webhook.verify(BODY, headers) == {"test": 2432232314}
    with pytest.raises(Exception, match="signature"):
        webhook.verify(BODY + b" ", headers)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_",
        "whsec_***",
        "whsec_c2hvcnQ=",
        "whsec_" + b64encode(bytes(65)).decode(),
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
    ],
)
def test_a_secret_that_is_none_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse_secret(text)
    assert caught.value.hint
    assert len(text) < 7 or text not in str(caught.value)
