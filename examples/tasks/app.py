"""Works the tasks: `forebay worker examples.tasks.app:worker`, until Ctrl-C.

Nothing is really sent: what would be is printed. One address is none, and one mailbox is busy the first time.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from examples.tasks import STORE
from examples.tasks.queues import (
    NOTIFICATIONS_FORMAT,
    EmailsHandler,
    EmailsTask,
    NotificationsHandler,
    NotificationsTask,
    make_worker,
    serialize_notifications_task,
)
from forebay.work import Context, HandlerStats, RetryInfo, Storage


class MailboxBusyError(Exception):
    """Try again in a moment."""


def send(task: EmailsTask) -> None:
    """Send an email, if its mailbox takes it."""
    if task.to.startswith("alan@") and task.attempts == 0:
        raise MailboxBusyError
    again = f" (attempt {task.attempts + 1})" if task.attempts else ""
    print(f"✉  {task.to}: {task.subject}{again}", flush=True)


class Emails(EmailsHandler):
    """Sends emails, and has their receivers notified."""

    async def handle_emails(
        self, ctx: Context, storage: Storage, tasks: Sequence[EmailsTask]
    ) -> HandlerStats:
        """Say of each task what became of it; what is said is durable."""
        done, busy, wrong = list[int](), list[RetryInfo](), list[int]()
        for task in tasks:
            if "@" not in task.to:
                print(f"✗  {task.to}: no address", flush=True)
                wrong.append(task.task_id)
                continue
            try:
                send(task)
            except MailboxBusyError:
                print(f"…  {task.to}: busy, again in a second", flush=True)
                busy.append(RetryInfo(task.task_id, datetime.now(UTC) + timedelta(seconds=1)))
                continue
            await self._notify(storage, task)
            done.append(task.task_id)
        await storage.done_task(done)
        await storage.retry_task(busy)
        await storage.bury_task(wrong, "no address")
        return HandlerStats(processed=len(done), retried=len(busy), errors=len(wrong))

    async def _notify(self, storage: Storage, task: EmailsTask) -> None:
        """Handlers put tasks, too: here of the other queue."""
        data = serialize_notifications_task(
            {"message": f"{task.subject!r} was sent", "target_ids": [task.user_id], "is_urgent": False}
        )
        await storage.put_task("notifications", data, headers=dict(NOTIFICATIONS_FORMAT.headers))


class Notifications(NotificationsHandler):
    """Shows notifications."""

    async def handle_notifications(
        self, ctx: Context, storage: Storage, tasks: Sequence[NotificationsTask]
    ) -> HandlerStats:
        """Show all, then settle them together."""
        for task in tasks:
            users = ", ".join(map(str, task.target_ids))
            print(f"{'‼' if task.is_urgent else '•'}  to {users}: {task.message}", flush=True)
        await storage.done_task([task.task_id for task in tasks])
        return HandlerStats(processed=len(tasks))


worker = make_worker(STORE, emails=Emails(), notifications=Notifications())
