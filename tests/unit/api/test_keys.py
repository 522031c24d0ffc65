"""Keys: what they may do, and what is told to whom."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.keys import ANYONE, SCOPES, Scope, digest_of, make_key, presented, recognised
from forebay.model import Forbidden, Rejected, TooLarge, Unauthorized


def test_a_key_is_recognised_by_its_text_alone() -> None:
    key, text = make_key("loader", ["push"], now=5)
    assert re.fullmatch(r"fbk_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}", text)
    assert presented(f"Bearer {text}") == presented(f"bearer {text}") == (key.id, key.digest)
    assert recognised(key, digest_of(text), now=6) is key


def test_neither_the_key_nor_its_secret_is_in_what_is_kept() -> None:
    key, text = make_key("loader", ["push"], now=5)
    assert text.rpartition("_")[2] not in repr(key)


def test_no_two_keys_are_the_same() -> None:
    texts = {make_key("loader", ["push"], now=5)[1] for _ in range(100)}
    assert len({text.rpartition("_")[2] for text in texts}) == 100


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (None, "missing"),
        ("", "missing"),
        ("Basic bWU6aHVudGVyMg==", "malformed"),
        ("Bearer", "malformed"),
        ("Bearer fbk_short_secret", "malformed"),
        (f"Bearer fbk_{'a' * 8}_{'b' * 43}x", "malformed"),
        (f"Bearer fbk_{'a' * 8}_{'b' * 42}é", "malformed"),
        (f"Bearer  fbk_{'a' * 8}_{'b' * 43}", "malformed"),
        ("Bearer \ud800", "malformed"),
    ],
)
def test_what_is_no_key_is_refused_by_form(header: str | None, reason: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        presented(header)
    assert caught.value.reason == reason


def test_the_outside_is_told_the_same_whatever_is_wrong() -> None:
    key, text = make_key("loader", ["push"], now=5, expires_at=10)
    wrong = text[:-1] + ("a" if text[-1] != "a" else "b")
    told, reasons = set(), []
    for known, shown, now in ((None, text, 6), (key, wrong, 6), (key, text, 10)):
        with pytest.raises(Unauthorized) as caught:
            recognised(known, digest_of(shown), now)
        told.add(str(caught.value))
        reasons.append(caught.value.reason)
    with pytest.raises(Unauthorized) as caught:
        presented(None)
    told.add(str(caught.value))
    assert reasons == ["unknown", "unknown", "expired"]
    assert len(told) == 1


def test_nobody_is_anyone_where_there_are_keys() -> None:
    with pytest.raises(Unauthorized):
        recognised(None, ANYONE.digest, 0)


@pytest.mark.parametrize("scope", SCOPES)
def test_admin_includes_all_scopes_and_the_others_only_themselves(scope: Scope) -> None:
    admin, _ = make_key("admin", ["admin"], now=0)
    single, _ = make_key("single", [scope], now=0)
    assert admin.allows(scope, "any")
    assert [other for other in SCOPES if single.allows(other)] == (
        list(SCOPES) if scope == "admin" else [scope]
    )


def test_a_key_with_prefixes_is_for_queues_that_begin_so() -> None:
    key, _ = make_key("team", ["read", "push"], now=0, queues=["team/", "shared"])
    assert key.allows("push", "team/orders")
    assert key.allows("read", "shared")
    assert not key.allows("push", "orders/team/")
    assert not key.allows("read", None)
    assert key.covers("team/x")
    assert not key.covers("teams")


def test_forbidden_says_which_scope_or_prefix_is_missing() -> None:
    key, _ = make_key("team", ["read"], now=0, queues=["team/"])
    key.check("read", "team/orders")
    with pytest.raises(Forbidden, match="lacks the scope push; it has read"):
        key.check("push", "team/orders")
    with pytest.raises(Forbidden, match="begin with 'team/', not for queue 'orders'"):
        key.check("read", "orders")
    with pytest.raises(Forbidden, match="all queues"):
        key.check("read")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": " "}, "empty"),
        ({"name": "a\nb"}, "control character"),
        ({"scopes": []}, "no scope"),
        ({"scopes": ["pull"]}, "no scope 'pull'.*read, push, take, admin"),
        ({"queues": [""]}, "prefix is empty"),
        ({"queues": [str(n) for n in range(101)]}, "101 queue prefixes"),
        ({"expires_at": 5}, "expire at once"),
        ({"rate_per_second": 0.0}, "rate is 0"),
        ({"rate_per_second": float("nan")}, "rate is nan"),
        ({"burst": 0}, "burst is 0"),
    ],
)
def test_a_key_that_makes_no_sense_is_rejected(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(Rejected, match=why):
        make_key(**{"name": "loader", "scopes": ["push"], "now": 5, **wrong})


def test_a_name_has_a_length() -> None:
    with pytest.raises(TooLarge):
        make_key("a" * 256, ["push"], now=5)


@given(st.text())
def test_any_header_is_a_key_or_refused(header: str) -> None:
    with pytest.raises(Unauthorized):
        presented(header)
