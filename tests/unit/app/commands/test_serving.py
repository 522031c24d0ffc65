"""A server beyond loopback opens its port only if somebody keeps strangers out."""

import asyncio
import socket
from pathlib import Path

import pytest

from forebay.app.commands import serving
from forebay.app.configuring import load_settings
from forebay.model import Misconfigured
from tests.tokens import SECRET


class Listened(Exception):  # noqa: N818 - no error: it got as far as that
    """The port would be opened now."""


@pytest.mark.parametrize(
    ("jwt", "error"),
    [
        ({}, Misconfigured),
        ({"FOREBAY_JWT_ALGORITHM": "HS256", "FOREBAY_JWT_SECRET": SECRET}, Listened),
    ],
)
def test_tokens_guard_a_server_beyond_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jwt: dict[str, str], error: type[Exception]
) -> None:
    def listen(_: str) -> socket.socket:
        raise Listened

    monkeypatch.setattr(serving, "listen", listen)
    environ = {"FOREBAY_SERVER_LISTEN": "0.0.0.0:0", "FOREBAY_STORE_DATA": str(tmp_path), **jwt}
    with pytest.raises(error):
        asyncio.run(serving._serve(load_settings(environ=environ)))
