"""`forebay contract check`, `generate` and `diff`."""

import argparse
import re
from pathlib import Path
from typing import Any

import msgspec

from forebay.app.commands.output import print_json, print_line, warn
from forebay.contract import Contract, Fault, InvalidContract, compare, read_contract
from forebay.contract.generating import package_files, stale_files, write_package

__all__ = ["check", "declare_check", "declare_diff", "declare_generate", "diff", "generate"]


def declare_check(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay contract check`."""
    parser.add_argument("contract", metavar="FILE", help="the contract")
    _declare_json(parser)


def declare_generate(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay contract generate`."""
    parser.add_argument("contract", metavar="FILE", help="the contract")
    parser.add_argument(
        "--out", metavar="FOLDER", required=True, help="the package to write, as in app/tasks"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; status 1 when the package is not up to date"
    )
    _declare_json(parser)


def declare_diff(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay contract diff`."""
    parser.add_argument("old", metavar="OLD", help="the contract that tasks in flight were put by")
    parser.add_argument("new", metavar="NEW", help="the contract that they would be read by")
    _declare_json(parser)


def _declare_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def check(arguments: argparse.Namespace) -> int:
    """Say everything that is wrong with a contract; status 3 if anything is."""
    try:
        contract = read_contract(arguments.contract)
    except InvalidContract as error:
        if not arguments.json:
            raise
        print_json({"faults": error.faults})
        return 3
    if arguments.json:
        print_json({"faults": [], "version": contract.version, "queues": contract.queues})
    else:
        warn(f"{arguments.contract}: {_summary(contract)}")
    return 0


def _summary(contract: Contract) -> str:
    queues, fields = len(contract.queues), sum(len(queue.fields) for queue in contract.queues)
    return f"the contract is right: {queues} {_plural(queues, 'queue')}, {fields} {_plural(fields, 'field')}"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"


def generate(arguments: argparse.Namespace) -> int:
    """Write the package, or say what of it isn't up to date."""
    path, folder = Path(arguments.contract), Path(arguments.out)
    files = package_files(read_contract(arguments.contract), re.sub(r"[^\w.-]", "_", path.name))
    if arguments.check:
        return _report_stale(arguments, stale_files(folder, files))
    done = write_package(folder, files)
    if arguments.json:
        print_json(done)
    else:
        for name in done.written:
            print_line(str(folder / name))
        warn(f"{len(done.written)} written, {len(done.unchanged)} unchanged")
    return 0


def _report_stale(arguments: argparse.Namespace, stale: list[str]) -> int:
    if arguments.json:
        print_json({"stale": stale})
    else:
        for name in stale:
            print_line(str(Path(arguments.out) / name))
        warn("not up to date: run it without --check" if stale else "up to date")
    return 1 if stale else 0


def diff(arguments: argparse.Namespace) -> int:
    """Print what changed; status 1 when tasks in flight would not survive it."""
    contracts: list[Contract] = []
    faults: list[Fault] = []
    for path in (arguments.old, arguments.new):
        try:
            contracts.append(read_contract(path))
        except InvalidContract as error:
            faults += error.faults
    if faults:
        raise InvalidContract(faults)
    old, new = contracts
    changes = compare(old, new)
    broken = sum(change.breaks for change in changes)
    if arguments.json:
        listed: list[Any] = [msgspec.structs.asdict(change) for change in changes]
        print_json({"compatible": not broken, "changes": listed})
        return 1 if broken else 0
    for change in changes:
        print_line(f"{'breaks' if change.breaks else 'fine'}: {change}")
    if broken:
        warn(f"{broken} {_plural(broken, 'change')} would corrupt tasks in flight, or lose them")
    elif not changes:
        warn("nothing has changed")
    return 1 if broken else 0
