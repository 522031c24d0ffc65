"""What is asked over the network: the warm tier on Valkey, and a Forebay server."""

import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from forebay.app.checkup.finding import Finding, clock_finding, failure, ok, warning
from forebay.model import ForebayError, Misconfigured

__all__ = ["check_server", "check_valkey", "judge_policy", "judge_readiness"]

ANSWER_SECONDS: Final = 5.0
VALKEY_MAJOR_MIN: Final = 7
TEXT_MAX: Final = 200
BODY_BYTES_MAX: Final = 4096
OK: Final = 200


async def check_valkey(url: str) -> AsyncIterator[Finding]:
    """A Valkey or Redis: version, eviction, memory."""
    from forebay.warm.valkey.server import Server  # noqa: PLC0415 - an extra

    try:
        server = Server(url, ANSWER_SECONDS)
    except Misconfigured as error:
        yield failure("valkey", error.message, error.hint or "check the address")
        return
    try:
        info = await server.info()
    except ForebayError as error:
        yield failure("valkey", error.message, "see whether it runs: valkey-cli ping")
        return
    finally:
        await server.close()
    version = str(info.get("valkey_version") or info.get("redis_version") or "unknown")
    name = "Valkey" if "valkey_version" in info else "Redis"
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < VALKEY_MAJOR_MIN:
        yield warning(
            "valkey", f"{name} {version} is older than what is tested", f"upgrade to {VALKEY_MAJOR_MIN}"
        )
    else:
        yield ok("valkey", f"{name} {version} at {server.place}")
    yield judge_policy(str(info.get("maxmemory_policy", "")))


def judge_policy(policy: str) -> Finding:
    """Whether the server may throw keys away."""
    if policy.startswith("allkeys"):
        text = f"{policy}: it may evict any key, so it is refused as a warm tier"
        return failure("eviction", text, "valkey-cli config set maxmemory-policy noeviction")
    return ok("eviction", policy or "none")


def judge_readiness(status: int, body: bytes) -> Finding:
    """What `/readyz` has answered: a server that is ready may do without a part."""
    shown = " ".join(body.decode(errors="replace").split())[:TEXT_MAX]
    if status != OK:
        return failure("ready", f"{status}: {shown}", "see the server's log")
    try:
        parts = msgspec.json.decode(body, type=_Readiness).parts
    except msgspec.DecodeError:
        return ok("ready", shown)
    if lacking := [f"{name}: {text}" for name, text in parts.items() if text != "ok"]:
        return warning("ready", f"yes, but {'; '.join(lacking)}"[:TEXT_MAX], "see whether that part runs")
    return ok("ready", shown)


class _Readiness(msgspec.Struct):
    parts: dict[str, str]


async def check_server(url: str) -> AsyncIterator[Finding]:
    """A server: whether it is alive, whether it is ready, and its clock."""
    import aiohttp  # noqa: PLC0415 - it takes longer to import than most commands take to run

    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            before = time.time()
            async with session.get(f"{url.rstrip('/')}/healthz") as answer:
                alive, date = answer.status, answer.headers.get("Date")
            middle = (before + time.time()) / 2
            async with session.get(f"{url.rstrip('/')}/readyz") as answer:
                ready, body = answer.status, await answer.content.read(BODY_BYTES_MAX)
    except (TimeoutError, aiohttp.ClientError, ValueError, OSError) as error:
        text = f"no server answers: {str(error) or type(error).__name__}"
        yield failure("server", text, "forebay serve, or name another with --store")
        return
    if alive != OK:
        yield failure("server", f"/healthz answers {alive}", "is it a Forebay server? check --store")
        return
    yield ok("server", "alive")
    yield judge_readiness(ready, body)
    if date is not None:
        # The header has whole seconds: on average it is half a second old.
        yield clock_finding("server clock", parsedate_to_datetime(date).timestamp() + 0.5 - middle)
