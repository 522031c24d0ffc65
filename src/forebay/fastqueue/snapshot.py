"""The state of a queue at one moment, as its meta will say it once what is written is safe."""

from forebay.disk import Disk
from forebay.fastqueue.channel import Channel
from forebay.fastqueue.chunk import Chunk, Chunks
from forebay.fastqueue.chunk_file import ChunkFile
from forebay.fastqueue.formats import Format, Held
from forebay.fastqueue.meta import RANGES_MAX, Mark, Meta
from forebay.fastqueue.record import Place
from forebay.fastqueue.recovery import scan
from forebay.fastqueue.window import Window
from forebay.fastqueue.writer import Writer


class Snapshots:
    """Takes snapshots of the parts of a queue, which its lock holds still meanwhile."""

    def __init__(
        self, disk: Disk, chosen: Format, identity: int,
        *, window: Window, writer: Writer, chunks: Chunks, channel: Channel,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._format = chosen
        self._identity = identity
        self._window = window
        self._writer = writer
        self._chunks = chunks
        self._channel = channel

    def take(self, held: Held) -> Meta:
        """The meta of now; what is in memory alone doesn't count in it."""
        window, end, place = self._window, self._writer.end, self._writer.place
        pending = [
            len(record.data)
            for record in self._channel.slice(max(end, self._channel.start), self._channel.end)
            if window.is_open(record.sequence)
        ]
        ranges, size, left_out = window.acked_ranges(RANGES_MAX)
        chunk = self._chunks.holding(window.cursor)
        near = self._near(chunk) if chunk else place
        return Meta(
            identity=self._identity,
            cursor=window.cursor,
            near=Mark(near.sequence, near.chunk, near.offset),
            end=Mark(end, place.chunk, place.offset),
            is_open=self._writer.is_open,
            bytes_before=self._writer.bytes_before,
            entry_count=held.entry_count - len(pending) + left_out[0],
            total_bytes=held.total_bytes - sum(pending) + left_out[1],
            acked=ranges,
            acked_bytes=size,
        )

    def _near(self, chunk: Chunk) -> Place:
        """A place from which the record at the cursor is found; its own, if the format needs that."""
        place, cursor = chunk.nearest(self._window.cursor), self._window.cursor
        if not self._format.is_exact or place.sequence >= cursor:
            return place
        file = ChunkFile(self._disk.open(chunk.name), chunk.holes)
        try:
            found = scan(self._format.layout, file, chunk, place, chunk.stop, before=cursor)
        finally:
            file.close()
        return Place(chunk.number, found.stop, cursor)
