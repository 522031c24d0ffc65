"""A headless Chromium, driven over the DevTools protocol."""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from itertools import count
from typing import Any, Final

import aiohttp

from tests.servers import absent

__all__ = ["Page", "open_page"]

_START_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 120.0
_CODES: Final = {
    "Enter": 13, "Escape": 27, "Tab": 9, "Space": 32, "ArrowDown": 40, "ArrowUp": 38, "End": 35, "Home": 36,
}  # fmt: skip
_FLAGS: Final = (
    "--headless=new",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


class Page:
    """One tab. `errors` is what went wrong in it: exceptions, errors on the console, failed requests."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self.errors: list[str] = []

    async def listen(self) -> None:
        """Take in what the browser says, until it is gone."""
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                answer = self._answers.pop(told["id"])
                if not answer.done():  # nobody waits for it any longer
                    answer.set_result(told)
            elif told["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif (trouble := _trouble(told)) is not None:
                self.errors.append(trouble)

    async def command(self, method: str, **parameters: Any) -> Any:
        """Have the browser do something; what it answers."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        told = await asyncio.wait_for(answer, _ANSWER_SECONDS)
        assert "error" not in told, told["error"]
        return told["result"]

    async def go(self, url: str) -> None:
        """Load a page; returns when all of it is there."""
        self._loaded.clear()
        await self.command("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), _ANSWER_SECONDS)

    async def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        found = await self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true in the page; while it can't be evaluated it isn't."""
        is_so = f"const isSo = () => {{ try {{ return {expression}; }} catch {{ return false; }} }}"
        look = "const look = () => isSo() ? done() : setTimeout(look, 20)"
        script = f"new Promise((done) => {{ {is_so}; {look}; look(); }})"
        try:
            await self.command("Runtime.evaluate", expression=script, awaitPromise=True)
        except TimeoutError:
            shown = await self.value("document.body.innerText")
            raise AssertionError(f"it never came true: {expression}\n{shown}") from None

    async def click(self, selector: str) -> None:
        """Wait for an element, and click on it."""
        found = f"document.querySelector({json.dumps(selector)})"
        await self.until(found)
        await self.value(f"{found}.click()")

    async def press(self, key: str) -> None:
        """Press a key, and let it go: a character, or a name such as `Enter`."""
        text = {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else "")
        named = {"key": " " if key == "Space" else key, "windowsVirtualKeyCode": _CODES.get(key, 0)}
        await self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        await self.command("Input.dispatchKeyEvent", type="keyUp", **named)

    async def prefer(self, scheme: str) -> None:
        """Be light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.command("Emulation.setEmulatedMedia", features=features)

    async def type(self, text: str) -> None:
        """Type into what has the focus."""
        await self.command("Input.insertText", text=text)

    async def size(self, width: int, height: int) -> None:
        """Make the window so large."""
        await self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def picture(self) -> bytes:
        """What is seen, as PNG."""
        found = await self.command("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])


def _trouble(told: dict[str, Any]) -> str | None:
    method, details = told["method"], told["params"]
    if method == "Runtime.exceptionThrown":
        return str(details["exceptionDetails"])
    if method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning"):
        return str(details["args"])
    if method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
        return f"{details['entry']['text']} {details['entry'].get('url', '')}"
    return None


@contextlib.asynccontextmanager
async def open_page() -> AsyncIterator[Page]:
    """Start a browser with one empty page; it is ended with all it has written."""
    program = shutil.which("chromium")
    if program is None:
        absent("there is no chromium here; tools/system-packages installs it")
    folder = tempfile.mkdtemp(prefix="forebay-browser-")
    # Root may not use the sandbox; the page is our own.
    flags = [*_FLAGS, f"--user-data-dir={folder}", "--remote-debugging-port=0", "--no-sandbox"]
    environment = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}
    process = await asyncio.create_subprocess_exec(
        program,
        *flags,
        "about:blank",
        env=environment,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        port = await asyncio.wait_for(_port(process.stderr), _START_SECONDS)
        quiet = asyncio.create_task(_ignore(process.stderr))
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (address,) = [t["webSocketDebuggerUrl"] for t in await answer.json() if t["type"] == "page"]
            async with session.ws_connect(address, max_msg_size=1 << 28) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                for domain in ("Page", "Runtime", "Log"):
                    await page.command(f"{domain}.enable")
                yield page
                await socket.close()
                await listening
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    await quiet


async def _port(said: asyncio.StreamReader) -> int:
    """The port of the DevTools, which the browser says when it is ready."""
    while line := (await said.readline()).decode(errors="replace"):
        if "DevTools listening on ws://" in line:
            return int(line.partition("ws://")[2].partition("/")[0].rpartition(":")[2])
    return absent("chromium does not start here")


async def _ignore(said: asyncio.StreamReader) -> None:
    while await said.readline():
        pass
