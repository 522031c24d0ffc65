-- Flows of blocks, counted without their bodies; dead letters that can be redriven, purged and restored.

-- How many messages of each flow a block holds (see forebay.log.flows); null where none has one.
ALTER TABLE forebay.block ADD COLUMN flows bytea;

-- block_last and partition are those of the claim in which the message died.
ALTER TABLE forebay.dead_letter
    ADD COLUMN state text NOT NULL DEFAULT 'dead' CHECK (state IN ('dead', 'purged', 'redriven')),
    ADD COLUMN changed_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN block_last bigint,
    ADD COLUMN partition text;
UPDATE forebay.dead_letter AS d SET block_last = b.last, partition = b.partition
    FROM forebay.block AS b
    WHERE b.last = (SELECT last FROM forebay.block WHERE last >= d.message_id ORDER BY last LIMIT 1)
        AND b.last - b.count < d.message_id;
CREATE INDEX dead_letter_dead ON forebay.dead_letter (grp, message_id) WHERE state = 'dead';
CREATE INDEX dead_letter_changed ON forebay.dead_letter (changed_at) WHERE state <> 'dead';

-- The message id of the dead letter that was redriven: its body is the one to hand out.
ALTER TABLE forebay.claim ADD COLUMN letter bigint;
CREATE INDEX claim_letter ON forebay.claim (grp, letter) WHERE letter IS NOT NULL;

ALTER TABLE forebay.tally ADD COLUMN purged bigint NOT NULL DEFAULT 0;
