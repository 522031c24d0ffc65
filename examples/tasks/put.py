"""Puts a morning's worth of tasks: `python -m examples.tasks.put [STORE]`."""

import asyncio
import sys

import forebay
from examples.tasks import STORE
from examples.tasks.queues import TasksClient

WELCOME = b"We are glad that you are here."
PEOPLE = {7: "ada@example.com", 9: "grace@example.com", 12: "alan@example.com", 15: "edsger at example.com"}


async def main(store: str) -> None:
    """Put them; each call is durable when it returns."""
    async with forebay.open(store) as opened:
        client = TasksClient(opened)
        await client.emails.put_many(  # one write, all or none
            {"to": address, "subject": "Welcome", "body": WELCOME, "user_id": user}
            for user, address in PEOPLE.items()
        )
        await client.emails.put(  # a task for later
            to=PEOPLE[7], subject="How is it going?", body=b"", user_id=7, delay=3
        )
        for _ in range(2):  # put twice by mistake, and there once: it has the id of what it is about
            await client.notifications.put(
                message="the office opens at nine",
                target_ids=list(PEOPLE),
                is_urgent=False,
                transaction_id="opening-hours",
            )
    print(f"put 5 emails, one of them for later, and a notification: {store}")
    print("work them: forebay worker examples.tasks.app:worker")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else STORE))
