-- Times are microseconds UTC. Message ids pack the queue's number and the sequence number, so the ids
-- of one queue are one range of any index that begins with an id.

-- Tokens are handed out once, to claims of any group.
CREATE TABLE counter (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    token INTEGER NOT NULL
) STRICT;
INSERT INTO counter VALUES (1, 0);

-- `born` is the sequence number at which a queue began anew after it was deleted.
CREATE TABLE queue (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    next INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    born INTEGER NOT NULL,
    appended_at INTEGER NOT NULL,
    deleted INTEGER NOT NULL
) STRICT;

-- `position` is the sequence number from which on the group has claimed nothing; in an ordered queue
-- the one from which on it has not looked for lanes. A deleted group has no name, and goes once its
-- rows are gone.
CREATE TABLE consumer_group (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    queue INTEGER NOT NULL,
    name TEXT,
    start INTEGER NOT NULL,
    position INTEGER NOT NULL,
    claimed INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0,
    corrupt INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue, name)
) STRICT;

-- `last` is the id of the block's last message: the first block that ends at or after a message holds
-- it. The body comes last, so that the other columns are read without it.
CREATE TABLE block (
    last INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    appended_at INTEGER NOT NULL,
    size INTEGER NOT NULL,
    id BLOB NOT NULL,
    partition TEXT,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX block_partition ON block (partition, last) WHERE partition IS NOT NULL;

-- What a block id was answered, and which settlements of a commit came too late.
CREATE TABLE receipt (
    id BLOB PRIMARY KEY,
    at INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    dropped BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX receipt_at ON receipt (at);

CREATE TABLE settled (
    id BLOB PRIMARY KEY,
    at INTEGER NOT NULL,
    conflicts BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX settled_at ON settled (at);

-- Transaction ids by digest; `digest_block` lists them again by block, so that old ones are found
-- without an index over time.
CREATE TABLE digest (
    digest BLOB PRIMARY KEY,
    message_id INTEGER NOT NULL,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE digest_block (
    last INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    digests BLOB NOT NULL
) STRICT;

-- No owner: deferred, or given back. No `done` or `handed`: nothing is.
CREATE TABLE claim (
    token INTEGER PRIMARY KEY,
    group_number INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    remaining INTEGER NOT NULL,
    block_last INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    start_time INTEGER NOT NULL,
    prev_start_time INTEGER,
    attempts INTEGER NOT NULL,
    owner TEXT,
    partition TEXT,
    done BLOB,
    handed BLOB
) STRICT;
CREATE INDEX claim_first ON claim (group_number, first);
CREATE INDEX claim_owner ON claim (owner, group_number, first, count) WHERE owner IS NOT NULL;
CREATE INDEX claim_due ON claim (group_number, due_at, first, count) WHERE owner IS NULL;
CREATE INDEX claim_partition ON claim (group_number, partition, first, count) WHERE partition IS NOT NULL;

-- A partition of an ordered queue as a group sees it: everything before `position` was claimed.
-- `ready` is the `last` of the first block of which something can be claimed; none while a claim is
-- open, or nothing is left.
CREATE TABLE lane (
    group_number INTEGER NOT NULL,
    partition TEXT NOT NULL,
    position INTEGER NOT NULL,
    ready INTEGER,
    PRIMARY KEY (group_number, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX lane_ready ON lane (group_number, ready) WHERE ready IS NOT NULL;

CREATE TABLE dead_letter (
    number INTEGER PRIMARY KEY,
    group_number INTEGER NOT NULL,
    message_id INTEGER NOT NULL,
    died_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    reason TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (group_number, message_id)
) STRICT;

CREATE TABLE outcome (
    group_number INTEGER NOT NULL,
    block_last INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (group_number, block_last, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE owner (
    name TEXT PRIMARY KEY,
    beat_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A stage that is forgotten has no name, and goes once its blocks are gone.
CREATE TABLE stage (
    number INTEGER PRIMARY KEY,
    name TEXT UNIQUE,
    at INTEGER NOT NULL
) STRICT;

CREATE TABLE staged (
    number INTEGER PRIMARY KEY,
    stage INTEGER NOT NULL,
    queue INTEGER NOT NULL,
    id BLOB NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (stage, id)
) STRICT;

CREATE TABLE quarantine (
    first INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    appended_at INTEGER NOT NULL,
    id BLOB NOT NULL,
    partition TEXT,
    body BLOB NOT NULL
) STRICT;
