"""Names of a contract in Python: fields and queues in small letters, classes in capitals and small ones.

Pure functions; a name that would make no Python, or would hide something that generated code needs, has a
reason here why it can't be used.
"""

import keyword
import re
from typing import Final

__all__ = ["NAME_MAX", "RESERVED_FIELDS", "RESERVED_QUEUES", "class_name", "name_fault", "python_name"]

NAME_MAX: Final = 64
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_OF_TASKS: Final = ("task_id", "attempts", "prev_start_time")
_OF_PUTTING: Final = ("delay", "start_time", "partition", "headers", "transaction_id", "self")
_OF_PYTHON: Final = ("int", "str", "bool", "bytes", "tuple", "datetime")
RESERVED_FIELDS: Final = {
    **dict.fromkeys(_OF_TASKS, "every task has it"),
    **dict.fromkeys(_OF_PUTTING, "it is said when a task is put"),
    **dict.fromkeys(_OF_PYTHON, "it is a type in Python"),
}
"""Fields that can't be, as they are called in Python, and why."""
RESERVED_QUEUES: Final = {
    **dict.fromkeys(("store", "options", "name", "processors", "settings", "registry", "clock", "key"),
                    "it is an argument of make_worker"),
    "create_queues": "the client has it",
}  # fmt: skip
"""Queues that can't be, likewise."""


def python_name(name: str) -> str:
    """In small letters: `userId` is `user_id`."""
    return _HUMP.sub("_", name).lower()


def class_name(name: str) -> str:
    """With capitals: `user_events` is `UserEvents`."""
    return "".join(word.capitalize() for word in python_name(name).split("_"))


def name_fault(name: str, reserved: dict[str, str]) -> str | None:
    """Why it can't be a name; nothing when it can."""
    if len(name) > NAME_MAX:
        return f"is longer than {NAME_MAX} characters"
    if not _NAME.fullmatch(name):
        return "is not an identifier"
    known = python_name(name)
    if keyword.iskeyword(known):
        return f"is a word of Python: {known}" if known != name else "is a word of Python"
    return f"is reserved: {reserved[known]}" if known in reserved else None
