-- Start times of blocks of which something is to come later, so that it is counted without their bodies.

-- `starts` says which messages have which start time (see forebay.log.delays), `delayed` how many have one,
-- `earliest` and `latest` which come first and last. A row goes once `latest` is over.
CREATE TABLE delayed (
    number INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    latest INTEGER NOT NULL,
    last INTEGER NOT NULL,
    count INTEGER NOT NULL,
    earliest INTEGER NOT NULL,
    delayed INTEGER NOT NULL,
    partition TEXT,
    starts BLOB NOT NULL
) STRICT;
CREATE INDEX delayed_queue ON delayed (queue, latest);
CREATE INDEX delayed_latest ON delayed (latest);
