"""The connection to the server: scripts, messages between servers, and errors in Forebay's terms.

The only module that knows redis-py. Invariants: no call waits longer than `timeout_seconds` for an answer; no
call is sent twice, since nobody knows what became of the first; no text of an error holds a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from forebay.model import Misconfigured
from forebay.warm.seam import EpochLost, WarmAway
from forebay.warm.valkey.script import Script

logger: Final = logging.getLogger("forebay.warm")
_CONNECTIONS_MAX: Final = 64
_QUIET_SECONDS: Final = 10.0
"""How long a subscription may hear nothing before the server is asked whether it is there."""
_SCHEMES: Final = {
    "valkey": "redis",
    "valkeys": "rediss",
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
}
_PASSING: Final = ("LOADING", "READONLY", "OOM", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "MISCONF", "NOREPLICAS")
"""Errors that a server gives while it cannot work: it loads, it is a replica, it is full, its disk fails."""
_REFUSED: Final = ("NOAUTH", "WRONGPASS", "NOPERM", "invalid password", "invalid username-password pair")

Argument = str | bytes | int


class _Redis:
    """What is used of redis-py, imported late: it comes with an extra."""

    def __init__(self) -> None:
        try:
            import redis.asyncio  # noqa: PLC0415
            from redis import exceptions  # noqa: PLC0415
            from redis.asyncio.retry import Retry  # noqa: PLC0415
            from redis.backoff import NoBackoff  # noqa: PLC0415
        except ImportError as error:
            raise Misconfigured(
                "the warm tier on Valkey needs the package redis", hint="pip install 'forebay[valkey]'"
            ) from error
        self.asyncio: Any = redis.asyncio
        self.exceptions: Any = exceptions
        self.never: Any = Retry(NoBackoff(), 0)
        # uvloop raises RuntimeError where a connection is written to that was reset before.
        self.failures: Any = (OSError, RuntimeError, exceptions.RedisError)


class Server:
    """A server at an address, whether it is up or not. Close it with `close`."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._redis = _Redis()
        self._seconds = timeout_seconds
        self._url, self.place = _parse(url)
        try:
            self._pool = self._make_pool(_CONNECTIONS_MAX)
        except (ValueError, TypeError) as error:
            raise _bad_address(self.place) from error
        self._client: Any = self._redis.asyncio.Redis(connection_pool=self._pool)

    def _make_pool(self, size: int) -> Any:
        return self._redis.asyncio.BlockingConnectionPool.from_url(
            self._url,
            max_connections=size,
            timeout=self._seconds,
            socket_timeout=self._seconds,
            socket_connect_timeout=self._seconds,
            retry=self._redis.never,
            protocol=2,
        )

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        with contextlib.suppress(*self._redis.failures):
            await self._pool.disconnect()

    async def check(self) -> str | None:
        """Refuse what no waiting cures: a wrong password or database, and eviction of any key.

        Returns why the server can't be reached, if it can't: that may pass.
        """
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._client.info("memory")
        except self._redis.failures as error:
            if self._is_refusal(error):
                raise Misconfigured(
                    f"Valkey at {self.place} refuses us ({_first_line(error)})",
                    hint="check user, password and database in its address",
                ) from None
            return self._unavailable(f"is out of reach ({_first_line(error)})").message
        policy = str(found.get("maxmemory_policy", ""))
        if policy.startswith("allkeys"):
            raise Misconfigured(
                f"Valkey at {self.place} may evict any key (maxmemory-policy {policy})",
                hint="set its maxmemory-policy to noeviction",
            )
        return None

    async def info(self) -> dict[str, Any]:
        """What the server says of itself."""
        with self._errors():
            async with asyncio.timeout(self._seconds):
                found: dict[str, Any] = await self._client.info()
                return found

    async def run(self, script: Script, key: str, *arguments: Argument) -> Any:
        """Run a script on the keys that begin with `key`; it happens whole or not at all."""
        try:
            return await self._command("EVALSHA", script.digest, 1, key, *arguments)
        except self._redis.exceptions.NoScriptError:
            # The server has begun anew, or its scripts were flushed. EVAL keeps the script.
            return await self._command("EVAL", script.text, 1, key, *arguments)

    async def publish(self, channel: str, text: str) -> None:
        """Say something to whoever is subscribed."""
        await self._command("PUBLISH", channel, text)

    async def _command(self, *words: Argument) -> Any:
        with self._errors():
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._client.execute_command(*words)
            except (self._redis.exceptions.ConnectionError, RuntimeError):
                # Those that lie idle were most likely lost with this one: they shall fail nobody else.
                await self._hang_up_idle()
                raise

    async def _hang_up_idle(self) -> None:
        """Close connections that lie idle; one that can't be closed in order is of no use either."""
        try:
            await self._pool.disconnect(inuse_connections=False)
        except asyncio.CancelledError:
            # redis-py also raises what closing a connection ended with, as if it had happened to us.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        except Exception:  # noqa: BLE001 - the connection was lost, which is what the caller is told
            return

    @contextlib.asynccontextmanager
    async def subscription(self, channel: str) -> AsyncIterator[AsyncIterator[str]]:
        """Give what is said on a channel, on a connection of its own, until that is lost."""
        pool = self._make_pool(1)
        pubsub = self._redis.asyncio.Redis(connection_pool=pool).pubsub(ignore_subscribe_messages=False)
        try:
            with self._errors():
                async with asyncio.timeout(self._seconds):
                    await pubsub.subscribe(channel)
                    if await pubsub.get_message(timeout=self._seconds) is None:  # that we are subscribed
                        raise TimeoutError
            yield self._texts(pubsub)
        finally:
            with contextlib.suppress(*self._redis.failures):
                await pubsub.aclose()
            with contextlib.suppress(*self._redis.failures):
                await pool.disconnect()

    async def _texts(self, pubsub: Any) -> AsyncIterator[str]:
        while True:
            with self._errors():
                found = await pubsub.get_message(timeout=_QUIET_SECONDS)
                if found is None:
                    # Nothing was said, or the connection is dead and nobody has told us.
                    await pubsub.ping()
                    found = await pubsub.get_message(timeout=self._seconds)
                    if found is None:
                        raise TimeoutError
            if found["type"] == "message":
                yield found["data"].decode(errors="replace")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Say what failed in Forebay's terms."""
        exceptions = self._redis.exceptions
        try:
            yield
        except (TimeoutError, exceptions.TimeoutError):
            raise self._unavailable(f"doesn't answer within {self._seconds} seconds") from None
        except exceptions.NoScriptError:
            raise
        except exceptions.RedisError as error:
            if self._is_refusal(error):
                hint = "check user, password and database in its address"
                raise self._unavailable(f"refuses us ({_first_line(error)})", hint) from None
            if self._is_passing(error):
                raise self._unavailable(f"is out of reach ({_first_line(error)})") from None
            if "INCOMPLETE" in str(error):
                raise EpochLost(
                    f"a part is missing of what Valkey at {self.place} had", hint="fill it again"
                ) from None
            raise AssertionError(f"a script failed: {error}") from error
        except self._redis.failures as error:
            raise self._unavailable(f"is out of reach ({_first_line(error)})") from None
        except (EpochLost, WarmAway):
            raise
        except Exception as error:
            # redis-py fails in ways of its own when connections break: the tier is away, nothing else is.
            logger.exception("talking to Valkey at %s failed in an unexpected way", self.place)
            raise self._unavailable(f"can't be talked to ({type(error).__name__})") from error

    def _is_refusal(self, error: BaseException) -> bool:
        exceptions = self._redis.exceptions
        text = str(error)
        kinds = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
        return isinstance(error, kinds) or text.startswith(_REFUSED) or "DB index" in text

    def _is_passing(self, error: BaseException) -> bool:
        exceptions = self._redis.exceptions
        kinds = (
            exceptions.ConnectionError,
            exceptions.ReadOnlyError,
            exceptions.OutOfMemoryError,
            exceptions.MasterDownError,
            exceptions.ClusterDownError,
        )
        return isinstance(error, kinds) or str(error).startswith(_PASSING)

    def _unavailable(self, what: str, hint: str = "it will be tried again; see whether it runs") -> WarmAway:
        return WarmAway(f"Valkey at {self.place} {what}", hint=hint, retry_after_seconds=self._seconds)


def _parse(url: str) -> tuple[str, str]:
    """The address as redis-py takes it, and a name for it that may be shown."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad_address("an address that cannot be read") from None
    scheme = _SCHEMES.get(parts.scheme)
    database = parts.path.strip("/")
    if scheme == "unix":
        return url, parts.path
    place = f"{parts.hostname or ''}:{port or 6379}" + (f"/{database}" if database else "")
    if scheme is None or not parts.hostname or not (database or "0").isdigit():
        raise _bad_address(place if parts.hostname else "an address without a server")
    return parts._replace(scheme=scheme).geturl(), place


def _bad_address(place: str) -> Misconfigured:
    return Misconfigured(
        f"{place} is no address of a Valkey", hint="write it like valkey://user:password@host:6379/0"
    )


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
