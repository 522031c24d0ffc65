"""Keys for a server in tests, made as `forebay keys` makes them."""

from pathlib import Path
from typing import Any, NamedTuple

from forebay.api.keyfile import change_keys, revoke, with_key
from forebay.api.keys import make_key
from forebay.model import SystemClock


class KeyForTest(NamedTuple):
    """A key, and how it is shown."""

    id: str
    text: str

    @property
    def headers(self) -> dict[str, str]:
        """What goes with a request."""
        return {"Authorization": f"Bearer {self.text}"}


def add_key(data: Path, *scopes: str, **details: Any) -> KeyForTest:
    """Make a key in the data folder of a server; `details` are those of `make_key`."""
    now = SystemClock().now()
    key, text = make_key("test", scopes, now=now, **details)
    change_keys(data / "keys.json", lambda keys: with_key(keys, key, now))
    return KeyForTest(key.id, text)


def revoke_key(data: Path, id: str) -> None:
    """Make a key invalid."""
    change_keys(data / "keys.json", lambda keys: revoke(keys, id, SystemClock().now()))
