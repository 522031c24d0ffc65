"""`forebay spool status`: what a running server has in its spool, and how far it is replayed."""

import argparse
from collections.abc import Iterator

import msgspec

from forebay.app.commands.opened import declare_store, on_store, store_url
from forebay.app.commands.output import print_json, print_line, time_text
from forebay.app.commands.spool import plural
from forebay.app.opening import is_server
from forebay.failover.status import SpoolStatus
from forebay.model import Rejected
from forebay.store.seam import Store

__all__ = ["declare_status", "status"]


def declare_status(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    declare_store(parser)


@on_store
async def status(store: Store, arguments: argparse.Namespace) -> int:
    """Ask the server; 1 if something was set aside, or pushes are refused."""
    from forebay.client import Client  # noqa: PLC0415 - who works on a file needs none of it

    if not is_server(store_url(arguments)):
        raise Rejected("a log has no spool", hint="name a server, or look at a folder with `spool list`")
    assert isinstance(store, Client)
    found = await store.server_spool()
    if arguments.json:
        print_json(msgspec.to_builtins(found))
    else:
        for line in lines_of(found):
            print_line(line)
    return 1 if found.failed or found.refused is not None else 0


def lines_of(found: SpoolStatus) -> Iterator[str]:
    """What there is to be said of a spool."""
    if found.healthy and found.held is None:
        yield f"pushes go to the log, since {time_text(found.since)}"
    else:
        yield f"pushes go to the spool, since {time_text(found.since)}: {found.held or found.reason}"
    if found.refused is not None:
        yield f"pushes are refused: {found.refused}"
    yield (
        f"{plural(found.pending, 'message')} and {plural(found.settlements, 'outcome')} wait for the log,"
        f" in {plural(found.files, 'file')} of {found.bytes:,} bytes"
    )
    for queue, count in sorted(found.queues.items(), key=lambda item: (-item[1], item[0]))[:10]:
        yield f"  {queue}: {count:,}"
    if found.pending and found.seconds_left is not None:
        yield f"{found.rate:,.0f} messages/s are replayed: about {found.seconds_left:,.0f} seconds are left"
    elif found.pending:
        yield "nothing is replayed at present"
    yield f"{plural(found.flushed, 'message')} came from the spool to the log since the start"
    if found.failed:
        yield f"{found.failed:,} were refused, and are set aside in the folder `failed`, each with its reason"
    if found.late:
        yield f"the outcomes of {plural(found.late, 'task')} came too late"
