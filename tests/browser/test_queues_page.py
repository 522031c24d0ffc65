"""The page to look at queues, in a real browser."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import time
from typing import Final

import msgspec
import pytest

from forebay.api.overview import LISTENERS_MAX
from forebay.app.opening import open_log
from forebay.log.values import Record
from forebay.observe.flow_places import STATES
from forebay.observe.programs import Program, programs_file, write_programs
from forebay.spark.flows.place import SPACE, Place
from tests.browser.chromium import Page, open_page
from tests.integration.http_wire import Wire, ask, request
from tests.integration.key_steps import add_key
from tests.servers import ForebayServer, PostgresServer
from tests.servers.process import free_port

QUICK: Final = {
    "metrics": {
        "queue_snapshot": {"refresh_interval": "100ms"},
        "plugins": {"org.example.Validate": "core-actions:2.43.0"},
    }
}
HOSTILE: Final = '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
LIVE: Final = "document.body.dataset.state === 'live'"
QUEUES: Final = "[...document.querySelectorAll('#queues tr.row .queue .text')].map((q) => q.textContent)"
DIALOG: Final = "document.querySelector('dialog[open]')"
BANNERS: Final = "document.querySelector('#banners').textContent"
TOASTS: Final = "document.querySelector('#toasts').textContent"
PICTURES: Final = Path(tempfile.gettempdir()) / "forebay-pictures"
"""Where they are kept, to be looked at."""


def push(server: ForebayServer, queue: str, count: int, flow: str = "", action: str = "") -> None:
    """Push messages of a flow."""
    headers = {"flow": flow, "flow_type": "TRANSFORM", "action": action} if flow else None
    messages = [{"payload": {"order": n}, "headers": headers} for n in range(count)]
    path = f"/v1/queues/{queue.replace('/', '%2F')}/messages"
    assert ask(server.port, "POST", path, messages).status == 201


def bury(server: ForebayServer, queue: str, count: int, reason: str) -> None:
    """Make dead letters."""
    taken = ask(server.port, "POST", f"/v1/queues/{queue}/take", {"count": count, "worker": "w-1"}).json()
    tasks = [{"id": task["id"], "lease": task["lease"]} for task in taken["tasks"]]
    assert len(tasks) == count
    assert ask(server.port, "POST", "/v1/bury", {"tasks": tasks, "reason": reason}).status == 200


def dead(server: ForebayServer, queue: str) -> int:
    """How many dead letters there are."""
    return len(ask(server.port, "GET", f"/v1/queues/{queue}/dead").json()["letters"])


@pytest.fixture(scope="module")
def server() -> Iterator[ForebayServer]:
    """Give a server with some queues, which it counts all the time."""
    with ForebayServer(sections=QUICK) as server:
        push(server, "org.example.Enrich", 1_234, "orders", "enrich")
        push(server, "org.example.Validate", 20, "orders", "validate")
        push(server, "org.example.Validate", 30, "returns", "validate")
        push(server, "org.example.Letters", 12, "billing", "invoice")
        ask(server.port, "POST", "/v1/queues/org.example.Enrich/take", {"count": 3, "worker": "worker-7"})
        yield server


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """Give an empty page."""
    async with open_page() as page:
        await page.size(1280, 900)
        yield page


async def open_queues(page: Page, server: ForebayServer, queue: str = "org.example.Enrich") -> None:
    """Load the page, and wait until it shows a queue."""
    await page.go(f"{server.url}/")
    await page.until(f"{LIVE} && {QUEUES}.includes({json.dumps(queue)})")


async def keep_picture(page: Page, name: str) -> None:
    """Keep what is seen."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{name}.png").write_bytes(await page.picture())


def cell(queue: str, column: str) -> str:
    """What a cell shows, as an expression."""
    rows = "[...document.querySelectorAll('#queues tr.row')]"
    row = f"{rows}.find((r) => r.querySelector('.queue .text').textContent === {json.dumps(queue)})"
    return f"{row}.querySelector('[data-column={column}]').textContent"


def chip(queue: str) -> str:
    """The button of a queue with dead letters, as an expression."""
    return f"[...document.querySelectorAll('.chip')].find((c) => c.textContent.startsWith('{queue}'))"


