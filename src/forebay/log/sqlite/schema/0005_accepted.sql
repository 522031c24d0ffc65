-- When the message of a transaction id was accepted, where that is before it was written: it waited in a spool.
ALTER TABLE digest ADD COLUMN accepted_at INTEGER;
