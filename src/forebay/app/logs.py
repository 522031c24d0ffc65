"""What the server says about itself, on standard error: JSON lines, or text for people."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

__all__ = ["JsonLines", "PeopleLines", "set_up_logs"]

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
"""What every record has; the rest was said with it."""


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message, and what was said with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        line = {"at": _time_of(record), "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage(), **_said(record)}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class PeopleLines(logging.Formatter):
    """Time, level, message, and what was said with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        said = "".join(f"  {name}={value}" for name, value in _said(record).items())
        text = f"{_time_of(record)[11:23]} {record.levelname.lower():<7} {record.getMessage()}{said}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def set_up_logs(form: str, level: str, stream: TextIO | None = None) -> None:
    """Write what is at least as serious as `level`; `auto` is for people on a terminal, else JSON."""
    out = stream or sys.stderr
    for_people = form == "people" or (form == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(PeopleLines() if for_people else JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("forebay").setLevel(level.upper())
    # uvicorn reports every connection that sends nonsense: the server counts those itself.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.captureWarnings(True)


def _said(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
