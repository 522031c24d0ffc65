"""The connection of TarantoolLog: made when it is needed, with the procedures there, its errors in our words.

One connection takes all calls at once: the server works them one after the other anyway. A connection that
breaks, or doesn't answer in time, is dropped, and gives Unavailable: whether the last call was written is not
known then, and the caller repeats it with the same ids.

Bytes and texts go out as binary. They come back as Tarantool's strings, which need not be UTF-8: read as
Latin-1, every byte is one character, and `rows.raw` gives the bytes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import asynctnt
import msgspec
from asynctnt.exceptions import ErrorCode, TarantoolDatabaseError, TarantoolError, TarantoolNetworkError

from forebay.log.records import VALUE_BYTES_MAX
from forebay.model import Full, Misconfigured, TooLarge, Unavailable

PACKAGE: Final = "forebay.log.tarantool"
PORT: Final = 3301
SCHEMA: Final = 2
"""The version of the spaces in `spaces.lua`."""
CONNECT_SECONDS: Final = 5.0
"""How long a connection may take to be made: a server that swallows the attempt is tried again."""
CLOSE_SECONDS: Final = 5.0
"""How long a connection may take to be closed in order: by then nobody waits for an answer."""
TUPLE_FRAME_BYTES: Final = 64 << 10
"""Room for what surrounds a body in a row."""

FILES: Final = (
    "core", "spaces", "catalogue", "lanes", "handing", "holding", "records", "writing", "letters", "reading",
    "seeking", "upkeep",
)  # fmt: skip
"""The procedures, in the order in which they are loaded."""

# It says on standard error, where nobody listens, what its errors say again.
logging.getLogger("asynctnt").addHandler(logging.NullHandler())

_REFUSED: Final = (ErrorCode.ER_NO_SUCH_USER, ErrorCode.ER_PASSWORD_MISMATCH, ErrorCode.ER_ACCESS_DENIED)
_AWAY: Final = (
    ErrorCode.ER_READONLY,
    ErrorCode.ER_NONMASTER,
    ErrorCode.ER_LOADING,
    ErrorCode.ER_WAL_IO,
    ErrorCode.ER_CASCADE_ROLLBACK,
    ErrorCode.ER_TIMEOUT,
    ErrorCode.ER_TRANSACTION_CONFLICT,
    ErrorCode.ER_SESSION_CLOSED,
    ErrorCode.ER_NO_SUCH_PROC,
)
"""Read-only, starting, a disk that is full or fails, a server that was started again just now."""


_MORE_ROOM: Final = "raise its memtx_memory, or let retention drop more"
_BLOCKS_PART: Final = 0.9
_UNSHARED_BYTES: Final = 32 << 20
_LUA_FULL: Final = "not enough memory"
"""What a procedure says that has used up what Lua may have."""


class Refused(Exception):  # noqa: N818 - a signal between a procedure and its caller, not an error
    """A procedure that changed nothing, and why."""

    def __init__(self, kind: str, detail: Any) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


class Address(msgspec.Struct, frozen=True):
    """Where a server is, and as whom to come."""

    host: str
    port: int
    user: str | None
    password: str | None


@cache
def _procedures() -> tuple[str, str, list[list[bytes]]]:
    """The name under which this version of the procedures is installed, what installs them, their sources.

    Other versions have other names, so servers of several versions can share a Tarantool.
    """
    folder = resources.files(PACKAGE) / "lua"
    sources = [[f"{name}.lua".encode(), (folder / f"{name}.lua").read_bytes()] for name in FILES]
    digest = sha256(b"\0".join(source for _, source in sources)).hexdigest()
    return f"forebay_{digest[:16]}", (folder / "enter.lua").read_text("utf-8"), sources


def parse_address(url: str) -> Address:
    """Read `tarantool://user:password@host:port`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _no_address(url) from None
    if not parts.hostname or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise _no_address(url)
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    return Address(parts.hostname, port or PORT, user, password)