async def test_queues_are_shown_with_their_flows_and_sorted(page: Page, server: ForebayServer) -> None:
    await open_queues(page, server)
    assert await page.value(cell("org.example.Enrich", "total")) == "1,231"
    assert await page.value(cell("org.example.Enrich", "flow")) == "orders"
    assert (await page.value(QUEUES))[0] == "org.example.Enrich"
    assert "plugin: core-actions:2.43.0" in await page.value(
        "[...document.querySelectorAll('.queue')].map((q) => q.title).join()"
    )
    assert "accounted for" in await page.value("document.querySelector('#ledger').textContent")
    await page.click("th[data-column=flow] button")
    flows = "[...document.querySelectorAll('#queues tr.row [data-column=flow]')].map((f) => f.textContent)"
    up = await page.value(flows)
    assert up == sorted(up)
    await page.click("th[data-column=flow] button")
    assert await page.value(flows) == up[::-1]
    assert await page.value("document.querySelector('[aria-sort=descending]').dataset.column") == "flow"
    assert "sort=-flow" in await page.value("location.hash")
    await keep_picture(page, "queues-light")
    assert page.errors == []


async def test_a_filter_and_groups_narrow_the_table(page: Page, server: ForebayServer) -> None:
    await open_queues(page, server)
    await page.value("document.querySelector('#filter').focus()")
    await page.type("validate RETURNS")
    assert await page.value(QUEUES) == ["org.example.Validate"]
    assert await page.value("document.querySelector('#queues-count').textContent.startsWith('1 of')")
    await page.value("document.querySelector('#filter').select()")
    await page.type("no such queue")
    assert await page.value(QUEUES) == []
    await page.click("#queues .nothing button")
    all_of_them = await page.value(QUEUES)
    assert all_of_them.count("org.example.Validate") == 2
    await page.click("#grouped")
    grouped = await page.value(QUEUES)
    assert sorted(set(all_of_them)) == sorted(grouped)
    assert await page.value(cell("org.example.Validate", "total")) == "50"
    assert await page.value("document.querySelector('th[data-column=flow]').hidden")
    assert page.errors == []


