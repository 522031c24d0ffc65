"""The columns of the tables about queues, as text: the reference page shows them, and needs no Spark."""

from __future__ import annotations

from typing import Final

from forebay.spark.options import Tables

TABLES: Final[dict[Tables, str]] = {
    "queues": "queue string, number int, ordered boolean, paused boolean, created_at timestamp, "
    "first_seq bigint, next_seq bigint, messages bigint, groups int, settings string",
    "ledger": "queue string, group string, at timestamp, accepted bigint, ready bigint, delayed bigint, "
    "held bigint, deferred bigint, done bigint, dead bigint, purged bigint, expired bigint, corrupt bigint, "
    "spooled bigint, handed bigint, due bigint, lag bigint, difference bigint",
    "dead": "queue string, group string, seq bigint, message_id bigint, died_at timestamp, reason string, "
    "attempts int, partition string, key string, value binary, headers map<string,string>",
    "outcomes": "queue string, group string, seq bigint, message_id bigint, at timestamp, outcome string, "
    "attempts int, reason string, due_at timestamp, worker string",
    "skipped": "queue string, first_seq bigint, last_seq bigint, messages bigint, reason string, "
    "at timestamp",
}
"""The columns of each table. `lag` is what a group has not finished; of the rest see the ledger."""

TEXTS: Final[dict[Tables, str]] = {
    "queues": "One row for each queue. `settings` is JSON.",
    "ledger": "One row for each group of a queue, all of the same moment. `lag` is what the group has not "
    "finished: ready, delayed, held and deferred. `difference` is 0, or something is lost.",
    "dead": "One row for each dead letter, with the message itself. `pyspark_forebay.redrive` and `purge` "
    "take such rows.",
    "outcomes": "One row for each outcome of a message, as far as its block is kept: `outcome` is done, "
    "deferred, dead or expired. A message that was deferred has several.",
    "skipped": "One row for each range that readers with `failOnDataLoss` = false left out within 30 days, "
    "the last time `at`; `reason` is gone or damaged. Ranges may overlap where readers began at different "
    "places.",
}
