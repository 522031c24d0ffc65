-- What publishing needs to know of a staged block, so that its body stays where it is.

-- `count` is null where the block has to be looked at again: it was staged before this, or repeats a transaction id.
-- `digests` has 16 bytes for each message; none where it has no transaction ids, and no bytes where they did not
-- count when it was staged.
ALTER TABLE forebay.staged
    ADD COLUMN count int,
    ADD COLUMN partition text COLLATE "C",
    ADD COLUMN flows bytea,
    ADD COLUMN digests bytea;
ALTER TABLE forebay.staged ALTER COLUMN digests SET STORAGE EXTERNAL;
