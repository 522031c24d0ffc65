-- When the message of a transaction id was accepted, where that is before it was written: it waited in a spool.
-- Pieces are by the time of writing, so what is replayed finds its piece.
ALTER TABLE forebay.dedupe ADD COLUMN accepted_at bigint;
