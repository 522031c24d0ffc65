"""The data source `forebay`: what Spark asks for a reader or a writer.

It names no log: whoever registers it (the package `pyspark_forebay`) brings the function that opens one.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from forebay.log.seam import Log
from forebay.spark.keeping import settle_in
from forebay.spark.options import Options, Use, read_options

if TYPE_CHECKING:
    from forebay.spark.logs import Opener


class ForebayDataSource(DataSource):
    """Queues as DataFrames, both ways: batch and stream."""

    @staticmethod
    @abstractmethod
    def open_log(url: str) -> Log:
        """Open the log at an address."""

    @classmethod
    def name(cls) -> str:
        """What follows `format(...)`."""
        return "forebay"

    def schema(self) -> StructType:
        """The columns that are read by these options."""
        from forebay.spark.columns import message_schema  # noqa: PLC0415 - a writer needs none of it
        from forebay.spark.tables import table_schema  # noqa: PLC0415 - likewise

        settle_in()  # a process of its own is asked for this, and kept
        options = read_options(self.options)
        return message_schema(options) if options.table is None else table_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for `spark.read`."""
        from forebay.spark.reading import MessageReader  # noqa: PLC0415 - likewise
        from forebay.spark.tables import TableReader  # noqa: PLC0415 - likewise

        opener, options = self._asked("batch", schema)
        kind = MessageReader if options.table is None else TableReader
        return kind(opener, options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader for `spark.readStream`."""
        from forebay.spark.leasing import LeaseStream  # noqa: PLC0415 - likewise
        from forebay.spark.streaming import MessageStream  # noqa: PLC0415 - likewise

        opener, options = self._asked("stream", schema)
        kind = MessageStream if options.mode == "log" else LeaseStream
        return kind(opener, options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        """What writes a DataFrame to queues, once."""
        from forebay.spark.sink import BatchSink, plan_write  # noqa: PLC0415 - a reader needs none of it

        opener = type(self).open_log
        return BatchSink(plan_write(opener, self.options, schema, overwrite=overwrite, stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001 - likewise
        """What writes the batches of a stream to queues, each once."""
        from forebay.spark.sink import StreamSink, plan_write  # noqa: PLC0415 - likewise

        opener = type(self).open_log
        return StreamSink(plan_write(opener, self.options, schema, overwrite=overwrite, stream=True))

    def _asked(self, use: Use, schema: StructType) -> tuple[Opener, Options]:
        """How to open the log, and the options, checked for this use; so is a schema that was given."""
        from forebay.spark.columns import check_schema  # noqa: PLC0415 - likewise

        check_schema(schema, self.schema())
        return type(self).open_log, read_options(self.options, use)
