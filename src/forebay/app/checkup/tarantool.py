"""A Tarantool server: whether what it acknowledges is on disk, whether blocks fit, and how full it is.

Nothing is created there and nothing is brought up to date.
"""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from forebay.app.checkup.finding import Finding, clock_finding, failure, ok, warning
from forebay.model import ForebayError, Limits, Misconfigured, format_bytes

__all__ = ["check_tarantool"]

ANSWER_SECONDS: Final = 10.0
FULL_WARNING: Final = 0.8
"""Of what may be used before pushes are refused."""

_ASK: Final = """
local schema = box.space.forebay_schema
local version = schema ~= nil and schema:get(1) or nil
local slab = box.slab.info()
return {
    _TARANTOOL, box.info.ro, require('clock').time(), box.cfg.wal_mode, box.cfg.memtx_max_tuple_size,
    version ~= nil and version[2] or 0, tonumber(slab.arena_used), tonumber(slab.quota_size),
}
"""


async def check_tarantool(url: str) -> AsyncIterator[Finding]:
    """Version, clock, settings, schema and memory."""
    try:
        from forebay.log.tarantool.server import dial, in_our_words, parse_address  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        yield failure("database", "Tarantool needs asynctnt", "pip install 'forebay[tarantool]'")
        return
    connection = None
    try:
        with in_our_words():
            connection = await dial(parse_address(url), ANSWER_SECONDS)
            before = time.time()
            response = await connection.eval(_ASK, timeout=ANSWER_SECONDS)
            findings = list(_judge(*response.body[0], at=(before + time.time()) / 2))
    except ForebayError as error:
        refused = isinstance(error, Misconfigured)
        helps = error.hint if refused else "tarantoolctl status, and see its log"
        yield failure("database", error.message, helps or "check --store")
        return
    finally:
        if connection is not None:
            connection.close()
    for finding in findings:
        yield finding


def _judge(
    version: str, read_only: object, clock: float, wal_mode: str, tuple_bytes: int, *rest: Any, at: float
) -> Iterator[Finding]:
    from forebay.log.tarantool.server import SCHEMA, tuple_bytes_needed  # noqa: PLC0415 - an extra

    schema, used, quota = rest
    yield ok("database", f"Tarantool {version}")
    if read_only:
        helps = "name the server that takes writes, or box.cfg{read_only = false}"
        yield failure("read_only", "it takes no writes", helps)
    yield clock_finding("database clock", clock - at)
    if wal_mode == "fsync":
        yield ok("wal_mode", wal_mode)
    else:
        text = f"{wal_mode}: a crash of the machine can lose what was acknowledged"
        yield failure("wal_mode", text, "box.cfg{wal_mode = 'fsync'}, and start it again")
    needed = tuple_bytes_needed(Limits().block_bytes_max)
    if tuple_bytes < needed:
        text = f"{format_bytes(tuple_bytes)}: blocks may be larger"
        helps = f"box.cfg{{memtx_max_tuple_size = {needed}}}, also for the next start"
        yield failure("memtx_max_tuple_size", text, helps)
    yield _judge_schema(schema, SCHEMA)
    yield _judge_memory(used, quota)


def _judge_schema(version: int, known: int) -> Finding:
    if version > known:
        text = f"schema {version}, made by a newer Forebay; this one knows {known}"
        return failure("schema", text, "pip install --upgrade forebay")
    return ok("schema", f"{version}, up to date" if version else "made on first use")


def _judge_memory(used: int, quota: int) -> Finding:
    from forebay.log.tarantool.server import blocks_bytes_max  # noqa: PLC0415 - an extra

    text = f"{format_bytes(used)} of {format_bytes(quota)} are used"
    helps = "box.cfg{memtx_memory = ...}, or keep_seconds of the queues"
    most = blocks_bytes_max(quota)
    if used > most:
        return failure("memory", f"{text}: pushes are refused", helps)
    if used >= most * FULL_WARNING:
        return warning("memory", text, helps)
    return ok("memory", text)
