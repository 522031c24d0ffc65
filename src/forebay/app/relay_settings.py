"""The settings of a relay, out of a file, the environment and flags, in rising order.

The section `exporter.queue` has the keys of metrics-governor, so that its file can be used as it is. Every
key has a flag, named as there.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from forebay.app.configuring import Fault, misconfigured
from forebay.app.configuring.faults import Given
from forebay.app.configuring.flags import environment
from forebay.app.configuring.reading import Row, build, read_entries, rows_of
from forebay.app.configuring.schema import RELAY, RELAY_DESTINATION
from forebay.app.configuring.sources import from_environment, from_file
from forebay.app.settings import RelayConfig
from forebay.model import Misconfigured
from forebay.relay.destinations import RelayDestinationSettings

__all__ = ["RELAY_FLAGS", "addresses", "declare_relay_flags", "load_relay", "read_relay", "relay_rows"]


_QUEUE: Final = "exporter.queue."
_DESTINATIONS: Final = "relay.destinations"
_RENAMED: Final = {
    "meta_sync_interval": "meta-sync",
    "stale_flush_interval": "stale-flush",
}
"""Flags of metrics-governor that aren't called as their keys."""
_OWN: Final = {
    "--data": _QUEUE + "path",
    "--memory-limit-ratio": _QUEUE + "memory_limit_ratio",
    "--log-format": "logging.format",
    "--log-level": "logging.level",
}


def _flag(path: str) -> str:
    if not path.startswith(_QUEUE):
        return "--" + path.rpartition(".")[2].replace("_", "-")
    key = path.removeprefix(_QUEUE)
    return "--queue-" + _RENAMED.get(key, key.replace(".", "-").replace("_", "-"))


_OTHERWISE: Final = ("relay.to", "relay.insecure", "logging.format", "logging.level")
"""Settings whose flags aren't made from their names."""

RELAY_FLAGS: Final[Mapping[str, str]] = {
    **{_flag(path): path for path in RELAY.settings if path not in _OTHERWISE},
    **_OWN,
}
"""The path of each flag that takes a value."""


def declare_relay_flags(parser: argparse.ArgumentParser, *, only_queue: bool = False) -> None:
    """Declare `--config` and the flags; with `only_queue` those of the queue alone."""
    parser.add_argument("--config", metavar="FILE", help="the configuration file, YAML")
    if not only_queue:
        parser.add_argument(
            "--to", metavar="URL", action="append", help="a destination; may be repeated, all get everything"
        )
        parser.add_argument(
            "--insecure", action="store_true", help="listen beyond loopback, where the network is trusted"
        )
    for flag, path in RELAY_FLAGS.items():
        if only_queue and not path.startswith(_QUEUE):
            continue
        setting = RELAY.settings[path]
        choices = f": {', '.join(setting.choices)}" if setting.choices else ""
        parser.add_argument(
            flag, dest=_attribute(flag), metavar=setting.kind.upper(), help=f"{path}{choices}"
        )


def _attribute(flag: str) -> str:
    return "relay_flag_" + flag.strip("-").replace("-", "_")


def load_relay(arguments: argparse.Namespace) -> RelayConfig:
    """The settings by file, environment and flags; Misconfigured says everything that is wrong."""
    config, _, faults = read_relay(arguments)
    if config is None:
        raise misconfigured(faults)
    return config


def relay_rows(config: RelayConfig, origins: Mapping[str, str]) -> list[Row]:
    """Every setting, to be shown."""
    found = rows_of(RELAY, config, origins)
    for name, destination in config.relay.destinations.items():
        found += rows_of(RELAY_DESTINATION, destination, origins, f"{_DESTINATIONS}.{name}.")
    return found


def read_relay(arguments: argparse.Namespace) -> tuple[RelayConfig | None, dict[str, str], list[Fault]]:
    """Likewise, with where each comes from, and with what is wrong as values."""
    file: str | None = arguments.config
    found, faults = from_file(Path(file), "--config", RELAY) if file else ({}, [])
    flags = {
        path: Given(text, flag)
        for flag, path in RELAY_FLAGS.items()
        if (text := getattr(arguments, _attribute(flag), None)) is not None
    }
    if to := getattr(arguments, "to", None):
        flags["relay.to"] = Given(" ".join(to), "--to")
    if getattr(arguments, "insecure", False):
        flags["relay.insecure"] = Given("true", "--insecure")
    variables, more = from_environment(environment(), RELAY)
    config, origins, faults = build(RELAY, (found, variables, flags), [*faults, *more])
    entries, wrong = read_entries(
        _DESTINATIONS,
        RELAY_DESTINATION,
        file=Path(file) if file else None,
        file_source="--config",
        environ=environment(),
        origins=origins,
    )
    if config is None or wrong:
        return None, origins, [*faults, *wrong]
    assert isinstance(config, RelayConfig)
    destinations = {name: one for name, one in entries.items() if isinstance(one, RelayDestinationSettings)}
    relay = msgspec.structs.replace(config.relay, destinations=destinations)
    return msgspec.structs.replace(config, relay=relay), origins, faults


def addresses(config: RelayConfig) -> list[str]:
    """The addresses of `relay.to`; Misconfigured where there is no destination at all."""
    found = config.relay.to.split()
    if not found and not config.relay.destinations:
        raise Misconfigured(
            "the relay has no destination", hint="name one: --to http://prometheus:9090/api/v1/write"
        )
    return found
