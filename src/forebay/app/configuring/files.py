"""The files that settings name, and whether they can be read.

Apart from reading the settings, since a command that makes such a file must be able to name it.
"""

from collections.abc import Iterator
from pathlib import Path

from forebay.api.jwt.signers import read_signers
from forebay.api.keyfile import read_keys
from forebay.api.queen.sealing import read_seal
from forebay.app.configuring.faults import Fault
from forebay.app.configuring.reading import DEFAULT, Loaded
from forebay.model import Misconfigured

__all__ = ["file_faults"]


def file_faults(loaded: Loaded) -> list[Fault]:
    """What a server that starts with these settings would stumble over."""
    return [*_tls_faults(loaded), *_key_faults(loaded), *_jwt_faults(loaded), *_seal_faults(loaded)]


def _tls_faults(loaded: Loaded) -> Iterator[Fault]:
    server = loaded.settings.server
    for name, path in (("tls_certificate", server.tls_certificate), ("tls_key", server.tls_key)):
        if path is None:
            continue
        try:
            with Path(path).open("rb") as file:
                file.read(1)
        except OSError as error:
            text = f"{path} can't be read: {error.strerror}"
            yield _fault(loaded, f"server.{name}", text, "name a PEM file that is there and readable")


def _key_faults(loaded: Loaded) -> Iterator[Fault]:
    path = loaded.settings.keys_file
    try:
        found = read_keys(path)
    except Misconfigured as error:
        yield _fault(loaded, "keys.file", error.message, error.hint)
        return
    if found is None and loaded.settings.keys.file is not None:
        hint = f"make a key with `forebay keys create --keys {path}`, or unset it"
        yield _fault(loaded, "keys.file", f"{path} isn't there", hint)


def _jwt_faults(loaded: Loaded) -> Iterator[Fault]:
    if loaded.settings.jwt.algorithm is None:
        return
    try:
        read_signers(loaded.settings.jwt)
    except Misconfigured as error:
        yield _fault(loaded, f"jwt.{error.key}", error.message, error.hint)


def _seal_faults(loaded: Loaded) -> Iterator[Fault]:
    try:
        read_seal(loaded.settings.queen)
    except Misconfigured as error:
        key = error.key or "encryption_keys_file"
        yield _fault(loaded, f"queen.{key}", error.message, error.hint)


def _fault(loaded: Loaded, key: str, message: str, hint: str | None) -> Fault:
    return Fault(key=key, source=loaded.origins.get(key, DEFAULT), message=message, hint=hint)