async def test_numbers_change_while_one_looks(page: Page, server: ForebayServer) -> None:
    await open_queues(page, server)
    push(server, "org.example.Enrich", 1, "orders", "enrich")
    await page.until(f"{cell('org.example.Enrich', 'total')} === '1,232'")
    push(server, "brand/new", 2)
    await page.until(f"{QUEUES}.includes('brand/new')")
    await page.click("#running summary")
    await page.until("document.querySelector('#running .scroller').textContent.includes('worker-7')")
    await page.value("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    await page.value("document.dispatchEvent(new Event('visibilitychange'))")
    await page.until("document.body.dataset.state === 'paused'")
    await page.value("Object.defineProperty(document, 'hidden', {value: false})")
    await page.value("document.dispatchEvent(new Event('visibilitychange'))")
    await page.until(LIVE)
    assert page.errors == []


async def test_focus_and_selection_stay_while_numbers_change(page: Page, server: ForebayServer) -> None:
    push(server, "focus", 1)
    await open_queues(page, server, "focus")
    row = "[...document.querySelectorAll('#queues tr.row')].find((r) => r.textContent.includes('focus'))"
    await page.value(f"{row}.click()")
    button = f"{row}.nextSibling.querySelector('.actions button')"
    await page.value(f"{button}.focus()")
    push(server, "focus", 5_000)  # more than all others: the row comes first
    await page.until(f"[...{row}.nextSibling.querySelectorAll('dd')].some((d) => d.textContent === '5,001')")
    assert await page.value(f"{row} === document.querySelector('#queues tr.row')")
    assert await page.value(f"document.activeElement === {button}")
    await page.value("document.querySelector('#filter').focus()")
    await page.type("no such queue")
    await page.value("getSelection().selectAllChildren(document.querySelector('#queues .nothing'))")
    total = await page.value("document.querySelector('#totals').textContent")
    push(server, "focus", 1)
    await page.until(f"document.querySelector('#totals').textContent !== {json.dumps(total)}")
    assert "No queue has" in await page.value("getSelection().toString()")
    assert page.errors == []


async def test_names_and_payloads_of_others_are_text(page: Page, server: ForebayServer) -> None:
    queue = "hostile"
    headers = {"flow": HOSTILE, "flow_type": HOSTILE, "action": HOSTILE}
    message = {"payload": HOSTILE, "headers": headers, "partition": HOSTILE}
    assert ask(server.port, "POST", f"/v1/queues/{queue}/messages", [message]).status == 201
    bury(server, queue, 1, HOSTILE)
    assert ask(server.port, "POST", f"/v1/queues/{queue}/messages", [message] * 2).status == 201
    ask(server.port, "POST", f"/v1/queues/{queue}/take", {"count": 1, "worker": HOSTILE})
    name = '<img src=x onerror="hacked=1">'
    percent = "".join(f"%{byte:02x}" for byte in name.encode())
    assert ask(server.port, "POST", f"/v1/queues/{percent}/messages", [message]).status == 201
    pause = {"reason": HOSTILE}
    assert ask(server.port, "POST", "/v1/destinations/shop/pause", pause).status == 200
    await open_queues(page, server, name)
    for section in ("running", "dead", "deliveries"):
        await page.click(f"#{section} summary")
    await page.click("#queues tr.row")
    await page.until("document.querySelector('.below')")
    await page.value(f"{chip('hostile')}.click()")
    await page.until("document.querySelector('.letters .why')")
    assert await page.value("document.querySelector('.letters .why').textContent") == HOSTILE
    await page.click(".letters button.id")
    await page.until(f"{DIALOG}?.textContent.includes('dead')")
    assert await page.value("window.hacked ?? null") is None
    assert await page.value("document.querySelectorAll('main img, dialog img, main script').length") == 0
    assert page.errors == []
    ask(server.port, "POST", "/v1/destinations/shop/resume")


async def test_dead_letters_are_redriven_and_brought_back(page: Page, server: ForebayServer) -> None:
    queue = "org.example.Letters"
    bury(server, queue, 5, "HTTP 422: no such customer")
    await open_queues(page, server, queue)
    await page.click("#dead summary")
    await page.until(chip(queue))
    await page.value(f"{chip(queue)}.click()")
    await page.until("document.querySelectorAll('.letters tbody tr').length === 5")
    await page.click(".letters tbody input")
    await page.click(".letters button.danger")
    await page.until(f"{DIALOG}?.textContent.includes('Purge 1 dead letter')")
    await keep_picture(page, "purge")
    await page.press("Escape")
    await page.until(f"!{DIALOG}")
    assert dead(server, queue) == 5
    await page.click(".letters tbody input")
    await page.click(".letters button.primary")
    await page.until(f"{DIALOG}?.textContent.includes('Redrive 5 dead letters')")
    bury(server, queue, 1, "died after they were counted")
    await page.click("dialog .primary")
    await page.until(f"{TOASTS}.includes('5 dead letters of org.example.Letters redriven')")
    assert dead(server, queue) == 1
    await page.click(".toast button")
    await page.until(f"{TOASTS}.includes('again')")
    back = re.search(r"(\d+) messages? of", await page.value(TOASTS))
    assert back is not None
    assert dead(server, queue) == int(back[1]) + 1
    push(server, "other", 2)
    bury(server, "other", 2, "bad")
    await page.until("document.querySelector('#dead .choices').textContent.includes('other')")
    await page.value(f"{chip('other')}.click()")
    await page.until("document.querySelectorAll('.letters tbody tr').length === 2")
    await page.click(".letters button.danger")
    await page.click("dialog .danger")
    await page.until(f"{TOASTS}.includes('2 dead letters of other purged')")
    assert dead(server, "other") == 0
    await page.value("[...document.querySelectorAll('.toast')].at(-1).querySelector('button').click()")
    await page.until(f"{TOASTS}.includes('2 messages of other are dead letters again')")
    assert dead(server, "other") == 2
    assert page.errors == []


async def test_everything_can_be_done_by_keys(page: Page, server: ForebayServer) -> None:
    await open_queues(page, server)
    await page.press("/")
    assert await page.value("document.activeElement.id") == "filter"
    await page.type("org.example.Enrich")
    await page.press("Escape")
    assert await page.value("document.querySelector('#filter').value") == ""
    await page.press("g")
    assert await page.value("document.querySelector('#grouped').checked")
    await page.press("g")
    await page.value("document.querySelector('#queues tr.row').focus()")
    await page.press("ArrowDown")
    await page.press("Enter")
    opened = "document.querySelector('[aria-expanded=true]')"
    await page.until(f"{opened} === document.activeElement")
    assert await page.value(f"{opened} === document.querySelectorAll('#queues tr.row')[1]")
    await page.press("Tab")
    assert await page.value("document.activeElement.textContent") in ("Pause", "Resume")
    await page.press("Enter")
    await page.until(DIALOG)
    await page.press("Enter")
    await page.until(f"{TOASTS}.includes('is paused')")
    await page.until("[...document.querySelectorAll('.mode')].some((m) => m.textContent === 'paused')")
    await page.click(".toast button")
    await page.until(f"{TOASTS}.includes('hands out again')")
    await page.value("document.activeElement.blur()")
    for key, text in (("?", "Keyboard shortcuts"), ("f", "Find a message")):
        await page.press(key)
        await page.until(f"{DIALOG}?.textContent.includes('{text}')")
        await page.press("Escape")
        await page.until(f"!{DIALOG}")
    for section in ("running", "dead"):
        await page.value("document.activeElement.blur()")
        await page.press(section[0])
        await page.until(f"document.querySelector('#{section}').open")
    assert page.errors == []


async def test_one_message_is_found_with_its_path(page: Page, server: ForebayServer) -> None:
    pushed = ask(server.port, "POST", "/v1/queues/path/messages", [{"payload": {"a": [1, "x"]}}]).json()
    await open_queues(page, server)
    await page.press("f")
    await page.until(DIALOG)
    await page.type(pushed["results"][0]["id"])
    await page.press("Enter")
    await page.until(f"{DIALOG}?.textContent.includes('of path')")
    assert '"a": [' in await page.value(f"{DIALOG}.textContent")
    await keep_picture(page, "message")
    assert page.errors == []


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (800, 900), (360, 780)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_every_window_in_light_and_dark(
    page: Page, server: ForebayServer, width: int, height: int, scheme: str
) -> None:
    await page.size(width, height)
    await page.prefer(scheme)
    await open_queues(page, server)
    for section in ("running", "dead"):
        await page.click(f"#{section} summary")
    await page.click("#queues tr.row")
    assert await page.value("document.documentElement.scrollWidth") <= width
    ground = await page.value("getComputedStyle(document.documentElement).backgroundColor")
    assert (int(re.findall(r"\d+", ground)[0]) < 100) == (scheme == "dark")
    await keep_picture(page, f"page-{width}-{scheme}")
    assert page.errors == []


async def test_an_outage_is_told_and_what_is_spooled(page: Page) -> None:
    sections = {"metrics": {"queue_snapshot": {"refresh_interval": "100ms", "max_staleness": "1s"}}}
    with (
        PostgresServer() as cluster,
        ForebayServer(cluster.create_database(), sections=sections) as server,
    ):
        push(server, "orders", 3)
        await open_queues(page, server, "orders")
        cluster.stop()
        push(server, "orders", 7)
        await page.until(f"{BANNERS}.includes('The log has been away')")
        await page.until(f"{BANNERS}.includes('7 messages on this server')")
        await page.until("document.body.dataset.state === 'stale'")
        await page.until(f"{BANNERS}.includes('The numbers are old')")
        assert await page.value(cell("orders", "total")) == "3"
        ledger = "document.querySelector('#ledger').textContent"
        await page.until(f"{ledger}.includes('10 accepted, every one accounted for, 7 of them on this')")
        await page.click("#queues tr.row")
        facts = "[...document.querySelectorAll('.facts dl > div')].map((d) => d.textContent)"
        await page.until(f"{facts}.includes('spooled7')")
        await keep_picture(page, "outage")
        cluster.start()
        await page.until(f"{cell('orders', 'total')} === '10' && {BANNERS} === ''")
        await page.until(LIVE)
    assert page.errors == []


async def test_a_server_that_goes_and_comes_back_is_noticed(page: Page) -> None:
    with ForebayServer(sections=QUICK) as server:
        push(server, "orders", 3)
        await open_queues(page, server, "orders")
        server.kill()
        await page.until("document.body.dataset.state === 'disconnected'")
        assert "The numbers are those of" in await page.value(BANNERS)
        await keep_picture(page, "disconnected")
        server.start()
        await page.until(LIVE)
        push(server, "orders", 1)
        await page.until(f"{cell('orders', 'total')} === '4'")


async def test_where_too_many_listen_the_page_asks_now_and_then(page: Page) -> None:
    with ForebayServer(sections=QUICK) as server:
        push(server, "orders", 3)
        wires = [Wire(server.port) for _ in range(LISTENERS_MAX)]
        for wire in wires:
            wire.send(request("GET", "/v1/overview/events"))
            wire.receive()
        await page.go(f"{server.url}/queue-metrics")
        await page.until("document.body.dataset.state === 'polling'")
        push(server, "orders", 4)
        await page.until(f"{cell('orders', 'total')} === '7'")
        for wire in wires:
            wire.socket.close()


async def test_an_empty_server_says_how_to_begin(page: Page) -> None:
    with ForebayServer(sections=QUICK) as server:
        await page.go(server.url)
        nothing = "document.querySelector('#queues .nothing')?.textContent"
        await page.until(f"{nothing}.includes('/v1/queues/orders')")
        assert await page.value("document.querySelector('#deliveries').hidden")
        await keep_picture(page, "empty")
        assert page.errors == []


async def test_a_key_is_asked_for_and_kept_in_memory_only(page: Page) -> None:
    server = ForebayServer(sections=QUICK)
    server.data.mkdir()
    reader, admin = add_key(server.data, "read", "push"), add_key(server.data, "admin")
    with server:
        path = "/v1/queues/orders/messages"
        assert ask(server.port, "POST", path, [{"payload": 1}], headers=reader.headers).status == 201
        await page.go(server.url)
        await page.until(f"{DIALOG}?.textContent.includes('This server has keys')")
        await page.press("Escape")
        await page.until(f"!{DIALOG} && !document.querySelector('#key-open').hidden")
        await page.click("#key-open")
        await page.until(DIALOG)
        await page.type("fbk_nonsense")
        await page.press("Enter")
        await page.until(f"{DIALOG}?.textContent.includes('That key')")
        await page.type(reader.text)
        await page.press("Enter")
        await page.until(f"{LIVE} && {QUEUES}.includes('orders')")
        await page.click("#queues tr.row")
        await page.click(".below button")
        await page.click("dialog .primary")
        await page.until(f"{DIALOG}?.textContent.includes('scope admin')")
        await page.type(admin.text)
        await page.press("Enter")
        await page.until(f"{TOASTS}.includes('orders is paused')")
        for place in ("localStorage", "sessionStorage"):
            assert await page.value(f"{place}.length") == 0
        assert await page.value("document.cookie + location.href") == f"{server.url}/"
        assert admin.text not in await page.value("document.documentElement.outerHTML")
    lost = ("401", "403", "ERR_CONNECTION", "ERR_INCOMPLETE")  # refused on purpose, or the server has ended
    assert [error for error in page.errors if not any(word in error for word in lost)] == []


async def test_workers_and_flows_are_shown_with_what_they_are_told(page: Page, server: ForebayServer) -> None:
    counts = {"processed": 1_200, "errors": 3, "retried": 1, "in_progress": 4, "seconds_per_task": 0.021}
    queues = {"flowing": {**counts, "processors": 2, "processors_max": 4}}
    report = {"worker": "worker-1", "processors": 4, "queues": queues}
    orders = {"manager": "manager-1", "instructions": {"worker-1": {"flowing": 3}}}
    push(server, "flowing", 7)
    async with open_log(server.url) as log:
        (found,) = [queue for queue in await log.queues() if queue.name == "flowing"]
        group = await log.create_group(found, "daily")
        place = Place(checkpoint="x", start=1, end=1, batches=2, rows_in=5_000, rows_out=4_998, dead=2, at=1)
        key = f"sums/{found.number}/{group.number}"
        error = f"ValueError: no such customer {HOSTILE}"
        state = {"flow": "sums", "queue": "flowing", "group": "daily", "state": "failed", "error": error}
        told = Record(STATES, "sums", msgspec.json.encode(state), round((time() + 600) * 1e6))
        await log.commit(records=[Record(SPACE, key, msgspec.json.encode(place)), told])
    assert ask(server.port, "POST", "/v1/workers/instructions", orders).status == 200
    assert ask(server.port, "PUT", "/v1/workers/worker-1/report", report).status == 200
    await open_queues(page, server, "flowing")
    await page.until("!document.querySelector('#flows').hidden && !document.querySelector('#workers').hidden")
    for section in ("flows", "workers"):
        await page.click(f"#{section} summary")
    row = "[...document.querySelectorAll('#{} tr.row td')].map((cell) => cell.textContent)"
    await page.until(f"{row.format('flows')}.includes('5,000') && {row.format('flows')}.includes('7')")
    flow = await page.value(row.format("flows"))
    assert flow[:4] == ["sums", "restarting", "flowing · daily", "7"]
    assert flow[-1] == error
    assert "1 restarting" in await page.value("document.querySelector('#flows .note').textContent")
    worker = await page.value(row.format("workers"))
    assert worker == ["worker-1", "flowing", "2 of 4", "3", "4", "1,200", "3", "21.0 ms"]
    assert "led by manager-1" in await page.value("document.querySelector('#workers .note').textContent")
    await keep_picture(page, "workers-and-flows")
    assert page.errors == []


async def test_programs_on_spark_are_shown_while_they_come_up(page: Page) -> None:
    with ForebayServer(sections=QUICK) as server:
        push(server, "orders", 1)
        file, again_at = programs_file(str(server.data)), round((time() + 600) * 1e6)
        await open_queues(page, server, "orders")
        assert await page.value("document.querySelector('#flows').hidden")
        shown = "document.querySelector('#flows .programs').textContent"
        note = "document.querySelector('#flows .note').textContent"
        await page.value("document.querySelector('#flows').open = true")
        for program, text, said in (
            (Program(name="pipeline", state="starting"), "startingThe pipeline", "the pipeline: starting"),
            (Program(name="pipeline", state="running"), "runningThe pipeline", ""),
            (
                Program(name="pipeline", state="waiting", reason="status 1", again_at=again_at),
                ": status 1",
                "the pipeline: waiting",
            ),
            (
                Program(name="snapshot", state="missing", reason="there is no Java"),
                "missingRich series · there is no Java",
                "rich series: missing",
            ),
        ):
            write_programs(file, [program, Program(name="worker", state="running")])
            await page.until(f"{shown}.includes({json.dumps(text)}) && {note} === {json.dumps(said)}")
            if program.state == "waiting":
                assert re.search(r"tried again in (9m|10m)", await page.value(shown))
        await keep_picture(page, "programs")
    assert page.errors == []


async def test_deliveries_show_their_state_and_backlog_and_are_paused_and_resumed(page: Page) -> None:
    nowhere = {"url": f"http://127.0.0.1:{free_port()}/away", "allow_private": True}
    sections = {**QUICK, "deliver": {"hooks": {"queue": "hooks", "group": "workers", "destination": nowhere}}}
    with ForebayServer(sections=sections) as server:
        push(server, "hooks", 1)
        await open_queues(page, server, "hooks")
        await page.until("!document.querySelector('#deliveries').hidden")
        await page.click("#deliveries summary")
        column = "document.querySelector('#deliveries td[data-column={}]')?.textContent"
        await page.until(f"{column.format('name')} === 'hooks' && {column.format('queue')} === 'hooks'")
        await page.until(f"Number({column.format('failed')}) > 0")
        await page.click("#deliveries td button")
        await page.until(f"{DIALOG}?.textContent.includes('Pause hooks?')")
        await page.press("Enter")
        await page.until(f"{TOASTS}.includes('hooks is paused')")
        await page.until(f"{column.format('breaker')} === 'paused'")
        assert "1 not delivering" in await page.value(
            "document.querySelector('#deliveries .note').textContent"
        )
        push(server, "hooks", 4)
        await page.until(f"Number({column.format('backlog')}) >= 4")
        await keep_picture(page, "deliveries")
        await page.until("document.querySelector('#deliveries td button').textContent === 'Resume'")
        await page.click("#deliveries td button")
        await page.until(f"{TOASTS}.includes('hooks gets messages again')")
        await page.until(f"{column.format('breaker')} !== 'paused'")
        assert page.errors == []


async def load(page: Page, server: ForebayServer, module: str) -> None:
    """Have a module of the page at hand as `window.loaded`."""
    await page.go(f"{server.url}/")
    await page.value(f"void import('/page/{module}.js').then((found) => {{ window.loaded = found; }})")
    await page.until("window.loaded")


async def test_tasks_that_run_for_more_than_five_minutes_are_marked(
    page: Page, server: ForebayServer
) -> None:
    await load(page, server, "boards")
    task = {"queue": "orders", "group": "workers", "count": 1, "flow": {}, "attempts": 0, "first": "1"}
    now = 1_000_000_000
    tasks = [{**task, "worker": f"w-{age}", "since": now - age * 1_000_000} for age in (299, 301)]
    await page.value(f"window.tasks = {json.dumps(tasks)}")
    await page.value(
        f"(() => {{ window.table = loaded.runningTable({{now: {now}}}); table.show(tasks); "
        "document.body.append(table.node); })()"
    )
    cells = "[...table.node.querySelectorAll('[data-column=duration].number, td[data-column=duration]')]"
    shown = await page.value(
        f"{cells}.filter((c) => c.matches('td')).map((c) => [c.textContent, c.dataset.kind])"
    )
    assert shown == [["5m 1s", "late"], ["4m 59s", ""]]
    assert await page.value(f"loaded.longRunning(tasks, {now})") == 1
    assert page.errors == []


async def test_rates_plot_and_time_to_drain_are_shown(page: Page, server: ForebayServer) -> None:
    await load(page, server, "queues")
    queue = {
        "queue": "orders", "group": "workers", "plugin": "unknown", "mode": "warm", "ready": 120, "leased": 0,
        "delayed": 0, "dead": 0, "warm": 120, "cold": 0, "held": 120, "held_max": 1_000,
        "accepted": 500, "done": 380, "oldest_at": 1_000_000, "in_rate": 12.5, "out_rate": 42.0,
        "drain_seconds": 90.0, "flows": [],
    }  # fmt: skip
    slow = {"queue": "slow", "drain_seconds": None, "in_rate": 50.0}
    still = {"queue": "still", "drain_seconds": None, "out_rate": 0.0}
    queues = [queue, {**queue, **slow}, {**queue, **still}]
    points = [{"at": 1_000 + 5 * n, "in": n, "out": 2 * n} for n in range(10)]
    await page.value(
        f"(() => {{ const queues = {json.dumps(queues)}, points = {json.dumps(points)}; "
        "const plots = {version: 1, points: () => points}; "
        "const shown = {now: 100_000_000, plots, sort: {id: 'queue', down: false}, onsort() {}}; "
        "window.table = loaded.queuesTable(shown); table.show(loaded.rowsOf(queues, false)); "
        "document.body.append(table.node); })()"
    )
    column = "[...table.node.querySelectorAll('td[data-column={}]')].map((cell) => cell.{})"
    assert await page.value(column.format("in", "textContent")) == ["13", "50", "13"]
    assert await page.value(column.format("out", "textContent")) == ["42", "42", "0"]
    assert await page.value(column.format("drain", "textContent")) == ["1m 30s", "growing", "stalled"]
    lines = column.format("plot", "querySelectorAll('path.in, path.out, path.out-area').length")
    assert await page.value(lines) == [3, 3, 3]
    assert page.errors == []


async def test_books_that_do_not_balance_and_a_spool_that_drains_are_told(
    page: Page, server: ForebayServer
) -> None:
    await load(page, server, "summary")
    off = [{"queue": f"q{n}", "group": "workers", "difference": -n} for n in (9, 4, 3, 1)]
    ledger = {"accepted": 100, "done": 90, "difference": 17, "differences": off}
    await page.value(f"loaded.showLedger(document.querySelector('#ledger'), {json.dumps(ledger)})")
    told = await page.value("document.querySelector('#ledger').textContent")
    assert "The books don't balance" in told
    assert "q9 · workers: -9" in told
    assert await page.value("document.querySelector('#ledger').dataset.state") == "off"
    spool = {
        "pending": 7_000, "bytes": 1 << 20, "settlements": 2, "rate": 3_500.0, "seconds_left": 2.0,
        "healthy": True,
    }  # fmt: skip
    overview = {"spool": spool, "at": 0, "log": None, "problems": []}
    ((state, title, text),) = await page.value(f"loaded.troubles({json.dumps(overview)})")
    assert (state, title) == ("warn", "The log is back, and the spool drains")
    assert "7,000 messages" in text
    assert "3,500/s go to the log, 2s left" in text
    assert page.errors == []
