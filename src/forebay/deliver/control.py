"""Control: jobs for the dead letters of a queue that a relay has open, over a socket in the queue's folder.

The socket is a file that only its owner may use: the user who may change the queue's files.
A caller sends one line, a `LetterJob` as JSON, and gets lines back: steps, then an end.

The path of a socket may have 107 bytes, which the folder of a queue alone may have; so it is reached through
the folder's descriptor in `/proc`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from forebay.deliver.redrive import LetterJob, LetterStep, run_job
from forebay.deliver.send_queue import SendQueue
from forebay.model import ForebayError, Unavailable

__all__ = ["CONTROL", "QueueControl", "ask_control"]

logger: Final = logging.getLogger("forebay.deliver")
CONTROL: Final = "control"
_LINE_BYTES_MAX: Final = 16 << 20
_PATIENCE_SECONDS: Final = 60.0


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line of an answer: a step, or the end, with what went wrong."""

    step: LetterStep | None = None
    problem: str = ""
    hint: str = ""


_JOB: Final = msgspec.json.Decoder(LetterJob)
_LINES: Final = msgspec.json.Decoder(_Line)


@contextmanager
def _socket_path(folder: Path) -> Iterator[str]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{CONTROL}"
    finally:
        os.close(descriptor)


class QueueControl:
    """Takes jobs for one queue, one at a time."""

    def __init__(self, queue: SendQueue, folder: Path) -> None:
        self._queue = queue
        self._folder = folder
        self._turn = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._jobs: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; a folder in which that can't be done is said, and costs nothing else."""
        with suppress(FileNotFoundError):
            (self._folder / CONTROL).unlink()  # of a process that was killed: ours is the lock
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(sock.fileno(), 0o600)  # before it has a name, so that it is never open to others
            with _socket_path(self._folder) as path:
                sock.bind(path)
            self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=_LINE_BYTES_MAX)
        except OSError as error:
            logger.warning(
                "%s takes no socket (%s): its dead letters can be redriven only while the relay is stopped",
                self._folder, error.strerror or error,
            )  # fmt: skip
            sock.close()

    async def stop(self) -> None:
        """Take no more jobs, and end those that are under way after their page."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        with suppress(FileNotFoundError):
            (self._folder / CONTROL).unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        job = asyncio.current_task()
        assert job is not None
        self._jobs.add(job)
        try:
            with suppress(ConnectionError):
                await self._answer(reader, writer)
        finally:
            self._jobs.discard(job)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = _Line()
        try:
            job = _JOB.decode(await reader.readline())
            async with self._turn, aclosing(run_job(self._queue, job)) as steps:
                async for step in steps:
                    await _write(writer, _Line(step=step))
        except ForebayError as error:
            end = _Line(problem=error.message, hint=error.hint or "")
        except (msgspec.MsgspecError, ValueError) as error:
            end = _Line(problem=f"this isn't a job: {error}", hint="use the same version as the relay")
        await _write(writer, end)


async def _write(writer: asyncio.StreamWriter, line: _Line) -> None:
    writer.write(msgspec.json.encode(line) + b"\n")
    await writer.drain()


async def ask_control(folder: Path, job: LetterJob) -> AsyncGenerator[LetterStep, None]:
    """Have the process that has a queue open do a job; Unavailable where it doesn't answer."""
    try:
        with _socket_path(folder) as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_BYTES_MAX)
    except OSError as error:
        raise _gone(folder, error.strerror or str(error)) from None
    try:
        writer.write(msgspec.json.encode(job) + b"\n")
        while (line := await _read(reader, folder)).step is not None:
            yield line.step
        if line.problem:
            raise Unavailable(line.problem, hint=line.hint)
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, folder: Path) -> _Line:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            data = await reader.readline()
    except (TimeoutError, OSError, ValueError) as error:
        raise _gone(folder, str(error) or "it is silent") from None
    if not data.endswith(b"\n"):
        raise _gone(folder, "it ended meanwhile")
    return _LINES.decode(data)


def _gone(folder: Path, why: str) -> Unavailable:
    text = f"the process that uses {folder} can't be asked: {why}"
    return Unavailable(text, hint="try again; if it isn't a relay, end it first")
