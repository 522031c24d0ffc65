"""What is kept of an address in offsets: which log it is, and nothing of its password."""

import pytest

pytest.importorskip("pyspark")

from forebay.spark.following import address_mark


def test_an_address_is_the_same_log_whatever_the_user_and_the_password() -> None:
    plain = address_mark("postgresql://host:5432/db")
    assert plain == address_mark("postgresql://me:secret@host:5432/db")
    assert plain != address_mark("postgresql://host:5433/db")


@pytest.mark.parametrize("url", ["postgresql://me:se#cret@host/db", "postgresql://me:se/cret@host/db"])
def test_an_address_that_can_not_be_taken_apart_has_a_mark_too(url: str) -> None:
    assert address_mark(url) == address_mark("postgresql://host/db")
