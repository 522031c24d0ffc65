-- The log: queues, blocks, groups, claims, outcomes, and what is remembered of ids.
--
-- How it keeps from rotting:
--   * blocks, receipts, dedupe and outcomes are only appended, in pieces by time that are dropped whole;
--   * counters and cursors (head, cursor, tally) are appended too: the newest row counts, older ones are
--     swept away behind it, so a reader never walks over dead rows, however old the oldest snapshot is;
--   * claims, lanes and deferrals are few (what is in flight) and found by unique keys.
--
-- Order of locks, always: queues, cursors, tallies, each by number (see functions.sql).
-- Ids pack queue number << 45 | sequence number. Times are microseconds UTC.

CREATE TABLE forebay.queue (
    number     int PRIMARY KEY CHECK (number BETWEEN 1 AND 262143),
    name       text NOT NULL UNIQUE,
    settings   jsonb NOT NULL,
    ordered    boolean NOT NULL,
    dedupe_us  bigint NOT NULL,
    floor      bigint NOT NULL DEFAULT 1,
    created_at bigint NOT NULL,
    deleted    boolean NOT NULL DEFAULT false
);

-- The newest row says which sequence number comes next.
CREATE TABLE forebay.head (
    queue       int NOT NULL,
    next        bigint NOT NULL,
    appended_at bigint NOT NULL,
    PRIMARY KEY (queue, next)
);

CREATE TABLE forebay.block (
    last        bigint NOT NULL,  -- id of the last message: the key, so that "from this message on" is one range
    count       int NOT NULL,
    id          uuid NOT NULL,
    appended_at bigint NOT NULL,
    partition   text,             -- in ordered queues only
    body        bytea NOT NULL,
    PRIMARY KEY (last, appended_at)
) PARTITION BY RANGE (appended_at);
ALTER TABLE forebay.block ALTER COLUMN body SET STORAGE EXTERNAL;  -- it is compressed already
CREATE INDEX block_partition ON forebay.block (partition, last) WHERE partition IS NOT NULL;

-- What an id did when it was written first: a block (first, count, dropped) or settlements (conflicts).
CREATE TABLE forebay.receipt (
    id         uuid NOT NULL,
    written_at bigint NOT NULL,
    first      bigint,
    count      int,
    dropped    bytea,
    conflicts  int[]
) PARTITION BY RANGE (written_at);
CREATE INDEX receipt_id ON forebay.receipt (id);

CREATE TABLE forebay.dedupe (
    digest     bytea NOT NULL,
    at         bigint NOT NULL,
    message_id bigint NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX dedupe_digest ON forebay.dedupe (digest);

CREATE TABLE forebay.consumer_group (
    number     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue      int NOT NULL REFERENCES forebay.queue,
    name       text NOT NULL,
    start      bigint NOT NULL,
    created_at bigint NOT NULL,
    UNIQUE (queue, name)
);

-- The newest row is where a group stands. Claiming moves it, under the cursor's lock.
CREATE TABLE forebay.cursor (
    grp         int NOT NULL,
    turn        bigint NOT NULL,
    position    bigint NOT NULL,  -- next sequence number to claim (ordered: to discover)
    position_at bigint NOT NULL,  -- blocks from there on were not appended before this time
    claimed     bigint NOT NULL,
    skipped     bigint NOT NULL,  -- expired before they were claimed
    PRIMARY KEY (grp, turn)
);

-- The newest row is what a group has finished. Settling moves it, under the tally's lock, so that
-- claiming and settling don't wait for each other.
CREATE TABLE forebay.tally (
    grp     int NOT NULL,
    turn    bigint NOT NULL,
    done    bigint NOT NULL,
    dead    bigint NOT NULL,
    expired bigint NOT NULL,
    corrupt bigint NOT NULL,
    PRIMARY KEY (grp, turn)
);

-- Messages behind the cursor that are not finished: held by an owner, or waiting for their time.
CREATE TABLE forebay.claim (
    token           bigint PRIMARY KEY,
    grp             int NOT NULL,
    first           bigint NOT NULL,
    count           int NOT NULL,
    block_last      bigint NOT NULL,
    block_at        bigint NOT NULL,
    partition       text,
    owner           text,
    due_at          bigint NOT NULL,
    start_time      bigint NOT NULL,
    prev_start_time bigint,
    attempts        int NOT NULL DEFAULT 0,
    done            varbit NOT NULL,
    handed          varbit NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX claim_due ON forebay.claim (grp, due_at, first, count) WHERE owner IS NULL;
CREATE INDEX claim_partition ON forebay.claim (grp, partition) WHERE partition IS NOT NULL;

-- A partition of an ordered queue as one group sees it; ready = the message id where its next run begins.
CREATE TABLE forebay.lane (
    grp       int NOT NULL,
    partition text NOT NULL,
    position  bigint NOT NULL,
    ready     bigint,
    PRIMARY KEY (grp, partition)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX lane_ready ON forebay.lane (grp, ready) WHERE ready IS NOT NULL;

CREATE TABLE forebay.outcome (
    grp        int NOT NULL,
    block_last bigint NOT NULL,
    first      bigint NOT NULL,
    count      int NOT NULL,
    at         bigint NOT NULL,
    body       bytea NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX outcome_block ON forebay.outcome (grp, block_last);

CREATE TABLE forebay.dead_letter (
    grp        int NOT NULL,
    message_id bigint NOT NULL,
    died_at    bigint NOT NULL,
    reason     text NOT NULL,
    attempts   int NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (grp, message_id)
);

CREATE TABLE forebay.owner (
    name    text PRIMARY KEY,
    beat_at bigint NOT NULL
);

CREATE TABLE forebay.staged (
    stage     text NOT NULL,
    id        uuid NOT NULL,
    queue     int NOT NULL,
    body      bytea NOT NULL,
    staged_at bigint NOT NULL,
    PRIMARY KEY (stage, id)
);
ALTER TABLE forebay.staged ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE forebay.quarantine (
    first       bigint PRIMARY KEY,
    count       int NOT NULL,
    id          uuid NOT NULL,
    appended_at bigint NOT NULL,
    partition   text,
    body        bytea NOT NULL,
    found_at    bigint NOT NULL
);

-- Where forebay.push() leaves messages, inside the caller's own transaction, until they are swept into blocks.
CREATE TABLE forebay.inbox (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue          int NOT NULL,
    payload        bytea NOT NULL,
    partition      text NOT NULL,
    transaction_id text,
    headers        jsonb,
    start_time     bigint
);

-- Rows of the inbox that no block can hold, with the reason.
CREATE TABLE forebay.inbox_rejected (
    LIKE forebay.inbox,
    reason      text NOT NULL,
    rejected_at bigint NOT NULL
);

-- The pieces by time of the partitioned tables.
CREATE TABLE forebay.span (
    parent text PRIMARY KEY,
    us     bigint NOT NULL
);

CREATE TABLE forebay.piece (
    parent text NOT NULL REFERENCES forebay.span,
    lower  bigint NOT NULL,
    upper  bigint NOT NULL,
    PRIMARY KEY (parent, lower)
);
