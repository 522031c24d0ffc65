"""The flags that set settings, and the only place that reads the environment."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from forebay.app.configuring.faults import Given, misconfigured
from forebay.app.configuring.reading import Loaded, Reading, read_settings
from forebay.app.configuring.schema import SETTINGS

__all__ = ["FLAGS", "OF_SERVER", "Flag", "declare_settings", "environment", "load_from", "read_from"]


class Flag(msgspec.Struct, frozen=True):
    """A flag that sets a setting."""

    name: str
    path: str
    metavar: str
    help: str

    @property
    def attribute(self) -> str:
        """Where argparse puts it; no command has another argument of this name."""
        return "setting_" + self.path.replace(".", "_")


FLAGS: Final = (
    Flag("--listen", "server.listen", "HOST:PORT", "where to listen"),
    Flag("--data", "store.data", "FOLDER", "the data folder"),
    Flag("--store", "store.url", "URL", "the log"),
    Flag("--warm", "store.warm", "URL", "the shared warm tier"),
    Flag("--spool", "spool.folder", "FOLDER", "the folder of the spool"),
    Flag("--keys", "keys.file", "FILE", "the file of API keys"),
    Flag("--tls-certificate", "server.tls_certificate", "FILE", "the certificate, PEM"),
    Flag("--tls-key", "server.tls_key", "FILE", "its private key, PEM"),
    Flag("--insecure", "server.insecure", "", "listen beyond loopback without API keys"),
    Flag("--log-format", "logging.format", "FORMAT", "auto, json or people"),
    Flag("--log-level", "logging.level", "LEVEL", "debug, info, warning or error"),
    Flag("--flows", "up.flows", "FILE", "run the flows of this file"),
    Flag("--flows-metrics", "up.flows_metrics", "HOST:PORT", "where their numbers are"),
    Flag("--worker", "up.worker", "MODULE:NAME", "run this worker"),
    Flag("--worker-metrics", "up.worker_metrics", "HOST:PORT", "where its numbers are"),
)
OF_SERVER: Final = tuple(flag.name for flag in FLAGS if not flag.path.startswith("up."))
"""Those that mean something to a server."""


def declare_settings(parser: argparse.ArgumentParser, *, only: tuple[str, ...] | None = None) -> None:
    """Declare `--config` and the flags, all of them or those that `only` names."""
    parser.add_argument("--config", metavar="FILE", help="the configuration file, YAML")
    for flag in FLAGS:
        if only is not None and flag.name not in only:
            continue
        if SETTINGS[flag.path].kind == "switch":
            parser.add_argument(
                flag.name, dest=flag.attribute, action="store_const", const="true", help=flag.help
            )
        else:
            parser.add_argument(flag.name, dest=flag.attribute, metavar=flag.metavar, help=flag.help)


def environment() -> Mapping[str, str]:
    """The variables of this process."""
    return os.environ


def load_from(arguments: argparse.Namespace) -> Loaded:
    """The settings by file, environment and flags; Misconfigured says everything that is wrong."""
    reading = read_from(arguments)
    if reading.loaded is None:
        raise misconfigured(reading.faults)
    return reading.loaded


def read_from(arguments: argparse.Namespace) -> Reading:
    """Likewise, with what is wrong as values."""
    named: str | None = arguments.config
    source = "--config" if named else "FOREBAY_CONFIG"
    file = named or os.environ.get("FOREBAY_CONFIG")
    flags = {
        flag.path: Given(text, flag.name)
        for flag in FLAGS
        if (text := getattr(arguments, flag.attribute, None)) is not None
    }
    return read_settings(
        file=Path(file) if file else None, file_source=source, environ=os.environ, flags=flags
    )
