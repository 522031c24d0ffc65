-- Start times of blocks of which something is to come later, so that it is counted without their bodies.

-- `starts` says which messages have which start time (see forebay.log.delays), `delayed` how many have one,
-- `earliest` and `latest` which come first and last. A row goes once `latest` is over.
CREATE TABLE forebay.delayed (
    queue     int NOT NULL,
    latest    bigint NOT NULL,
    last      bigint NOT NULL,
    count     int NOT NULL,
    earliest  bigint NOT NULL,
    delayed   int NOT NULL,
    partition text COLLATE "C",
    starts    bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX delayed_queue ON forebay.delayed (queue, latest);
CREATE INDEX delayed_latest ON forebay.delayed (latest);

-- The same of a staged block: see forebay.log.delays.Delays.
ALTER TABLE forebay.staged ADD COLUMN delays bytea;
