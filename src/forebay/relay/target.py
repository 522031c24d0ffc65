"""How the path of a request maps onto the address of a destination. Pure functions.

=====================================  ===================  =================================
address of the destination             request              goes to
=====================================  ===================  =================================
`http://host:4318` (no path)           `/v1/metrics?x=1`    `/v1/metrics?x=1`, as it came
`http://host/api/v1/write` (fixed)     `/anything?x=1`      `/api/v1/write?x=1`
`http://host/otlp/` (ends with `/`)    `/v1/metrics?x=1`    `/otlp/v1/metrics?x=1`
=====================================  ===================  =================================

The query of the address comes first, then that of the request.
"""

from forebay.deliver.seam import Destination
from forebay.deliver.values import Outcome, Prepared, Request

__all__ = ["MappedDestination", "map_target"]


def map_target(own: bytes, came: bytes) -> bytes:
    """The path and query that are sent: `own` of the address, `came` of the request."""
    path, _, query = own.partition(b"?")
    came_path, _, came_query = came.partition(b"?")
    if path in (b"", b"/"):
        sent = came_path
    elif path.endswith(b"/"):
        sent = path + came_path.removeprefix(b"/")
    else:
        sent = path
    both = b"&".join(part for part in (query, came_query) if part)
    return sent + b"?" + both if both else sent


class MappedDestination:
    """A destination whose requests go to the path that the address asks for."""

    def __init__(self, inner: Destination, own_target: bytes) -> None:
        self._inner = inner
        self._own = own_target
        self._is_as_it_came = own_target in (b"", b"/")
        self._last = (b"", b"")
        """The last target and what it was mapped to: most requests have the same one."""

    @property
    def name(self) -> str:
        """The name of the destination."""
        return self._inner.name

    def prepare(self, request: Request, *, id: str) -> Prepared:
        """Make a request ready; it is kept as it came, so that its parts are mapped once."""
        if self._is_as_it_came:
            return self._inner.prepare(request, id=id)
        came, target = self._last
        if came != request.target:
            target = map_target(self._own, request.target)
            self._last = (request.target, target)
        mapped = Request(request.method, target, request.headers, request.body)
        prepared = self._inner.prepare(mapped, id=id)
        return Prepared(prepared.id, request, prepared.head, prepared.body)

    async def send(self, prepared: Prepared) -> Outcome:
        """Send it once."""
        return await self._inner.send(prepared)

    async def close(self) -> None:
        """End all connections."""
        await self._inner.close()
