-- Small values beside the blocks, by space and key, written in one transaction with them.

-- `version` counts the writes since the record was last not there. The value comes last, so that the other
-- columns are read without it.
CREATE TABLE record (
    number INTEGER PRIMARY KEY,
    space TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    value BLOB NOT NULL,
    UNIQUE (space, key)
) STRICT;
CREATE INDEX record_expires ON record (expires_at) WHERE expires_at IS NOT NULL;
