"""The files of a package, by name."""

from forebay.contract.generating.client import client_file
from forebay.contract.generating.layout import WIDTH, exploded, heading, imports
from forebay.contract.generating.names import QueueNames
from forebay.contract.generating.tasks import tasks_file
from forebay.contract.generating.worker import worker_file
from forebay.contract.values import Contract

__all__ = ["package_files"]


def package_files(contract: Contract, source: str) -> dict[str, str]:
    """The text of each file; `source` is what the contract's own file is called."""
    queues = [QueueNames(queue) for queue in contract.queues]
    files = {
        "__init__.py": _init_file(queues, source),
        "client.py": client_file(queues, source),
        "tasks.py": tasks_file(queues, contract.version, source),
        "worker.py": worker_file(queues, source),
    }
    return {name: "\n".join(_settled(lines)) + "\n" for name, lines in files.items()}


def _settled(lines: list[str]) -> list[str]:
    """Names may be so long that formatters would break lines each in its own way: they are kept from it."""
    code = [line for line in lines if not line.lstrip().startswith(("#", '"""'))]
    if max(map(len, code)) <= WIDTH:
        return lines
    return [*lines[:1], "# fmt: off", *lines[1:]]


def _init_file(queues: list[QueueNames], source: str) -> list[str]:
    by_module: dict[str, list[str]] = {
        ".client": ["TasksClient", *(queue.client for queue in queues)],
        ".tasks": [name for queue in queues for name in queue.of_tasks],
        ".worker": ["make_worker"],
    }
    names = sorted(name for listed in by_module.values() for name in listed)
    constants = [name for name in names if name.isupper()]
    classes = [name for name in names if name[0].isupper() and not name.isupper()]
    functions = [name for name in names if name.islower()]
    listed = [f'"{name}"' for name in (*constants, *classes, *functions)]
    return [
        *heading(source, f"Typed queues, as {source} says them."),
        *imports(by_module),
        "",
        *exploded("__all__ = [", listed, "]"),
    ]
