"""The two formats of a queue's folder, each as one value: its chunks, its meta, and its recovery."""

from collections.abc import Callable

import msgspec

from forebay.disk import Disk
from forebay.fastqueue.governor import GovernorLayout
from forebay.fastqueue.governor_meta import GovernorMeta, encode_governor_meta
from forebay.fastqueue.governor_recovery import recover_governor
from forebay.fastqueue.layout import Layout
from forebay.fastqueue.meta import Meta, encode_meta
from forebay.fastqueue.native import NativeLayout
from forebay.fastqueue.quarantine import Quarantine
from forebay.fastqueue.recovery import Progress, Recovered, recover
from forebay.fastqueue.settings import Compression, FastQueueSettings, FormatName
from forebay.model import Misconfigured


class Held(msgspec.Struct, frozen=True):
    """The contents of a queue, memory included."""

    entry_count: int
    total_bytes: int


class Format(msgspec.Struct, frozen=True):
    """A format; with `is_exact` the meta needs the very place of the cursor."""

    layout: Layout
    recover: Callable[[Disk, Quarantine, Progress], Recovered]
    encode: Callable[[Meta, Held], bytes]
    is_exact: bool


def format_of(settings: FastQueueSettings) -> Format:
    """The format that settings name."""
    return _FORMATS[settings.format](settings.compression, settings.chunk_size)


def formats_in(disk: Disk) -> list[FormatName]:
    """The formats of the chunk files in a folder."""
    names = disk.list()
    return [
        name
        for name, made in _FORMATS.items()
        if any(made("snappy", 1).layout.number(file) is not None for file in names)
    ]


def check_format(disk: Disk, settings: FastQueueSettings) -> None:
    """Raise `Misconfigured` where a folder has chunks of another format, which nobody would deliver."""
    for name in formats_in(disk):
        if name != settings.format:
            raise Misconfigured(
                f"the queue's folder {disk!r} has chunks of the format {name}, not {settings.format}",
                hint=f"set format: {name}, or copy them to another folder with `forebay fastqueue import`",
                key="format",
            )


def _native(compression: Compression, chunk_size: int) -> Format:
    layout = NativeLayout(compresses=compression == "snappy")

    def recover_native(disk: Disk, quarantine: Quarantine, _: Progress) -> Recovered:
        recovered = recover(disk, layout, quarantine)
        recovered.chunk_size = chunk_size
        return recovered

    return Format(layout, recover_native, lambda meta, _: encode_meta(meta), is_exact=False)


def _governor(compression: Compression, chunk_size: int) -> Format:
    layout = GovernorLayout(compresses=compression == "snappy", chunk_size=chunk_size)

    def recover_all(disk: Disk, quarantine: Quarantine, progress: Progress) -> Recovered:
        return recover_governor(disk, layout, quarantine, chunk_size, progress)

    def encode(meta: Meta, held: Held) -> bytes:
        end = max(0, meta.end.chunk + meta.end.offset)
        near = min(end, max(0, meta.near.chunk + meta.near.offset))
        fields = GovernorMeta("fastqueue", near, end, 2, held.entry_count, held.total_bytes)
        return encode_governor_meta(fields)

    return Format(layout, recover_all, encode, is_exact=True)


_FORMATS: dict[FormatName, Callable[[Compression, int], Format]] = {"native": _native, "governor": _governor}
