"""Who this process is, so that another one on the same machine can tell when it is gone.

A name says the machine, its boot, the process-id namespace, the process and when it began. Only what
can be told for certain counts as gone: for everybody else, silence decides. The name also says which spool
the process has, if any: outcomes that it answered for may wait there, and whoever has that spool now has
brought them to the log. An owner without claims, `<name>|spool|<folder>`, says where that spool is, so that
others on the machine can look into it once the process is gone.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

_PREFIX = "process"
_PARTS = 7
_CHANCE = re.compile(r"[0-9a-f]{8}\.([0-9a-f]+)")
_SPOOL = "spool"


class SpoolPlace(msgspec.Struct, frozen=True):
    """Which spool a process has: the identity of its folder, and where that is on this machine."""

    identity: str
    folder: str


def process_name(spool: str = "") -> str:
    """A name for this process that nobody else has, nor will have; `spool` is the identity of its spool."""
    chance = f"{secrets.token_hex(4)}.{spool}" if spool else secrets.token_hex(4)
    return "|".join((_PREFIX, *_place(), str(os.getpid()), _began(os.getpid()) or "", chance))


def spool_of(name: str) -> str:
    """The identity of the spool that a process has; nothing where it has none, or isn't known."""
    parts = name.split("|")
    found = _CHANCE.fullmatch(parts[6]) if len(parts) >= _PARTS and parts[0] == _PREFIX else None
    return found[1] if found else ""


def spool_owner(name: str, folder: str) -> str:
    """The owner that says where the spool of a process is."""
    return "|".join((name, _SPOOL, quote(folder, errors="surrogateescape")))


def spool_folder(owner: str) -> str | None:
    """Where an owner says that the spool of its process is; None where it says nothing of that."""
    parts = owner.split("|")
    if len(parts) != _PARTS + 2 or parts[0] != _PREFIX or parts[_PARTS] != _SPOOL:
        return None
    return unquote(parts[-1], errors="surrogateescape")


def process_of(owner: str) -> str | None:
    """The name of the process that an owner belongs to; None for an owner that several processes share."""
    parts = owner.split("|")
    return "|".join(parts[:_PARTS]) if len(parts) >= _PARTS and parts[0] == _PREFIX else None


def is_gone(name: str) -> bool:
    """Whether a name is that of a process on this machine that has ended."""
    parts = name.split("|")
    if len(parts) < _PARTS or parts[0] != _PREFIX or tuple(parts[1:4]) != _place():
        return False
    if not Path("/proc/self/stat").exists() or not parts[4].isdigit():
        return False
    return _began(int(parts[4])) != parts[5]


def _place() -> tuple[str, str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/pid")
    return (
        socket.gethostname().replace("|", ""),
        boot.read_text().strip()[:8] if boot.exists() else "",
        str(namespace.readlink()) if namespace.is_symlink() else "",
    )


def _began(pid: int) -> str | None:
    """When a process began, in ticks since boot; None when there is no such process, or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]
