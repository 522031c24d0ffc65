"""The option `url`: readers and writers take the same addresses, which all of Spark's processes can open."""

from collections.abc import Callable

import pytest

from forebay.model import Misconfigured
from forebay.spark.options import read_options
from forebay.spark.sink_options import sink_options

SIDES = [
    lambda url: read_options({"url": url, "queue": "orders"}).url,
    lambda url: sink_options({"url": url, "queue": "orders"}, stream=False).url,
]
both = pytest.mark.parametrize("read", SIDES, ids=["source", "sink"])


@both
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user@host/database",
        "postgres://user@host/database",
        "sqlite:///log.db",
        "tarantool://host:3301",
        "http://host:6632",
        "https://host",
    ],
)
def test_an_address_of_a_log_is_taken_as_it_is(read: Callable[[str], str], url: str) -> None:
    assert read(url) == url


@both
@pytest.mark.parametrize("url", ["memory://", "nonsense", "ftp://user:secret@host/x", "log.db", "sqlite://x"])
def test_what_no_other_process_could_open_is_refused(read: Callable[[str], str], url: str) -> None:
    with pytest.raises(Misconfigured, match="option `url`: it is no address of a log") as caught:
        read(url)
    assert caught.value.key == "url"
    assert "sqlite:///file.db" in str(caught.value.hint)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("given", [{"queue": "orders"}, {"queue": "orders", "url": ""}])
def test_one_that_is_missing_is_asked_for(given: dict[str, str]) -> None:
    for read in (lambda: read_options(given), lambda: sink_options(given, stream=False)):
        with pytest.raises(Misconfigured, match="option `url` is missing"):
            read()