def _no_address(url: str) -> Misconfigured:
    """The error that shows an address from behind its password, as far as that can be told."""
    hint = "write tarantool://user:password@host:3301; %40 for an @ in it, %23 for a #, %2F for a /"
    shown = f"tarantool://…@{url.rpartition('@')[2]}" if "@" in url else url
    return Misconfigured(f"{shown!r} is no address of a Tarantool", hint=hint)


class Server:
    """One Tarantool that holds a Forebay log. `body_bytes_max` is the largest body that a block may have."""

    def __init__(self, url: str, *, timeout_seconds: float, body_bytes_max: int) -> None:
        self._address = parse_address(url)
        self._timeout = timeout_seconds
        self._tuple_bytes = tuple_bytes_needed(body_bytes_max)
        self._connection: asynctnt.Connection | None = None
        self._connecting = asyncio.Lock()
        self._is_open = False

    async def open(self) -> None:
        """Connect, and bring spaces and procedures up to date."""
        self._is_open = True
        try:
            with in_our_words():
                await self._connected()
        except Unavailable as error:
            await self.close()
            error.hint = "see that it runs, and that the address is right"  # nobody has written anything yet
            raise
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection; cut it if the server doesn't answer."""
        self._is_open = False
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await connection.disconnect()
            except (OSError, TimeoutError, TarantoolError):
                connection.close()

    def hang_up(self) -> None:
        """Cut the connection: whoever waits for an answer gets Unavailable."""
        self._drop(self._connection)

    async def call(self, verb: str, *arguments: Any) -> Any:
        """What a procedure returns; Refused where it changed nothing, an error of ours where it failed."""
        with in_our_words():
            connection = await self._connected()
            name, *_ = _procedures()
            try:
                async with asyncio.timeout(self._timeout):
                    response = await connection.call(f"{name}.{verb}", list(arguments))
            except (OSError, TimeoutError, TarantoolNetworkError):
                # Others wait on it, too, and in vain. Who is cancelled, on the other hand, goes alone.
                self._drop(connection)
                raise
        refusal, *answer = response.body
        if refusal is not None:
            raise Refused(refusal, answer[0] if answer else None)
        return answer[0] if answer else None

    def _drop(self, connection: asynctnt.Connection | None) -> None:
        if connection is not None:
            if self._connection is connection:
                self._connection = None
            _cut(connection)

    async def _connected(self) -> asynctnt.Connection:
        self._check_open()
        async with self._connecting:
            connection = self._connection
            if connection is None or not connection.is_connected:
                self._connection = None
                connection = await self._connect()
                try:
                    self._check_open()
                except Unavailable:
                    _cut(connection)
                    raise
                self._connection = connection
            return connection

    def _check_open(self) -> None:
        if not self._is_open:
            raise Unavailable("the log is closed", hint="open it again")

    async def _connect(self) -> asynctnt.Connection:
        connection = await dial(self._address, min(self._timeout, CONNECT_SECONDS))
        try:
            async with asyncio.timeout(self._timeout):
                await self._enter(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _enter(self, connection: asynctnt.Connection) -> None:
        """Look at how the server is set up, and install the procedures where they are missing."""
        name, enter, sources = _procedures()
        is_there, schema, *cfg = (await connection.eval(enter, [name, SCHEMA, None])).body
        self._check(*cfg)
        if not is_there and schema <= SCHEMA:
            _, schema, *_ = (await connection.eval(enter, [name, SCHEMA, sources])).body
        if schema > SCHEMA:
            text = f"Tarantool's log was made by a newer Forebay: schema {schema}, this one knows {SCHEMA}"
            raise Misconfigured(text, hint="upgrade Forebay")

    def _check(self, wal_mode: str, tuple_bytes: int) -> None:
        if wal_mode != "fsync":
            text = f"Tarantool's wal_mode is {wal_mode!r}: what it acknowledges can be lost"
            raise Misconfigured(text, hint="set box.cfg{wal_mode = 'fsync'} and start it again")
        if tuple_bytes < self._tuple_bytes:
            text = f"Tarantool's memtx_max_tuple_size is {tuple_bytes}: blocks may be larger"
            hint = f"set box.cfg{{memtx_max_tuple_size = {self._tuple_bytes}}}, also for the next start"
            raise Misconfigured(text, hint=hint)


async def dial(address: Address, timeout_seconds: float) -> asynctnt.Connection:
    """A connection that neither comes back by itself nor asks for anything by itself."""
    connection = asynctnt.Connection(
        host=address.host,
        port=address.port,
        username=address.user,
        password=address.password,
        fetch_schema=False,
        auto_refetch_schema=False,
        connect_timeout=timeout_seconds,
        reconnect_timeout=0,
        ping_timeout=0,
        encoding="latin-1",
    )
    try:
        await connection.connect()
    except BaseException:
        connection.close()
        raise
    return connection


def tuple_bytes_needed(body_bytes_max: int) -> int:
    """How large a row may have to be that holds a body."""
    return max(body_bytes_max, VALUE_BYTES_MAX) + TUPLE_FRAME_BYTES


def _cut(connection: asynctnt.Connection) -> None:
    """Close a connection at once: without waiting for what is still to be sent."""
    transport = connection._transport  # noqa: SLF001 - to close it in order waits for a server that may be away
    if transport is not None:
        transport.abort()
    connection.close()


@contextlib.contextmanager
def in_our_words() -> Iterator[None]:
    """Say Unavailable for what may pass by itself, Misconfigured or Rejected for what won't."""
    try:
        yield
    except TarantoolDatabaseError as error:
        raise _translated(error) from error
    except (OSError, TimeoutError, TarantoolError) as error:
        text = f"Tarantool is away: {str(error) or type(error).__name__}"
        hint = "try again with the same id: whether it was written is not known"
        raise Unavailable(text, hint=hint, retry_after_seconds=1.0) from error


def _translated(error: TarantoolDatabaseError) -> Exception:
    if error.code in _REFUSED:
        text = f"Tarantool refuses the user: {error}"
        hint = "check user and password, and grant read, write, execute, create and alter on the universe"
        return Misconfigured(text, hint=hint)
    if error.code == ErrorCode.ER_MEMORY_ISSUE or _LUA_FULL in str(error):
        return Full(f"Tarantool has no memory left: {error}", hint=_MORE_ROOM, retry_after_seconds=1.0)
    if error.code == ErrorCode.ER_MEMTX_MAX_TUPLE_SIZE:
        return TooLarge(f"Tarantool can't store this: {error}", hint="raise its memtx_max_tuple_size")
    if error.code in _AWAY:
        text = f"Tarantool can't do this at present: {error}"
        is_disk = error.code == ErrorCode.ER_WAL_IO
        hint = "see its disk, which may be full; then " if is_disk else ""
        return Unavailable(text, hint=f"{hint}try again with the same id", retry_after_seconds=1.0)
    return AssertionError(f"Tarantool: {error}")


def no_room() -> Full:
    """The error for a block that would take the memory that is left for working the others off."""
    text = "Tarantool has little memory left, which is for taking, settling and dropping messages"
    return Full(text, hint=_MORE_ROOM, retry_after_seconds=1.0)


def blocks_bytes_max(quota: int) -> float:
    """How much of the memory may be used before blocks are refused: as `writing.lua` has it."""
    return max(quota / 2, _BLOCKS_PART * (quota - _UNSHARED_BYTES))


def named(names: Sequence[str] | None) -> list[bytes] | None:
    """Texts on their way out."""
    return None if names is None else [text_out(name) for name in names]


def text_out(text: str) -> bytes:
    """A text on its way out."""
    return text.encode("utf-8", "surrogatepass")


def maybe_out(text: str | None) -> bytes | None:
    """A text on its way out, if there is one."""
    return None if text is None else text_out(text)
