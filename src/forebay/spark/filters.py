"""Which partitions a batch read keeps, by its options; Spark applies all other conditions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from forebay.spark.arrow import Piece, partitions
from forebay.spark.options import Options


class PartitionFilter(msgspec.Struct, frozen=True):
    """One partition, or those whose names begin alike."""

    partition: str | None
    prefix: str | None

    @classmethod
    def of(cls, options: Options) -> PartitionFilter | None:
        """The filter that options ask for; None where all partitions are read."""
        if options.partition is None and options.partitionPrefix is None:
            return None
        return cls(options.partition, options.partitionPrefix)

    def mask(self, column: pa.Array) -> pa.Array:
        """Which names of a column are kept."""
        if self.partition is not None:
            return pc.equal(column, self.partition)
        return pc.starts_with(column, self.prefix)

    def keep(self, pieces: Sequence[Piece]) -> pa.Array:
        """Which messages of pieces are kept."""
        return self.mask(partitions(pieces, pa.string()))
