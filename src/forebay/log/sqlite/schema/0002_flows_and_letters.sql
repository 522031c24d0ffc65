-- Flows of blocks, counted without their bodies; dead letters that can be redriven, purged and restored.

-- `flows` says how many messages of each flow a block holds (see forebay.log.flows). The table is copied,
-- because a column that is added comes after the body: to read it would be to read the body.
CREATE TABLE block_anew (
    last INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    appended_at INTEGER NOT NULL,
    size INTEGER NOT NULL,
    id BLOB NOT NULL,
    partition TEXT,
    flows BLOB,
    body BLOB NOT NULL
) STRICT;
INSERT INTO block_anew (last, count, appended_at, size, id, partition, body)
SELECT last, count, appended_at, size, id, partition, body FROM block ORDER BY last;
DROP TABLE block;
ALTER TABLE block_anew RENAME TO block;
CREATE INDEX block_partition ON block (partition, last) WHERE partition IS NOT NULL;

-- `block_last` and `partition` are those of the claim in which the message died.
ALTER TABLE dead_letter ADD COLUMN state TEXT NOT NULL DEFAULT 'dead'
    CHECK (state IN ('dead', 'purged', 'redriven'));
ALTER TABLE dead_letter ADD COLUMN changed_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead_letter ADD COLUMN block_last INTEGER;
ALTER TABLE dead_letter ADD COLUMN partition TEXT;
UPDATE dead_letter SET (block_last, partition) = (
    SELECT last, partition FROM block WHERE last = (SELECT min(last) FROM block WHERE last >= message_id)
        AND last - count < message_id
);
CREATE INDEX dead_letter_dead ON dead_letter (group_number, message_id) WHERE state = 'dead';
CREATE INDEX dead_letter_changed ON dead_letter (changed_at) WHERE state <> 'dead';

-- `letter` is the message id of the dead letter that was redriven: its body is the one to hand out.
ALTER TABLE claim ADD COLUMN letter INTEGER;
CREATE INDEX claim_letter ON claim (group_number, letter) WHERE letter IS NOT NULL;

ALTER TABLE consumer_group ADD COLUMN purged INTEGER NOT NULL DEFAULT 0;
