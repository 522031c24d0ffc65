"""No secret of an address is shown."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:hun@ter/2@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:hun?ter2@host/db", "***"),
        ("sqlite:///x.db?warm=valkey://:hun&te=r&2@h", "***"),
        ("postgresql://me:hunter2", "postgresql://me:***"),
        ("postgresql://host/db?user=me&password=hunter2", "postgresql://host/db?user=me&password=***"),
        ("valkey://:hunter2@host:6379/0", "valkey://:***@host:6379/0"),
        ("sqlite:///x.db?warm=valkey://:hunter2@h", "sqlite:///x.db?warm=valkey://:***@h"),
        ("sqlite:///x.db?warm=valkey%3A%2F%2F%3Ahunter2%40h", "sqlite:///x.db?warm=valkey://:***@h"),
        ("postgresql//me:hunter2@host/db", "***@host/db"),
        ("me:hunter2@host", "***@host"),
    ],
)
def test_a_password_is_hidden_wherever_it_stands(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "forebay-data",
        "127.0.0.1:6632",
        "[::1]:6632",
        "memory://",
        "sqlite:///forebay-data/forebay.db",
        "postgresql://me@host:5432/db?sslmode=require",
        "valkey://[::1]:6379/0",
        "unix:///run/valkey.sock?db=1",
    ],
)
def test_what_holds_no_secret_is_shown_as_it_is(text: str) -> None:
    assert redact(text) == text


PIECES = st.sampled_from([*"@:/?&=%#", "Hunter2", "b=", "%3A"])
AWKWARD = st.lists(PIECES, min_size=1, max_size=9).map("".join)
PASSWORDS = (st.text(max_size=20) | AWKWARD).map(lambda text: f"Hunter2{text}Hunter2")


@given(password=PASSWORDS, scheme=st.sampled_from(["postgresql://", "valkey://", "nonsense", "x:/"]))
def test_no_password_survives_whatever_is_in_it(password: str, scheme: str) -> None:
    for written in (password, quote(password, safe="")):
        for text in (f"{scheme}me:{written}@host/db", f"sqlite:///x?warm=valkey://:{written}@host"):
            assert "Hunter2" not in redact(text)


def test_addresses_within_addresses_come_to_an_end() -> None:
    assert "Hunter2" not in redact("a?b=" * 5000 + "x://me:Hunter2@host")
