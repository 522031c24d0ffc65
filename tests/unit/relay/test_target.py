"""The path of a request maps onto the address of a destination as documented."""

import pytest

from forebay.deliver.values import Outcome, Prepared, Request
from forebay.relay.target import MappedDestination, map_target


@pytest.mark.parametrize(
    ("own", "came", "sent"),
    [
        (b"/", b"/v1/metrics?x=1", b"/v1/metrics?x=1"),
        (b"/", b"/", b"/"),
        (b"/?token=t", b"/hook", b"/hook?token=t"),
        (b"/api/v1/write", b"/api/v1/write", b"/api/v1/write"),
        (b"/api/v1/write", b"/anything/else?x=1", b"/api/v1/write?x=1"),
        (b"/hook?token=t", b"/?x=1", b"/hook?token=t&x=1"),
        (b"/otlp/", b"/v1/metrics", b"/otlp/v1/metrics"),
        (b"/otlp/", b"/v1/metrics?x=1", b"/otlp/v1/metrics?x=1"),
        (b"/otlp/", b"/", b"/otlp/"),
    ],
)
def test_paths(own: bytes, came: bytes, sent: bytes) -> None:
    assert map_target(own, came) == sent


class _Inner:
    name = "inner"

    def prepare(self, request: Request, *, id: str) -> Prepared:
        return Prepared(id, request, request.target, request.body)

    async def send(self, prepared: Prepared) -> Outcome:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def test_a_request_is_kept_as_it_came_so_that_its_halves_are_mapped_once() -> None:
    destination = MappedDestination(_Inner(), b"/base/")
    request = Request(b"POST", b"/x", (), b"body")
    prepared = destination.prepare(request, id="1")
    assert prepared.head == b"/base/x"
    assert prepared.request is request
