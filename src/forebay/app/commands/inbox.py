"""`forebay inbox`: rows of the SQL inbox that no block can hold."""

import argparse

from forebay.app.commands.arguments import count
from forebay.app.commands.opened import declare_store, on_store
from forebay.app.commands.output import print_json, print_table, time_text, warn
from forebay.store.seam import Store

__all__ = ["declare_inbox", "inbox"]


def declare_inbox(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay inbox`."""
    declare_store(parser)
    parser.add_argument(
        "--after", metavar="ID", type=int, default=0, help="only rows with a higher id (default: all)"
    )
    parser.add_argument(
        "--limit", metavar="NUMBER", type=count, default=100, help="rows at most (default: %(default)s)"
    )


@on_store
async def inbox(store: Store, arguments: argparse.Namespace) -> int:
    """Print the rows that were rejected; exit status 1 when there are any."""
    rows = await store.inbox_rejected(max(0, arguments.after), arguments.limit)
    if arguments.json:
        print_json({"rejected": rows})
    elif rows:
        head = ["id", "queue", "rejected", "bytes", "partition", "transaction id", "reason"]
        print_table(head, [
            (row.id, row.queue, time_text(row.rejected_at), row.payload_bytes, row.partition,
             row.transaction_id or "", row.reason)
            for row in rows
        ])  # fmt: skip
        if len(rows) == arguments.limit:
            warn(f"there may be more: --after {rows[-1].id}")
        warn("they are in forebay.inbox_rejected: correct what is wrong and push it anew, and delete the row")
    else:
        warn("no row of the SQL inbox is rejected")
    return 1 if rows else 0
