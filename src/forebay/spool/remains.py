"""The remains of a process: what it left in its spool, as another process on the same machine sees it."""

from pathlib import Path

from forebay.disk import RealDisk, identity_of
from forebay.spool.names import parse_name


def has_outcomes(folder: str, identity: str) -> bool | None:
    """Whether outcomes of tasks wait in the spool of that identity; None where that can't be told.

    Changes nothing and takes no lock. A file of outcomes is removed once the log has all of them, so none is
    missed while another process replays them.
    """
    path = Path(folder)
    try:
        if identity_of(path) != identity:  # another folder is there now, or it is mounted elsewhere
            return None
        names = [name for name in RealDisk(path).list() if _holds_outcomes(name)]
        return any((path / name).stat().st_size for name in names)
    except OSError:
        return None


def _holds_outcomes(name: str) -> bool:
    parsed = parse_name(name)
    return parsed is not None and parsed.prefix == "settle"
