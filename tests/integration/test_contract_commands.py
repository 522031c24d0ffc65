"""`forebay contract`, as a user types it; and what it generates, as a user's program uses it."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.contract import Undecodable, UnknownFormat
from forebay.model import TIME_MAX, Misconfigured, Rejected
from forebay.store.seam import Store
from forebay.work import BindingSettings, HandlerStats, Worker, handler
from tests.integration.test_config_and_keys import forebay as run_forebay
from tests.servers.forebay import ForebayServer

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = """\
version: 1
queues:
  - id: 11
    name: emails
    fields:
      - {name: to, type: string}
      - {name: subject, type: string}
      - {name: body, type: "[]byte"}
      - {name: userId, type: int64}
    settings: {batch_size: 50, visibility_seconds: 30s, backoff: {initial_seconds: 2}}
  - id: 12
    name: notifications
    fields:
      - {name: message, type: string}
      - {name: target_ids, type: "[]int64"}
      - {name: is_urgent, type: bool}
    settings: {codec: iproto, ordered: true}
"""
GROWN = CONTRACT.replace("version: 1", "version: 2").replace(
    "      - {name: is_urgent, type: bool}\n",
    "      - {name: is_urgent, type: bool}\n      - {name: note, type: string}\n",
)
PROGRAM = '''\
"""A program that strict types must like."""

from collections.abc import Sequence

from forebay.store.seam import Store
from forebay.work import Context, HandlerStats, Storage, Worker
from {name} import (
    EmailsHandler,
    EmailsTask,
    NotificationsHandler,
    NotificationsTask,
    TasksClient,
    deserialize_emails_task,
    make_worker,
    serialize_emails_task,
)


class Emails(EmailsHandler):
    """Sends nothing."""

    async def handle_emails(
        self, ctx: Context, storage: Storage, tasks: Sequence[EmailsTask]
    ) -> HandlerStats:
        await storage.done_task([task.task_id for task in tasks])
        return HandlerStats(processed=sum(len(task.to) + task.user_id + len(task.body) for task in tasks))


class Notifications(NotificationsHandler):
    """Tells nobody."""

    async def handle_notifications(
        self, ctx: Context, storage: Storage, tasks: Sequence[NotificationsTask]
    ) -> HandlerStats:
        await storage.done_task([task.task_id for task in tasks if task.is_urgent and task.target_ids[0]])
        return HandlerStats()


def worker(store: Store) -> Worker:
    return make_worker(store, emails=Emails(), notifications=Notifications(), name="mine", processors=2)


async def put(store: Store) -> int:
    client = TasksClient(store)
    await client.notifications.put(message="ok", target_ids=[1], is_urgent=True, delay=5)
    data = serialize_emails_task({{"to": "a", "subject": "", "body": b"", "user_id": 1}})
    task = deserialize_emails_task(data)
    ids: list[int] = await client.emails.put_many([task])
    return ids[0]
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.yaml"
    path.write_text(CONTRACT)
    return path


@pytest.fixture
def forget() -> Iterator[list[str]]:
    """Packages to forget after a test."""
    names: list[str] = []
    yield names
    for name in list(sys.modules):
        if name.partition(".")[0] in names:
            del sys.modules[name]


@pytest.fixture
def package(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget: list[str]) -> Any:
    return generated(file, tmp_path, "mail_tasks", monkeypatch, forget)


def generated(file: Path, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, forget: list[str]) -> Any:
    run = run_forebay("contract", "generate", str(file), "--out", name, cwd=folder)
    assert run.returncode == 0, run.stderr
    monkeypatch.syspath_prepend(folder)
    forget.append(name)
    return importlib.import_module(name)


def test_check_says_all_that_is_wrong_with_file_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("queues:\n  - {id: 1, name: a}\n  - {id: 1, name: b, fields: []}\n")
    run = run_forebay("contract", "check", "bad.yaml", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (3, "")
    assert run.stderr.splitlines() == [
        "forebay: the contract is wrong:",
        "  bad.yaml:2:5: queue 'a' has no fields; list them under `fields:`",
        "  bad.yaml:3:10: duplicate queue id: 1; line 2 has it, too",
        "  bad.yaml:3:30: queue 'b' has no fields; list them under `fields:`",
    ]
    listed = run_forebay("contract", "check", "bad.yaml", "--json", cwd=tmp_path)
    faults = json.loads(listed.stdout)["faults"]
    assert listed.returncode == 3
    assert [(fault["line"], fault["column"]) for fault in faults] == [(2, 5), (3, 10), (3, 30)]


def test_check_says_that_a_contract_is_right(file: Path, tmp_path: Path) -> None:
    run = run_forebay("contract", "check", file.name, cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "tasks.yaml: the contract is right: 2 queues, 7 fields\n")
    listed = json.loads(run_forebay("contract", "check", file.name, "--json", cwd=tmp_path).stdout)
    assert [queue["name"] for queue in listed["queues"]] == ["emails", "notifications"]
    assert listed["faults"] == []


def test_generating_again_changes_nothing_and_check_says_when_it_is_stale(file: Path, tmp_path: Path) -> None:
    generate = ["contract", "generate", file.name, "--out", "app/tasks"]
    missing = run_forebay(*generate, "--check", cwd=tmp_path)
    assert (missing.returncode, (tmp_path / "app").exists()) == (1, False)
    assert len(json.loads(run_forebay(*generate, "--json", cwd=tmp_path).stdout)["written"]) == 4
    assert run_forebay(*generate, "--check", cwd=tmp_path).returncode == 0
    again = json.loads(run_forebay(*generate, "--json", cwd=tmp_path).stdout)
    assert (again["written"], len(again["unchanged"])) == ([], 4)
    file.write_text(GROWN)
    stale = run_forebay(*generate, "--check", "--json", cwd=tmp_path)
    assert (stale.returncode, json.loads(stale.stdout)) == (1, {"stale": ["client.py", "tasks.py"]})


def test_a_wrong_contract_generates_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("queues: []")
    run = run_forebay("contract", "generate", "bad.yaml", "--out", "tasks", cwd=tmp_path)
    assert run.returncode == 3
    assert run.stderr.startswith("forebay: bad.yaml:1:9: no queues defined")
    assert not (tmp_path / "tasks").exists()


def test_diff_accepts_an_appended_field_and_refuses_its_removal(file: Path, tmp_path: Path) -> None:
    (tmp_path / "grown.yaml").write_text(GROWN)
    fine = run_forebay("contract", "diff", file.name, "grown.yaml", cwd=tmp_path)
    assert fine.returncode == 0
    assert fine.stdout.splitlines() == [
        "fine: the version is 2, after 1",
        "fine: queue 'notifications': field 'note' (string) is appended",
    ]
    broken = run_forebay("contract", "diff", "grown.yaml", file.name, cwd=tmp_path)
    assert broken.returncode == 1
    assert "breaks: queue 'notifications': field 'note' is gone; keep it" in broken.stdout
    listed = json.loads(
        run_forebay("contract", "diff", "grown.yaml", file.name, "--json", cwd=tmp_path).stdout
    )
    assert listed["compatible"] is False
    assert [change["breaks"] for change in listed["changes"]] == [True, True]


def test_diff_says_what_is_wrong_with_both_contracts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("queues: []")
    run = run_forebay("contract", "diff", "a.yaml", "b.yaml", cwd=tmp_path)
    assert run.returncode == 3
    assert "a.yaml:1:9: no queues defined" in run.stderr
    assert "b.yaml:1:1: it can't be read" in run.stderr


def odd_contract() -> str:
    """Names that generated code uses itself, or that are as long as they can be."""
    words = (
        "items keys values get copy pop id type format list object row task data store msgspec bind ctx x1"
    )
    types = ("int", "string", "bool", '"[]byte"', '"[]int"')
    names = [*words.split(), "f" * 64]
    listed = [f"{{name: {name}, type: {types[index % 5]}}}" for index, name in enumerate(names)]
    queues = [
        "tasks",
        "task",
        "queue",
        "handler",
        "client",
        "worker",
        "bind",
        "fields",
        "abc",
        "context",
        "bindings",
        "list",
        "bind_task",
        "bind_bind_task",
        "any",
        "self",
        "q" * 64,
    ]
    rows = [
        f"- {{id: {id}, name: {name}, fields: [{', '.join(listed)}]}}" for id, name in enumerate(queues, 1)
    ]
    return "queues:\n" + "\n".join(rows)


@pytest.mark.slow
def test_generated_code_is_formatted_and_passes_strict_types(package: Any, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(name=package.__name__))
    (tmp_path / "odd.yaml").write_text(odd_contract())
    run = run_forebay("contract", "generate", "odd.yaml", "--out", "odd_tasks", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    for width in ("79", "88", "120"):
        command = ["ruff", "format", "--isolated", "--diff", "--line-length", width]
        done = subprocess.run(
            [sys.executable, "-m", *command, package.__name__, "odd_tasks"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    # As where the package is installed: faults in it, such as imports without types, are not the user's.
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent"]
    mypy += ["--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*mypy, package.__name__, "odd_tasks", "program.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def take(store: Store, queue: str) -> forebay.Task:
    (task,) = await store.get_task(queue)
    return task


async def test_a_task_is_put_and_read_with_its_types(package: Any) -> None:
    async with forebay.open("memory://") as store:
        client = package.TasksClient(store)
        id = await client.emails.put(to="a@b.c", subject="Hi", body=b"\x00\xff", user_id=42)
        task = await take(store, "emails")
        assert task.headers == {"codec": "msgpack", "contract": "1"}
        fields = {"to": "a@b.c", "subject": "Hi", "body": b"\x00\xff", "user_id": 42}
        assert package.read_emails_task(task) == package.EmailsTask(task_id=id, **fields)
        assert package.serialize_emails_task(fields) == task.data
        assert package.deserialize_emails_task(task.data) == package.EmailsTask(**fields)
        await store.retry_task([task], start_time=0)
        again = package.read_emails_task(await take(store, "emails"))
        assert (again.task_id, again.attempts) == (id, 1)
        began = datetime.fromtimestamp(task.start_time // 1_000_000, UTC)
        assert again.prev_start_time.replace(microsecond=0) == began
        with pytest.raises(AttributeError):
            again.to = "x"


async def test_queues_are_made_by_their_contract(package: Any) -> None:
    async with forebay.open("memory://") as store:
        client = package.TasksClient(store)
        await client.notifications.put(message="ok", target_ids=[1, -1], is_urgent=True, partition="p")
        queue = await store.queue("notifications")
        assert (queue.number, queue.settings.ordered) == (12, True)
        task = await take(store, "notifications")
        assert task.data.hex() == "020000006f6b020000000100000000000000ffffffffffffffff01"
        assert task.headers == {"codec": "iproto", "contract": "1", "fields": "3"}
        assert task.partition == "p"
        await client.create_queues()
        emails = await store.queue("emails")
        assert (emails.number, emails.settings.visibility_seconds) == (11, 30.0)


async def test_a_queue_that_is_not_the_one_of_the_contract_gets_no_tasks(package: Any) -> None:
    async with forebay.open("memory://") as store:
        await store.create_queue("emails", number=7)
        await store.create_queue("notifications", number=12)
        client = package.TasksClient(store)
        with pytest.raises(
            Misconfigured, match="queue 'emails' is number 7 in the store, and 11 in the contract"
        ):
            await client.emails.put(to="a", subject="b", body=b"", user_id=1)
        with pytest.raises(Misconfigured, match="queue 'notifications' is to be ordered, and"):
            await client.notifications.put(message="ok", target_ids=[], is_urgent=True)
        assert [await store.peek(name) for name in ("emails", "notifications")] == [[], []]


async def test_putting_takes_delays_transaction_ids_headers_and_many(package: Any) -> None:
    async with forebay.open("memory://") as store:
        emails = package.TasksClient(store).emails
        fields = {"to": "a", "subject": "b", "body": b"", "user_id": 1}
        first = await emails.put(**fields, transaction_id="t", headers={"flow": "f", "codec": "x"})
        assert await emails.put(**fields, transaction_id="t") == first
        task = await take(store, "emails")
        assert task.headers == {"flow": "f", "codec": "msgpack", "contract": "1"}
        assert package.read_emails_task(task).task_id == first
        many = await emails.put_many([fields, package.EmailsTask(**fields)], start_time=TIME_MAX)
        assert len(many) == 2
        assert await emails.put_many([]) == []
        assert await store.get_task("emails") == []
        later = await emails.put(**fields, transaction_id="u", delay=1_000)
        assert (await store.where(later)).message is not None
        assert await store.get_task("emails") == []


async def test_what_the_contract_does_not_say_is_rejected_and_nothing_is_put(package: Any) -> None:
    async with forebay.open("memory://") as store:
        emails = package.TasksClient(store).emails
        fields = {"to": "a", "subject": "b", "body": b"", "user_id": 1}
        with pytest.raises(Rejected, match=r"field 'userId' \(int64\) is str"):
            await emails.put(**{**fields, "user_id": "1"})
        with pytest.raises(Rejected, match="field 'to' is missing"):
            await emails.put_many([fields, {"subject": "b", "body": b"", "user_id": 1}])
        assert await store.queues() == []
        with pytest.raises(Undecodable):
            package.deserialize_emails_task(b"\x94\xa1a\xa1b\xc4\x00")


async def test_a_contract_that_has_grown_reads_the_tasks_of_before_and_not_the_other_way(
    package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget: list[str]
) -> None:
    (tmp_path / "grown.yaml").write_text(GROWN)
    grown = generated(tmp_path / "grown.yaml", tmp_path, "grown_tasks", monkeypatch, forget)
    async with forebay.open("memory://") as store:
        old, new = package.TasksClient(store), grown.TasksClient(store)
        await old.notifications.put(message="ok", target_ids=[], is_urgent=False, partition="a")
        await new.notifications.put(message="ok", target_ids=[], is_urgent=False, note="new", partition="b")
        first, second = await store.get_task("notifications"), await store.get_task("notifications")
        before, after = sorted([*first, *second], key=lambda task: task.id)
        assert grown.read_notifications_task(before).note == ""
        assert grown.read_notifications_task(after).note == "new"
        assert package.read_notifications_task(before).message == "ok"
        with pytest.raises(UnknownFormat, match="version '2' of the contract is after ours, 1"):
            package.read_notifications_task(after)


async def test_a_worker_parks_the_tasks_of_a_newer_contract_and_buries_what_cannot_be_read(
    package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget: list[str]
) -> None:
    (tmp_path / "grown.yaml").write_text(GROWN)
    grown = generated(tmp_path / "grown.yaml", tmp_path, "grown_tasks", monkeypatch, forget)
    fields = {"to": "a", "subject": "b", "body": b"", "user_id": 1}
    seen: list[str] = []
    async with forebay.open("memory://") as store:
        newer = await grown.TasksClient(store).emails.put(**fields)
        (broken,) = await store.put_task("emails", b"\x94no", headers={"codec": "msgpack"})
        await package.TasksClient(store).emails.put(**{**fields, "to": "last"})

        class Emails(package.EmailsHandler):  # type: ignore[misc]  # made at run time
            """Notes what it gets, and stops the worker after the first batch."""

            async def handle_emails(self, ctx: Any, storage: Any, tasks: Sequence[Any]) -> HandlerStats:  # noqa: ARG002 - as it is called
                seen.extend(task.to for task in tasks)
                await storage.done_task([task.task_id for task in tasks])
                await worker.shutdown()
                return HandlerStats(processed=len(tasks))

        worker = Worker(store, [package.bind_emails(Emails())])
        await worker.run()
        assert seen == ["last"]
        (letter,) = await store.dead_letters("emails")
        assert letter.message_id == broken
        (place,) = (await store.where(newer)).groups
        assert (place.state, place.attempts) == ("delayed", 0)


async def test_the_short_way_reads_generated_tasks(package: Any) -> None:
    def notify(task: Any) -> None:
        """Tell nobody."""

    notify.__annotations__["task"] = package.NotificationsTask
    binding = handler("notifications")(notify)
    assert (binding.number, binding.settings.ordered) == (12, True)
    async with forebay.open("memory://") as store:
        id = await package.TasksClient(store).notifications.put(message="ok", target_ids=[], is_urgent=True)
        _, typed = binding.decode(await take(store, "notifications"))
    assert typed == package.NotificationsTask(task_id=id, message="ok", target_ids=(), is_urgent=True)


async def test_the_typed_client_works_a_server(package: Any) -> None:
    with ForebayServer() as server:
        async with forebay.open(server.url) as store:
            emails = package.TasksClient(store).emails
            fields = {"to": "a", "subject": "b", "body": b"", "user_id": 1}
            ids = [
                await emails.put(**fields, transaction_id="t", delay=0.001),
                *await emails.put_many([fields]),
            ]
            tasks = await store.get_task("emails", 2, wait_seconds=10)
            while len(tasks) < 2:
                tasks += await store.get_task("emails", wait_seconds=10)
            found = {package.read_emails_task(task) for task in tasks}
            assert found == {package.EmailsTask(task_id=id, **fields) for id in ids}
            assert (await store.queue("emails")).number == 11


def test_a_binding_has_the_settings_of_the_contract_unless_others_are_given(package: Any) -> None:
    class Emails(package.EmailsHandler):  # type: ignore[misc]  # made at run time
        """Handles nothing."""

        async def handle_emails(self, ctx: Any, storage: Any, tasks: Sequence[Any]) -> HandlerStats:
            raise NotImplementedError

    binding = package.bind_emails(Emails())
    assert (binding.queue, binding.number) == ("emails", 11)
    assert (binding.settings.batch_size, binding.settings.visibility_seconds) == (50, 30.0)
    assert (binding.settings.backoff.initial, binding.settings.backoff.factor) == (2.0, 2.0)
    assert package.bind_emails(Emails(), BindingSettings(batch_size=7)).settings.batch_size == 7
    with pytest.raises(TypeError, match="abstract"):
        package.EmailsHandler()
