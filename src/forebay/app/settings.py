"""All settings of a server as one value, and those of a relay; each section belongs to its stage.

`configuring` makes them out of a file, the environment and flags.
"""

import os
import stat
import sys
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from forebay.api.jwt.settings import JwtSettings
from forebay.api.queen.settings import QueenSettings
from forebay.api.settings import KeySettings, ServerSettings
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.failover.settings import FailoverSettings
from forebay.model import Limits, Misconfigured
from forebay.observe.settings import MetricsSettings
from forebay.relay.settings import RelaySettings
from forebay.store.store import StoreSettings
from forebay.wire.port import LISTEN

__all__ = [
    "ExporterSettings", "LoggingSettings", "RelayConfig", "Settings", "SpoolSection", "StoreSection",
    "UpSettings",
]  # fmt: skip

ORIGINAL_FOLDER: Final = Path("/tmp/queen" if sys.platform == "darwin" else "/var/lib/queen/buffers")  # noqa: S108 - where it is
"""Where the original server keeps its files, unless it is told otherwise."""

_Url: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?:sqlite:///.|postgres(?:ql)?://|tarantool://.|memory://)",
        description="an address like sqlite:///folder/file.db or postgresql://user@host/database",
    ),
]
_WarmUrl: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?:valkeys?|rediss?|unix)://.", description="an address like valkey://host:6379/0"
    ),
]


_Place: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"^[\w.]+:\w+$", description="a place like app.module:worker")
]


_Listen: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=LISTEN, description="host and port, like 127.0.0.1:6633")
]


class StoreSection(StoreSettings, frozen=True, kw_only=True):
    """Where messages are kept, and how much of them in memory."""

    url: _Url | None = None
    """The log; none for a SQLite file in the data folder."""
    warm: _WarmUrl | None = None
    """A warm tier that several servers share; none for the memory of this process."""
    data: Annotated[str, msgspec.Meta(min_length=1, description="the path of a folder")] = "forebay-data"
    """The folder for what the server keeps itself: the SQLite log, the API keys, the spool."""

    def __post_init__(self) -> None:
        """Refuse two warm tiers."""
        if self.warm is not None and self.url is not None:
            _, _, query = self.url.partition("?")
            if any(name == "warm" for name, _ in parse_qsl(query, keep_blank_values=True)):
                raise Misconfigured(
                    "the warm tier is given twice: by warm, and in url", hint="give it once", key="warm"
                )

    @property
    def address(self) -> str:
        """The address of the log, also when none is set."""
        return self.url if self.url is not None else f"sqlite:///{Path(self.data) / 'forebay.db'}"


class SpoolSection(FailoverSettings, frozen=True, kw_only=True):
    """Where pushes go while the log can't be reached, and how they find their way back."""

    enabled: bool = True
    """Whether there is a spool; without one, pushes fail while the log is away."""
    folder: Annotated[str, msgspec.Meta(min_length=1, description="the path of a folder")] | None = None
    """The folder of the spool, for this server alone; none for `spool` in the data folder."""


class LoggingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says about itself, on standard error."""

    format: Literal["auto", "json", "people"] = "auto"
    """JSON lines, or text for people; auto is for people on a terminal, JSON otherwise."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least serious events that are written."""


class UpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `forebay up` starts beside the server."""

    flows: Annotated[str, msgspec.Meta(min_length=1, description="the path of a file")] | None = None
    """The file of flows that a pipeline runs; none for no pipeline."""
    flows_metrics: _Listen | None = "127.0.0.1:6633"
    """Where the pipeline serves its numbers; none for nowhere."""
    snapshot: bool = True
    """Whether the rich series of queues are folded on Spark, where there is Spark, Java and memory for it."""
    snapshot_metrics: _Listen | None = "127.0.0.1:6635"
    """Where that program serves its numbers; none for nowhere."""
    worker: _Place | None = None
    """Where the worker is that is run; none for no worker."""
    worker_metrics: _Listen | None = "127.0.0.1:6634"
    """Where the worker serves its numbers; none for nowhere."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a server can be told."""

    server: ServerSettings = ServerSettings()
    store: StoreSection = StoreSection()
    spool: SpoolSection = SpoolSection()
    limits: Limits = Limits()
    logging: LoggingSettings = LoggingSettings()
    keys: KeySettings = KeySettings()
    jwt: JwtSettings = JwtSettings()
    queen: QueenSettings = QueenSettings()
    metrics: MetricsSettings = MetricsSettings()
    up: UpSettings = UpSettings()

    @property
    def keys_file(self) -> Path:
        """The file of API keys, also when none is set."""
        return Path(self.keys.file) if self.keys.file is not None else Path(self.store.data) / "keys.json"

    @property
    def spool_folder(self) -> Path:
        """The folder of the spool, also when none is set.

        That of the original server, where there is one for us: so its files are picked up.
        """
        if self.spool.folder is not None:
            return Path(self.spool.folder)
        return ORIGINAL_FOLDER if _is_ours(ORIGINAL_FOLDER) else Path(self.store.data) / "spool"


class ExporterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of requests that a relay has taken in."""

    queue: SendQueueSettings = SendQueueSettings()


class RelayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a relay can be told."""

    relay: RelaySettings = RelaySettings()
    exporter: ExporterSettings = ExporterSettings()
    logging: LoggingSettings = LoggingSettings()


def _is_ours(folder: Path) -> bool:
    """Whether this user may write to a folder, and not everybody: such a one, in /tmp, may be a trap."""
    try:
        mode = folder.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and not mode & stat.S_IWOTH and os.access(folder, os.W_OK | os.X_OK)
