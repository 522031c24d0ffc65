"""The page on the data source `forebay`: every option and every column, from the code."""

from collections.abc import Iterator

from forebay.spark.options import OPTIONS
from forebay.spark.table_columns import TABLES, TEXTS

MESSAGES = (
    ("queue", "string", "The queue."),
    ("partition", "string", "The ordering key."),
    ("seq", "bigint", "The sequence number: from 1, without gaps, per queue."),
    ("key", "string", "The transaction id, or null."),
    ("value", "binary", "The payload."),
    ("created_at", "timestamp", "When its push was answered; a spooled message came to the log later."),
    ("headers", "map<string,string>", "With `includeHeaders`; null where there are none."),
)
USES = {"batch": "read", "stream": "readStream", "lease": "readStream, mode lease", "table": "table"}


def spark_page() -> Iterator[str]:
    """The page, line by line."""
    yield "# The data source `forebay` of Spark\n"
    yield 'What `spark.read` and `spark.readStream` can be told with `format("forebay")`, and what they give.'
    yield "[Read queues with Spark](../how-to/read-queues-with-spark.md) shows how.\n"
    yield "## Columns of messages\n"
    yield "| column | type | meaning |\n|---|---|---|"
    for name, kind, text in MESSAGES:
        yield f"| `{name}` | {kind} | {text} |"
    yield "\nWith `contract` there is a column for each field (`field_<name>`, where the name is taken), and"
    yield "`_error`, which is null where the fields could be read.\n"
    yield "## Options for reading\n"
    yield "Names in any case. An option that isn't known, or says nothing to that kind of read, is refused.\n"
    yield "| option | takes | default | for | meaning |\n|---|---|---|---|---|"
    for option in OPTIONS:
        uses = "all" if len(option.uses) == len(USES) else "; ".join(USES[use] for use in option.uses)
        yield f"| `{option.name}` | {option.takes} | {option.default} | {uses} | {option.text} |"
    yield "\n## Tables\n"
    yield '`option("table", …)`; `queue`, `subscribe`, `subscribePattern` and `groupId` narrow them.'
    for table, columns in TABLES.items():
        yield f"\n### {table}\n\n{TEXTS[table]}\n\n| column | type |\n|---|---|"
        for column in columns.split(", "):
            name, kind = column.split(" ")
            yield f"| `{name}` | {kind} |"
    yield ""
