-- Small values beside the blocks, by space and key, written in one transaction with them.

-- `version` counts the writes since the record was last not there.
CREATE TABLE forebay.record (
    space      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    value      bytea NOT NULL,
    PRIMARY KEY (space, key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX record_expires ON forebay.record (expires_at) WHERE expires_at IS NOT NULL;

-- Partitions are listed by name in the same order whatever the database's own is. Rebuilds the indexes, not the
-- tables; all three, since columns of different order can't be looked up in each other's indexes.
ALTER TABLE forebay.block ALTER COLUMN partition TYPE text COLLATE "C";
ALTER TABLE forebay.claim ALTER COLUMN partition TYPE text COLLATE "C";
ALTER TABLE forebay.lane ALTER COLUMN partition TYPE text COLLATE "C";
