"""Snapshots in Valkey or Redis, for several servers.

`PREFIX:current` names the version, `PREFIX:v12:data` and `PREFIX:v12:meta` are it. `PREFIX:term` is the last
term, `PREFIX:lock` is there while it lasts.

Each verb is one script, so it happens whole: a version is there with its pointer, and nobody reads between.
After everything was flushed nothing is current until the next publication; terms from before it are over.
"""

from __future__ import annotations

from typing import Any, Final, Self

from forebay.model import Corrupt, Misconfigured
from forebay.observe.snapshot_store import (
    KEEP_VERSIONS,
    PREFIX,
    Published,
    SnapshotMeta,
    SnapshotStore,
    Term,
    TermOver,
    check_keep,
    check_whole,
    decode_meta,
    encode_meta,
    failed_meta,
)
from forebay.warm.valkey.script import read_script
from forebay.warm.valkey.server import Argument, Server

__all__ = ["ValkeySnapshots"]

_SCRIPTS: Final = "forebay.observe.scripts"


class ValkeySnapshots:
    """Snapshots in Valkey. Use it with `async with`, which closes its connections."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = PREFIX,
        keep_versions: int = KEEP_VERSIONS,
        timeout_seconds: float = 5.0,
    ) -> None:
        if not prefix or any(character.isspace() for character in prefix):
            raise Misconfigured(f"prefix {prefix!r} cannot begin a key", hint="use letters, digits and . : -")
        self._prefix = prefix
        self._keep = check_keep(keep_versions)
        self._server = Server(url, timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    async def begin_term(self, owner: str, seconds: float) -> Term | None:
        """Begin a term, or go on with one's own; None while another's lasts."""
        number = await self._run("begin", owner, _milliseconds(seconds))
        return None if number is None else Term(owner, number)

    async def renew_term(self, term: Term, seconds: float) -> bool:
        """Let a term last so long from now on; False where it is over."""
        return bool(await self._run("renew", _text(term), _milliseconds(seconds)))

    async def end_term(self, term: Term) -> None:
        """Let others begin at once."""
        await self._run("end", _text(term))

    async def publish(self, term: Term, data: bytes, meta: SnapshotMeta) -> int:
        """Make a document the current one; its version."""
        found = await self._run("publish", _text(term), data, encode_meta(meta), self._keep)
        if found is None:
            text = f"term {term.number} of {term.owner} is over"
            raise TermOver(text, hint="another process publishes now")
        return int(found)

    async def note_failure(self, term: Term, error: str) -> bool:
        """Say beside the current document that a refresh failed since; False where it can't be said."""
        found = await self.current()
        if found is None:
            return False
        meta = encode_meta(failed_meta(found.meta, error))
        return bool(await self._run("note", _text(term), f"v{found.version}", meta))

    async def current(self, after: int = 0) -> Published | None:
        """The current document; None where there is none, or its version is `after`."""
        found = await self._run("current", f"v{after}")
        if found is None:
            return None
        pointer, data, meta = found
        version = int(pointer[1:])
        if data is None or meta is None:
            hint = "set its maxmemory-policy to noeviction"
            raise Corrupt(f"snapshot v{version} is current, and isn't there", hint=hint)
        return check_whole(version, data, decode_meta(version, meta))

    async def versions(self) -> list[int]:
        """The versions that are kept, oldest first."""
        return [int(version) for version in await self._run("versions")]

    async def _run(self, verb: str, *arguments: Argument) -> Any:
        return await self._server.run(read_script(_SCRIPTS, verb), self._prefix, *arguments)


def _text(term: Term) -> str:
    return f"{term.number}|{term.owner}"


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


_is_a_store: type[SnapshotStore] = ValkeySnapshots
