-- The verbs that must be one round trip. Installed again whenever this file changes.
--
-- Whoever appends to a queue takes the queue's lock; whoever moves a group's cursor or lanes, or takes
-- claims over, the cursor's lock; whoever counts what is finished, the tally's lock. In this order, each
-- by number. A lock is held to the end of the transaction, and each statement after it sees what earlier
-- holders committed: so sequence numbers follow the order of commits, and a check and the write that it
-- allows can't be torn apart. A claim itself is guarded by its row lock: its token changes hands there.
-- Claims are locked by group and first message, between the cursors and the tallies; records last, by space and
-- key. A commit with records takes the lock of its own id before all others, a publish that of its stage.
--
-- Commits that many wait for are lazy: they don't wait for the disk while they hold a lock. Whoever
-- acknowledges them, or hands out what they claim, waits for a later commit to be on disk
-- (durability.py), and so for them: the write-ahead log is one line. What a crash of the database loses
-- was never told to anybody; tokens are drawn by lot all the same, so that none is ever used twice.

CREATE OR REPLACE FUNCTION forebay.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

CREATE OR REPLACE FUNCTION forebay.draw_token() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (random() * 4611686018427387904)::bigint $$;

CREATE OR REPLACE FUNCTION forebay.lock_queue(p_queue int) RETURNS void LANGUAGE sql VOLATILE AS
$$ SELECT pg_advisory_xact_lock('forebay.queue'::regclass::oid::int, p_queue) $$;

CREATE OR REPLACE FUNCTION forebay.lock_cursor(p_group int) RETURNS void LANGUAGE sql VOLATILE AS
$$ SELECT pg_advisory_xact_lock('forebay.cursor'::regclass::oid::int, p_group) $$;

CREATE OR REPLACE FUNCTION forebay.lock_tally(p_group int) RETURNS void LANGUAGE sql VOLATILE AS
$$ SELECT pg_advisory_xact_lock('forebay.tally'::regclass::oid::int, p_group) $$;

-- Make the pieces that hold a time, where they are missing. ATTACH doesn't wait for readers.
CREATE OR REPLACE FUNCTION forebay.make_pieces(p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_span record;
    v_lower bigint;
    v_name text;
BEGIN
    PERFORM pg_advisory_xact_lock('forebay.piece'::regclass::oid::int, 0);
    FOR v_span IN SELECT * FROM forebay.span LOOP
        v_lower := p_at / v_span.us * v_span.us;
        CONTINUE WHEN EXISTS (
            SELECT FROM forebay.piece WHERE parent = v_span.parent AND lower = v_lower);
        v_name := v_span.parent || '_' || v_lower;
        EXECUTE format('CREATE TABLE forebay.%I (LIKE forebay.%I INCLUDING ALL)', v_name, v_span.parent);
        EXECUTE format('ALTER TABLE forebay.%I ATTACH PARTITION forebay.%I FOR VALUES FROM (%s) TO (%s)',
            v_span.parent, v_name, v_lower, v_lower + v_span.us);
        INSERT INTO forebay.piece VALUES (v_span.parent, v_lower, v_lower + v_span.us);
    END LOOP;
END $$;

-- A new row of the cursor: the newest plus what has changed.
CREATE OR REPLACE FUNCTION forebay.move_cursor(
    p_group int, p_position bigint, p_position_at bigint, p_claimed bigint, p_skipped bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c forebay.cursor;
BEGIN
    SELECT * INTO STRICT c FROM forebay.cursor WHERE grp = p_group ORDER BY turn DESC LIMIT 1;
    INSERT INTO forebay.cursor VALUES (p_group, c.turn + 1, p_position, coalesce(p_position_at, c.position_at),
        c.claimed + p_claimed, c.skipped + p_skipped);
    IF c.turn % 256 = 0 THEN
        DELETE FROM forebay.cursor WHERE grp = p_group AND turn < c.turn;
    END IF;
END $$;

-- A new row of the tally: the newest plus what was finished. Takes the tally's lock.
CREATE OR REPLACE FUNCTION forebay.add_tally(
    p_group int, p_done bigint, p_dead bigint, p_expired bigint, p_corrupt bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t forebay.tally;
BEGIN
    PERFORM forebay.lock_tally(p_group);
    SELECT * INTO STRICT t FROM forebay.tally WHERE grp = p_group ORDER BY turn DESC LIMIT 1;
    INSERT INTO forebay.tally VALUES (p_group, t.turn + 1, t.done + p_done, t.dead + p_dead,
        t.expired + p_expired, t.corrupt + p_corrupt, t.purged);
    IF t.turn % 256 = 0 THEN
        DELETE FROM forebay.tally WHERE grp = p_group AND turn < t.turn;
    END IF;
END $$;

-- The same for dead letters that change their state.
CREATE OR REPLACE FUNCTION forebay.count_letters(p_group int, p_dead bigint, p_purged bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    t forebay.tally;
BEGIN
    PERFORM forebay.lock_tally(p_group);
    SELECT * INTO STRICT t FROM forebay.tally WHERE grp = p_group ORDER BY turn DESC LIMIT 1;
    INSERT INTO forebay.tally VALUES (p_group, t.turn + 1, t.done, t.dead + p_dead, t.expired, t.corrupt,
        t.purged + p_purged);
END $$;

DROP FUNCTION IF EXISTS forebay.write;
DROP FUNCTION IF EXISTS forebay.append_plain;
DROP TYPE IF EXISTS forebay.answer;
CREATE TYPE forebay.answer AS (
    kind text,          -- 'appended', 'known', 'found', 'gone' (per append); 'settled' (per commit)
    ord int,
    first bigint,
    count int,
    dropped bytea,
    found_index int[],
    found_id bigint[],
    conflicts int[]
);

-- Append blocks and settle outcomes. Appends come sorted by queue, settlements by group and by claim.
CREATE FUNCTION forebay.write(
    p_lazy boolean, p_plain boolean,  -- plain: other block ids each, messages in each, no transaction ids
    p_whole boolean,    -- each settlement finishes all of its claim, and no claim comes twice
    p_now bigint, p_ids_since bigint, p_ids_until bigint,
    a_ord int[], a_queue int[], a_id uuid[], a_count int[], a_partition text[], a_body bytea[],
    a_dropped bytea[], a_digests bytea[], a_accepted bigint[], a_flows bytea[],
    i_id uuid[],        -- of the commits that settle
    s_item int[], s_ord int[], s_group int[], s_token bigint[], s_finished varbit[], s_done int[],
    s_expired int[], s_outcome bytea[],
    f_settlement int[], f_offset int[], f_count int[], f_due bigint[], f_attempts int[], f_prev bigint[],
    x_settlement int[], x_offset int[], x_reason text[], x_attempts int[], x_body bytea[]
) RETURNS SETOF forebay.answer LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_queue int := 0;
    v_ordered boolean;
    v_dedupe bigint;
    v_born bigint;
    v_accepted bigint;
    v_next bigint;
    v_head bigint;
    v_at bigint;
    v_first bigint;
    v_receipt record;
    v_known boolean[] := array_fill(false, ARRAY[greatest(cardinality(i_id), 1)]);
    v_conflicts int[];
    v_all_conflicts int[] := '{}';  -- settlements (position in s_*) that came too late
    v_claim forebay.claim;
    v_settled boolean[] := array_fill(false, ARRAY[cardinality(s_token)]);
    v_together bigint[];  -- settlements that were written together
    v_one bigint;
    v_back_token bigint;  -- the claim of an ordered queue of which something went back last:
    v_back int;         -- from which offset on
    v_back_due bigint;  -- and until when
    v_f int := 1;       -- where in f_* and in x_* the settlements have come to
    v_x int := 1;
    v_dead int[] := '{}';    -- the group of each message that died, or was purged
    v_purged int[] := '{}';
    v_tally record;
    v_message bigint;
    v_state text;
    v_done int := 0;    -- appends that were written together
    r forebay.answer;
BEGIN
    IF p_lazy THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSE  -- also where all is known already: what was found may have been committed lazily
        PERFORM pg_logical_emit_message(true, 'forebay', '');
    END IF;
    IF cardinality(a_queue) > 0 THEN
        PERFORM forebay.lock_queue(q) FROM (SELECT DISTINCT unnest(a_queue) AS q ORDER BY 1) AS queues;
    END IF;
    IF cardinality(s_group) > 0 THEN
        PERFORM forebay.lock_cursor(number) FROM (  -- settling frees lanes
            SELECT g.number FROM forebay.consumer_group AS g JOIN forebay.queue AS q ON q.number = g.queue
            WHERE g.number = ANY (s_group) AND q.ordered ORDER BY 1) AS groups;
    END IF;
    v_now := coalesce(p_now, forebay.now_us());
    IF p_ids_until > v_now + 86400000000 THEN  -- its receipt could not be found by its time
        RAISE EXCEPTION 'an id lies more than a day in the future of the log''s clock' USING ERRCODE = 'FB400';
    END IF;

    IF p_plain AND NOT EXISTS (SELECT FROM unnest(a_id) AS u (id), LATERAL (
            SELECT FROM forebay.receipt AS k
            WHERE k.id = u.id AND k.written_at >= p_ids_since AND k.first IS NOT NULL LIMIT 1) AS known) THEN
        WHILE v_done < cardinality(a_id) LOOP
            v_first := v_done + 1;
            WHILE a_queue[v_done + 1] = a_queue[v_first] LOOP
                v_done := v_done + 1;
            END LOOP;
            RETURN QUERY SELECT * FROM forebay.append_plain(v_now, a_queue[v_first], a_ord[v_first:v_done],
                a_id[v_first:v_done], a_count[v_first:v_done], a_partition[v_first:v_done], a_body[v_first:v_done],
                a_flows[v_first:v_done]);
        END LOOP;
    END IF;
    FOR i IN v_done + 1 .. cardinality(a_id) LOOP
        r := ROW('appended', a_ord[i], NULL, NULL, NULL, NULL, NULL, NULL);
        IF a_queue[i] <> v_queue THEN
            IF v_next > v_head THEN
                INSERT INTO forebay.head VALUES (v_queue, v_next, v_at);
            END IF;
            v_queue := a_queue[i];
            SELECT ordered, dedupe_us, created_at INTO v_ordered, v_dedupe, v_born
                FROM forebay.queue WHERE number = v_queue AND NOT deleted;
            SELECT next, greatest(appended_at, v_now) INTO v_next, v_at
                FROM forebay.head WHERE queue = v_queue ORDER BY next DESC LIMIT 1;
            v_head := v_next;
            IF v_next % 4096 < a_count[i] THEN
                DELETE FROM forebay.head WHERE queue = v_queue AND next < v_next;
            END IF;
        END IF;
        IF v_ordered IS DISTINCT FROM (a_partition[i] IS NOT NULL) THEN  -- deleted, or made anew otherwise
            r.kind := 'gone';
            RETURN NEXT r;
            CONTINUE;
        END IF;
        SELECT first, count, dropped INTO v_receipt
            FROM forebay.receipt
            WHERE id = a_id[i] AND written_at >= p_ids_since AND first IS NOT NULL LIMIT 1;
        IF FOUND THEN
            r.kind := 'known';
            r.first := v_receipt.first;
            r.count := v_receipt.count;
            r.dropped := v_receipt.dropped;
            RETURN NEXT r;
            CONTINUE;
        END IF;
        IF a_digests[i] IS NOT NULL THEN
            v_accepted := least(a_accepted[i], v_now);
            SELECT array_agg(n), array_agg(m.message_id) INTO r.found_index, r.found_id
                FROM generate_series(0, a_count[i] - 1) AS n,
                LATERAL (  -- what was accepted within the window was not written before it
                    SELECT message_id, coalesce(accepted_at, at) AS accepted FROM forebay.dedupe
                    WHERE digest = substr(a_digests[i], n * 16 + 1, 16)
                        AND at >= greatest(v_accepted - v_dedupe + 1, v_born)
                    ORDER BY 2 DESC LIMIT 1
                ) AS m
                WHERE abs(m.accepted - v_accepted) < v_dedupe;
            IF r.found_index IS NOT NULL THEN
                r.kind := 'found';
                RETURN NEXT r;
                CONTINUE;
            END IF;
        END IF;
        IF v_next + a_count[i] > 1::bigint << 45 THEN
            RAISE EXCEPTION 'queue % is out of sequence numbers', v_queue USING ERRCODE = 'FB507';
        END IF;
        v_first := v_queue::bigint << 45 | v_next;
        IF a_count[i] > 0 THEN
            INSERT INTO forebay.block
                VALUES (v_first + a_count[i] - 1, a_count[i], a_id[i], v_at, a_partition[i], a_body[i], a_flows[i]);
            v_next := v_next + a_count[i];
        END IF;
        INSERT INTO forebay.receipt VALUES (a_id[i], v_now, v_first, a_count[i], a_dropped[i], NULL);
        IF a_digests[i] IS NOT NULL THEN
            INSERT INTO forebay.dedupe
                SELECT substr(a_digests[i], n * 16 + 1, 16), v_now, v_first + n, nullif(v_accepted, v_now)
                FROM generate_series(0, a_count[i] - 1) AS n
                WHERE substr(a_digests[i], n * 16 + 1, 16) <> '\x00000000000000000000000000000000';
        END IF;
        r.first := v_first;
        r.count := a_count[i];
        RETURN NEXT r;
    END LOOP;
    IF v_next > v_head THEN
        INSERT INTO forebay.head VALUES (v_queue, v_next, v_at);
    END IF;

    IF cardinality(i_id) = 0 THEN
        RETURN;
    END IF;
    FOR v_receipt IN
        SELECT u.n, k.conflicts FROM unnest(i_id) WITH ORDINALITY AS u (id, n), LATERAL (
            SELECT conflicts FROM forebay.receipt
            WHERE id = u.id AND written_at >= p_ids_since AND conflicts IS NOT NULL LIMIT 1
        ) AS k
    LOOP
        v_known[v_receipt.n] := true;
        RETURN NEXT ROW('settled', v_receipt.n, NULL, NULL, NULL, NULL, NULL, v_receipt.conflicts)::forebay.answer;
    END LOOP;
    IF p_whole THEN  -- what is left of them is looked at one by one
        WITH gone AS (
            DELETE FROM forebay.claim AS c
            USING unnest(s_item, s_group, s_token, s_finished, s_outcome)
                WITH ORDINALITY AS u (item, grp, token, finished, outcome, n)
            WHERE c.token = u.token AND c.grp = u.grp AND c.owner IS NOT NULL AND c.partition IS NULL
                AND c.count = length(u.finished) AND bit_count(c.done) = 0 AND NOT v_known[u.item]
            RETURNING c.grp, c.block_last, c.first, c.count, u.outcome, u.n
        ), noted AS (
            INSERT INTO forebay.outcome SELECT grp, block_last, first, count, v_now, outcome FROM gone
        )
        SELECT coalesce(array_agg(n), '{}') INTO v_together FROM gone;
        FOREACH v_one IN ARRAY v_together LOOP
            v_settled[v_one] := true;
        END LOOP;
    END IF;
    FOR i IN 1 .. cardinality(s_token) LOOP
        IF v_back_token <> s_token[i] THEN
            PERFORM forebay.send_along(v_back_token, v_back, v_back_due);
            v_back_token := NULL;
        END IF;
        CONTINUE WHEN v_known[s_item[i]] OR v_settled[i];
        SELECT * INTO v_claim FROM forebay.claim
            WHERE token = s_token[i] AND grp = s_group[i] AND owner IS NOT NULL FOR UPDATE;
        IF NOT FOUND OR v_claim.count <> length(s_finished[i])
                OR bit_count(v_claim.done & s_finished[i]) > 0 THEN
            -- Unless this very commit, sent before, has settled it while we waited for the claim.
            SELECT conflicts INTO v_conflicts
                FROM forebay.receipt
                WHERE id = i_id[s_item[i]] AND written_at >= p_ids_since AND conflicts IS NOT NULL LIMIT 1;
            IF FOUND THEN
                v_known[s_item[i]] := true;
                RETURN NEXT ROW('settled', s_item[i], NULL, NULL, NULL, NULL, NULL, v_conflicts)::forebay.answer;
            END IF;
            v_all_conflicts := v_all_conflicts || i;
            CONTINUE;
        END IF;
        v_claim.done := v_claim.done | s_finished[i];
        IF bit_count(v_claim.done) = v_claim.count THEN
            DELETE FROM forebay.claim WHERE token = v_claim.token;
        ELSE
            UPDATE forebay.claim SET done = v_claim.done WHERE token = v_claim.token;
        END IF;
        INSERT INTO forebay.outcome
            VALUES (v_claim.grp, v_claim.block_last, v_claim.first, v_claim.count, v_now, s_outcome[i]);
        v_settled[i] := true;
        WHILE f_settlement[v_f] <= i LOOP
            IF f_settlement[v_f] = i THEN
                IF v_claim.partition IS NOT NULL THEN
                    v_back := CASE WHEN v_back_token IS NULL THEN f_offset[v_f] ELSE least(v_back, f_offset[v_f]) END;
                    v_back_due := CASE WHEN v_back_token IS NULL THEN f_due[v_f] ELSE greatest(v_back_due, f_due[v_f]) END;
                    v_back_token := v_claim.token;
                END IF;
                INSERT INTO forebay.claim (token, grp, first, count, block_last, block_at, partition, due_at,
                        start_time, prev_start_time, attempts, letter, done, handed)
                    VALUES (forebay.draw_token(), v_claim.grp, v_claim.first + f_offset[v_f], f_count[v_f],
                        v_claim.block_last, v_claim.block_at, v_claim.partition, f_due[v_f], f_due[v_f], f_prev[v_f],
                        f_attempts[v_f], v_claim.letter,
                        repeat('0', f_count[v_f])::varbit, repeat('0', f_count[v_f])::varbit);
            END IF;
            v_f := v_f + 1;
        END LOOP;
        WHILE x_settlement[v_x] <= i LOOP
            IF x_settlement[v_x] = i THEN
                v_message := v_claim.first + x_offset[v_x];
                -- A message that was handed out again after it had died has only one letter: the one before is
                -- replaced, unless that is itself on its way again, when what becomes of it counts.
                SELECT state INTO v_state FROM forebay.dead_letter
                    WHERE grp = v_claim.grp AND message_id = v_message FOR UPDATE;
                IF v_state = 'redriven' AND EXISTS (
                        SELECT FROM forebay.claim WHERE grp = v_claim.grp AND letter = v_message) THEN
                    v_purged := v_purged || v_claim.grp;
                ELSE
                    INSERT INTO forebay.dead_letter VALUES (v_claim.grp, v_message, v_now, x_reason[v_x],
                        x_attempts[v_x], x_body[v_x], 'dead', v_now, v_claim.block_last, v_claim.partition)
                        ON CONFLICT (grp, message_id) DO UPDATE
                            SET died_at = excluded.died_at, reason = excluded.reason, attempts = excluded.attempts,
                                body = excluded.body, state = excluded.state, changed_at = excluded.changed_at;
                    IF v_state = 'dead' THEN
                        v_purged := v_purged || v_claim.grp;
                    ELSE
                        v_dead := v_dead || v_claim.grp;
                    END IF;
                END IF;
            END IF;
            v_x := v_x + 1;
        END LOOP;
        IF v_claim.partition IS NOT NULL THEN
            PERFORM forebay.free_lane(v_claim.grp, v_claim.partition);
        END IF;
    END LOOP;
    IF v_back_token IS NOT NULL THEN
        PERFORM forebay.send_along(v_back_token, v_back, v_back_due);
    END IF;
    FOR v_tally IN
        SELECT s.grp, sum(s.done) AS done, sum(s.dead) AS dead, sum(s.expired) AS expired, sum(s.purged) AS purged
        FROM (
            SELECT u.grp, u.done, 0 AS dead, u.expired, 0 AS purged
                FROM unnest(s_group, s_done, s_expired, v_settled) AS u (grp, done, expired, settled) WHERE u.settled
            UNION ALL SELECT d, 0, 1, 0, 0 FROM unnest(v_dead) AS d
            UNION ALL SELECT d, 0, 0, 0, 1 FROM unnest(v_purged) AS d
        ) AS s
        GROUP BY s.grp ORDER BY s.grp
    LOOP
        IF v_tally.done + v_tally.dead + v_tally.expired > 0 THEN
            PERFORM forebay.add_tally(v_tally.grp, v_tally.done, v_tally.dead, v_tally.expired, 0);
        END IF;
        IF v_tally.purged > 0 THEN
            PERFORM forebay.count_letters(v_tally.grp, 0, v_tally.purged);
        END IF;
    END LOOP;
    RETURN QUERY
        WITH late AS (
            SELECT s_item[c] AS item, array_agg(s_ord[c] ORDER BY s_ord[c]) AS ords
            FROM unnest(v_all_conflicts) AS c GROUP BY 1
        ), noted AS (
            INSERT INTO forebay.receipt
                SELECT u.id, v_now, NULL, NULL, NULL, coalesce(late.ords, '{}')
                FROM unnest(i_id) WITH ORDINALITY AS u (id, n) LEFT JOIN late ON late.item = u.n
                WHERE NOT v_known[u.n]
        )
        SELECT 'settled', u.n::int, NULL::bigint, NULL::int, NULL::bytea, NULL::int[], NULL::bigint[],
            coalesce(late.ords, '{}')
        FROM unnest(i_id) WITH ORDINALITY AS u (id, n) LEFT JOIN late ON late.item = u.n
        WHERE NOT v_known[u.n];
END $$;

-- Lock the id of a commit with records; whether it was written before.
CREATE OR REPLACE FUNCTION forebay.enter_write(p_id uuid, p_ids_since bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock('forebay.record'::regclass::oid::int, hashtext(p_id::text));
    RETURN EXISTS (SELECT FROM forebay.receipt
        WHERE id = p_id AND written_at >= p_ids_since AND conflicts IS NOT NULL LIMIT 1);
END $$;

-- Write records; no two of one key. Returns one that is not at its version, if any: then nothing may be committed.
DROP FUNCTION IF EXISTS forebay.write_records;
CREATE FUNCTION forebay.write_records(
    p_now bigint, r_space text[], r_key text[], r_value bytea[], r_expires bigint[], r_version bigint[]
) RETURNS TABLE (place int, found bigint) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_gone record;
BEGIN
    -- A row is locked before the condition is looked at. Where there is none, one of version 0 holds the place.
    INSERT INTO forebay.record AS r (space, key, version, updated_at, value)
        SELECT s, k, 0, 0, '' FROM unnest(r_space, r_key) AS u (s, k) ORDER BY s COLLATE "C", k COLLATE "C"
        ON CONFLICT (space, key) DO UPDATE SET version = 0 WHERE false;
    v_now := coalesce(p_now, forebay.now_us());
    RETURN QUERY
        SELECT u.n::int, c.version
        FROM unnest(r_space, r_key, r_version) WITH ORDINALITY AS u (s, k, expected, n), LATERAL (
            SELECT CASE WHEN r.expires_at <= v_now THEN 0 ELSE r.version END AS version
            FROM forebay.record AS r WHERE r.space = u.s AND r.key = u.k LIMIT 1
        ) AS c
        WHERE u.expected <> c.version LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    INSERT INTO forebay.record AS r (space, key, version, updated_at, expires_at, value)
        SELECT s, k, 1, v_now, e, v FROM unnest(r_space, r_key, r_expires, r_value) AS u (s, k, e, v)
        WHERE v IS NOT NULL
        ON CONFLICT (space, key) DO UPDATE
            SET version = CASE WHEN r.expires_at <= v_now THEN 1 ELSE r.version + 1 END,
                updated_at = excluded.updated_at, expires_at = excluded.expires_at, value = excluded.value;
    FOR v_gone IN SELECT s, k FROM unnest(r_space, r_key, r_value) AS u (s, k, v) WHERE v IS NULL LOOP
        DELETE FROM forebay.record AS r WHERE r.space = v_gone.s AND r.key = v_gone.k;
    END LOOP;
END $$;

-- What an ordered queue has left of a claim behind a message that went back goes back along, uncounted. Each run of
-- it is a claim of its own: otherwise what is behind would be taken for what is before.
CREATE OR REPLACE FUNCTION forebay.send_along(p_token bigint, p_back int, p_due bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_claim forebay.claim;
    v_begin int := p_back + 1;
    v_end int;
BEGIN
    SELECT * INTO v_claim FROM forebay.claim WHERE token = p_token;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WHILE v_begin < v_claim.count LOOP
        v_end := v_begin;
        WHILE v_end < v_claim.count AND get_bit(v_claim.done, v_end) = 0 LOOP
            v_claim.done := set_bit(v_claim.done, v_end, 1);
            v_end := v_end + 1;
        END LOOP;
        IF v_end > v_begin THEN
            INSERT INTO forebay.claim (token, grp, first, count, block_last, block_at, partition, due_at,
                    start_time, prev_start_time, attempts, done, handed)
                VALUES (forebay.draw_token(), v_claim.grp, v_claim.first + v_begin, v_end - v_begin,
                    v_claim.block_last, v_claim.block_at, v_claim.partition, p_due, p_due, v_claim.prev_start_time,
                    v_claim.attempts, repeat('0', v_end - v_begin)::varbit, repeat('0', v_end - v_begin)::varbit);
        END IF;
        v_begin := v_end + 1;
    END LOOP;
    IF bit_count(v_claim.done) = v_claim.count THEN
        DELETE FROM forebay.claim WHERE token = p_token;
    ELSE
        UPDATE forebay.claim SET done = v_claim.done WHERE token = p_token;
    END IF;
END $$;

-- Note which messages of claims are out with workers, and which came back: no two marks of one claim.
-- Lazily, and nobody waits for the disk. Returns the indexes of the marks whose claim is held, and whose
-- messages, in an ordered queue, are left of it and don't overtake earlier ones that are not out.
CREATE OR REPLACE FUNCTION forebay.mark(
    m_group int[], m_token bigint[], m_handed varbit[], m_returned varbit[]
) RETURNS SETOF int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM forebay.claim WHERE token = ANY (m_token) AND owner IS NOT NULL
        ORDER BY grp, first, count FOR UPDATE;
    RETURN QUERY
        UPDATE forebay.claim AS c SET handed = (c.handed | m.handed) & ~m.returned
        FROM unnest(m_group, m_token, m_handed, m_returned)
            WITH ORDINALITY AS m (grp, token, handed, returned, place)
        WHERE c.token = m.token AND c.grp = m.grp AND c.owner IS NOT NULL AND c.count = length(m.handed)
            AND NOT (c.partition IS NOT NULL AND bit_count(m.handed & ~m.returned) > 0 AND (
                bit_count(c.done & m.handed & ~m.returned) > 0 OR EXISTS (
                SELECT FROM forebay.claim AS e
                WHERE e.grp = c.grp AND e.partition = c.partition AND (e.first, e.count) < (c.first, c.count)
                    AND (e.owner IS DISTINCT FROM c.owner OR bit_count(e.done | CASE
                        WHEN length(m_handed[array_position(m_token, e.token)]) = e.count
                        THEN (e.handed | m_handed[array_position(m_token, e.token)])
                            & ~m_returned[array_position(m_token, e.token)]
                        ELSE e.handed END) < e.count))))
        RETURNING (m.place - 1)::int;
END $$;

-- Append blocks of one queue that are known to be new, all at once.
CREATE OR REPLACE FUNCTION forebay.append_plain(
    p_now bigint, p_queue int, a_ord int[], a_id uuid[], a_count int[], a_partition text[], a_body bytea[],
    a_flows bytea[]
) RETURNS SETOF forebay.answer LANGUAGE plpgsql AS $$
DECLARE
    v_ordered boolean;
    v_head forebay.head;
    v_base bigint;
    v_total bigint;
BEGIN
    SELECT ordered INTO v_ordered FROM forebay.queue WHERE number = p_queue AND NOT deleted;
    IF v_ordered IS NULL OR v_ordered AND array_position(a_partition, NULL) IS NOT NULL
            OR NOT v_ordered AND cardinality(array_remove(a_partition, NULL)) > 0 THEN
        -- deleted, or made anew otherwise
        RETURN QUERY SELECT 'gone', o, NULL::bigint, NULL::int, NULL::bytea, NULL::int[], NULL::bigint[], NULL::int[]
            FROM unnest(a_ord) AS o;
        RETURN;
    END IF;
    SELECT * INTO v_head FROM forebay.head WHERE queue = p_queue ORDER BY next DESC LIMIT 1;
    SELECT sum(c) INTO v_total FROM unnest(a_count) AS c;
    IF v_head.next + v_total > 1::bigint << 45 THEN
        RAISE EXCEPTION 'queue % is out of sequence numbers', p_queue USING ERRCODE = 'FB507';
    END IF;
    v_base := p_queue::bigint << 45 | v_head.next;
    v_head.appended_at := greatest(v_head.appended_at, p_now);
    INSERT INTO forebay.block
        SELECT v_base - 1 + sum(c) OVER (ROWS UNBOUNDED PRECEDING), c, i, v_head.appended_at, p, b, f
        FROM unnest(a_id, a_count, a_partition, a_body, a_flows) AS u (i, c, p, b, f);
    INSERT INTO forebay.receipt
        SELECT i, p_now, v_base - c + sum(c) OVER (ROWS UNBOUNDED PRECEDING), c
        FROM unnest(a_id, a_count) AS u (i, c);
    IF v_head.next % 4096 < v_total THEN
        DELETE FROM forebay.head WHERE queue = p_queue AND next < v_head.next;
    END IF;
    INSERT INTO forebay.head VALUES (p_queue, v_head.next + v_total, v_head.appended_at);
    RETURN QUERY
        SELECT 'appended', o, v_base - c + sum(c) OVER (ROWS UNBOUNDED PRECEDING), c,
            NULL::bytea, NULL::int[], NULL::bigint[], NULL::int[]
        FROM unnest(a_ord, a_count) AS u (o, c);
END $$;

-- The lane's next run, once none of its messages is out or waiting.
CREATE OR REPLACE FUNCTION forebay.free_lane(p_group int, p_partition text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_lane forebay.lane;
    v_first bigint;
BEGIN
    IF EXISTS (SELECT FROM forebay.claim WHERE grp = p_group AND partition = p_partition) THEN
        RETURN;
    END IF;
    SELECT * INTO v_lane FROM forebay.lane WHERE grp = p_group AND partition = p_partition;
    SELECT greatest(last - count + 1, v_lane.position) INTO v_first FROM forebay.block
        WHERE partition = p_partition AND last >= v_lane.position
            AND last < ((v_lane.position >> 45) + 1) << 45
        ORDER BY partition, last LIMIT 1;
    UPDATE forebay.lane SET ready = v_first
        WHERE grp = p_group AND partition = p_partition AND ready IS DISTINCT FROM v_first;
END $$;

DROP FUNCTION IF EXISTS forebay.claim_next;
DROP FUNCTION IF EXISTS forebay.claim_ordered;
DROP FUNCTION IF EXISTS forebay.take_over;
DROP FUNCTION IF EXISTS forebay.letter_block;
DROP TYPE IF EXISTS forebay.claimed;
CREATE TYPE forebay.claimed AS (
    token bigint,
    first bigint,
    count int,
    done varbit,
    handed varbit,
    attempts int,
    start_time bigint,
    prev_start_time bigint,
    block_last bigint,
    block_count int,
    block_id uuid,
    appended_at bigint,
    partition text,
    body bytea,         -- empty where the caller knows it
    next_due_at bigint  -- of a last row without a token: when the next of those that wait is due
);

-- Lock a group's cursor, lazily; see that the group is there, and note that the owner is.
CREATE OR REPLACE FUNCTION forebay.enter_group(p_now bigint, p_group int, p_owner text)
RETURNS forebay.consumer_group LANGUAGE plpgsql AS $$
DECLARE
    v_group forebay.consumer_group;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM forebay.lock_cursor(p_group);
    SELECT * INTO v_group FROM forebay.consumer_group WHERE number = p_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such group' USING ERRCODE = 'FB404';
    END IF;
    IF NOT EXISTS (SELECT FROM forebay.owner WHERE name = p_owner) THEN
        INSERT INTO forebay.owner VALUES (p_owner, p_now) ON CONFLICT DO NOTHING;
    END IF;
    RETURN v_group;
END $$;

-- The next runs of a group: whole blocks as long as they fit, the first one cut to fit. The caller knows the
-- bodies of the blocks that begin at p_known or later.
CREATE FUNCTION forebay.claim_next(
    p_now bigint, p_group int, p_owner text, p_messages int, p_bytes bigint, p_known bigint
) RETURNS SETOF forebay.claimed LANGUAGE plpgsql AS $$
DECLARE
    v_group forebay.consumer_group;
    v_cursor forebay.cursor;
    v_from bigint;
    v_until bigint;     -- id after the last claimed message
    v_until_last bigint;
    v_until_at bigint;
    v_room bigint := p_messages;
    v_space bigint := p_bytes;
    v_run bigint;
    b record;
BEGIN
    v_group := forebay.enter_group(coalesce(p_now, forebay.now_us()), p_group, p_owner);
    SELECT * INTO v_cursor FROM forebay.cursor WHERE grp = p_group ORDER BY turn DESC LIMIT 1;
    v_from := v_group.queue::bigint << 45 | v_cursor.position;
    FOR b IN
        SELECT last, count, appended_at, octet_length(body) AS size FROM forebay.block
        WHERE last >= v_from AND last < (v_group.queue::bigint + 1) << 45
            AND appended_at >= v_cursor.position_at
        ORDER BY last LIMIT p_messages
    LOOP
        v_run := b.last - greatest(v_from, b.last - b.count + 1) + 1;
        IF v_until IS NULL THEN
            v_from := b.last - v_run + 1;
            v_run := least(v_run, v_room);
        ELSIF v_run > v_room OR b.size > v_space THEN
            EXIT;
        END IF;
        v_room := v_room - v_run;
        v_space := v_space - b.size;
        v_until := greatest(v_from, b.last - b.count + 1) + v_run;
        v_until_last := b.last;
        v_until_at := b.appended_at;
        EXIT WHEN v_until <= b.last;
    END LOOP;
    IF v_until IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
        WITH run AS MATERIALIZED (
            SELECT forebay.draw_token() AS token,
                repeat('0', (cut.ends - cut.begins)::int)::varbit AS none, cut.*
            FROM (
                SELECT greatest(last - count + 1, v_from) AS begins, least(last + 1, v_until) AS ends, block.*
                FROM forebay.block
                WHERE last >= v_from AND last <= v_until_last
                    AND appended_at BETWEEN v_cursor.position_at AND v_until_at
                ORDER BY last
            ) AS cut
        ), made AS (
            INSERT INTO forebay.claim
                (token, grp, first, count, block_last, block_at, owner, due_at, start_time, done, handed)
            SELECT run.token, p_group, begins, ends - begins, last, appended_at, p_owner, appended_at, appended_at,
                none, none
            FROM run
        )
        SELECT run.token, begins, (ends - begins)::int, none, none, 0, appended_at, NULL::bigint,
            last, run.count, id, appended_at, run.partition,
            CASE WHEN last - run.count + 1 >= p_known THEN '' ELSE body END, NULL::bigint
        FROM run ORDER BY last;
    PERFORM forebay.move_cursor(
        p_group, v_until & ((1::bigint << 45) - 1), v_until_at, p_messages - v_room, 0);
END $$;

-- The same for an ordered queue, partition by partition; p_partition asks for one of them, which may be out
-- already, if all of it is with the owner.
CREATE FUNCTION forebay.claim_ordered(
    p_now bigint, p_group int, p_owner text, p_messages int, p_bytes bigint, p_known bigint, p_partition text
) RETURNS SETOF forebay.claimed LANGUAGE plpgsql AS $$
DECLARE
    v_group forebay.consumer_group;
    v_cursor forebay.cursor;
    v_base bigint;
    v_end bigint;
    v_lane forebay.lane;
    v_room bigint := p_messages;
    v_space bigint := p_bytes;
    v_first bigint;
    v_run bigint;
    v_seen bigint;
    v_seen_at bigint;
    v_full boolean := false;
    v_goes_on boolean := false;
    b record;
    r forebay.claimed;
BEGIN
    v_group := forebay.enter_group(coalesce(p_now, forebay.now_us()), p_group, p_owner);
    SELECT * INTO v_cursor FROM forebay.cursor WHERE grp = p_group ORDER BY turn DESC LIMIT 1;
    v_base := v_group.queue::bigint << 45;
    v_end := (v_group.queue::bigint + 1) << 45;
    IF p_partition IS NOT NULL AND EXISTS (
            SELECT FROM forebay.block
            WHERE partition = p_partition AND last >= (v_base | v_group.start) AND last < v_end) THEN
        INSERT INTO forebay.lane VALUES (p_group, p_partition, v_base | v_group.start, NULL)
            ON CONFLICT DO NOTHING;
        PERFORM forebay.free_lane(p_group, p_partition);
        v_goes_on := NOT EXISTS (
            SELECT FROM forebay.claim
            WHERE grp = p_group AND partition = p_partition AND owner IS DISTINCT FROM p_owner);
    END IF;
    LOOP
        FOR v_lane IN
            (SELECT * FROM forebay.lane WHERE p_partition IS NULL AND grp = p_group AND ready IS NOT NULL
                ORDER BY ready LIMIT p_messages)
            UNION ALL
            SELECT * FROM forebay.lane WHERE v_goes_on AND grp = p_group AND partition = p_partition
        LOOP
            FOR b IN
                SELECT last, count, id, appended_at, partition, octet_length(body) AS size,
                    CASE WHEN last - count + 1 >= p_known THEN '' ELSE body END AS body
                FROM forebay.block
                WHERE partition = v_lane.partition AND last >= v_lane.position AND last < v_end
                ORDER BY partition, last LIMIT p_messages
            LOOP
                v_first := greatest(b.last - b.count + 1, v_lane.position);
                v_run := b.last - v_first + 1;
                IF v_room = p_messages THEN
                    v_run := least(v_run, v_room);
                    v_full := v_first + v_run <= b.last;
                ELSIF v_run > v_room OR b.size > v_space THEN
                    v_full := true;
                    EXIT;
                END IF;
                INSERT INTO forebay.claim (token, grp, first, count, block_last, block_at, partition, owner,
                        due_at, start_time, done, handed)
                    VALUES (forebay.draw_token(), p_group, v_first, v_run, b.last, b.appended_at, b.partition, p_owner, b.appended_at,
                        b.appended_at, repeat('0', v_run::int)::varbit, repeat('0', v_run::int)::varbit)
                    RETURNING token, first, count, done, handed, attempts, start_time, prev_start_time,
                        b.last, b.count, b.id, b.appended_at, b.partition, b.body, NULL::bigint INTO r;
                RETURN NEXT r;
                v_room := v_room - v_run;
                v_space := v_space - b.size;
                v_lane.position := v_first + v_run;
                v_lane.ready := NULL;
                EXIT WHEN v_full;
            END LOOP;
            IF v_lane.ready IS NULL AND v_room < p_messages THEN
                UPDATE forebay.lane SET position = v_lane.position, ready = NULL
                    WHERE grp = p_group AND partition = v_lane.partition;
            END IF;
            EXIT WHEN v_full;
        END LOOP;
        EXIT WHEN v_full OR v_room = 0 OR p_partition IS NOT NULL;
        -- Discover: walk over blocks that no group member has seen, and note which partitions they fill.
        v_seen := NULL;
        FOR b IN
            SELECT last, count, appended_at, partition FROM forebay.block
            WHERE last >= (v_base | v_cursor.position) AND last < v_end
                AND appended_at >= v_cursor.position_at
            ORDER BY last LIMIT 1000
        LOOP
            v_seen := b.last;
            v_seen_at := b.appended_at;
            INSERT INTO forebay.lane AS lane
                VALUES (p_group, b.partition, v_base | v_group.start, b.last - b.count + 1)
                ON CONFLICT (grp, partition) DO UPDATE
                    SET ready = greatest(lane.position, excluded.ready)
                    WHERE lane.ready IS NULL AND lane.position <= b.last AND NOT EXISTS (
                        SELECT FROM forebay.claim WHERE grp = p_group AND partition = b.partition);
        END LOOP;
        EXIT WHEN v_seen IS NULL;
        v_cursor.position := (v_seen & ((1::bigint << 45) - 1)) + 1;
        v_cursor.position_at := v_seen_at;
    END LOOP;
    IF v_room < p_messages OR v_seen_at IS NOT NULL THEN
        PERFORM forebay.move_cursor(
            p_group, v_cursor.position, v_cursor.position_at, p_messages - v_room, 0);
    END IF;
END $$;

-- The block of a claim on a redriven message: its letter's own copy, whose id is in its header.
CREATE FUNCTION forebay.letter_block(c forebay.claim) RETURNS SETOF forebay.block LANGUAGE sql STABLE AS $$
    SELECT message_id, 1, rpad(encode(substr(body, 17, 16), 'hex'), 32, '0')::uuid, died_at, c.partition, body, NULL::bytea
    FROM forebay.dead_letter WHERE grp = c.grp AND message_id = c.letter
$$;

-- Claims that change hands under a new token: those that are due (p_of is null), or those of owners that
-- are named by p_of or were not heard of since p_silent, but for the tokens in p_besides. Where the block has expired, so has the claim.
-- After those that are due a row without a token says when the next one is, if any waits. p_partition asks
-- for those that are due of one partition.
CREATE FUNCTION forebay.take_over(
    p_now bigint, p_group int, p_owner text, p_messages int, p_bytes bigint, p_of text[], p_silent_us bigint,
    p_besides bigint[], p_partition text
) RETURNS SETOF forebay.claimed LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, forebay.now_us());
    v_claims refcursor;
    v_room bigint := p_messages;
    v_space bigint := p_bytes;
    v_taken boolean := false;
    v_expired bigint := 0;
    c forebay.claim;
    b forebay.block;
    r forebay.claimed;
BEGIN
    PERFORM forebay.enter_group(v_now, p_group, p_owner);
    IF p_partition IS NOT NULL THEN
        OPEN v_claims FOR SELECT * FROM forebay.claim
            WHERE grp = p_group AND partition = p_partition AND owner IS NULL AND due_at <= v_now
            ORDER BY due_at, first, count;
    ELSIF p_of IS NULL THEN
        OPEN v_claims FOR SELECT * FROM forebay.claim
            WHERE grp = p_group AND owner IS NULL AND due_at <= v_now ORDER BY due_at, first, count;
    ELSE
        OPEN v_claims FOR SELECT * FROM forebay.claim
            WHERE grp = p_group AND owner IS NOT NULL AND token <> ALL (p_besides)
                AND (owner = ANY (p_of) OR owner <> p_owner AND NOT EXISTS (
                    SELECT FROM forebay.owner AS o
                    WHERE o.name = claim.owner AND o.beat_at > v_now - p_silent_us))
            ORDER BY first, count, letter IS NOT NULL;
    END IF;
    LOOP
        FETCH v_claims INTO c;
        EXIT WHEN NOT FOUND;
        IF c.letter IS NULL THEN
            SELECT * INTO b FROM forebay.block WHERE last = c.block_last AND appended_at = c.block_at;
        ELSE
            SELECT * INTO b FROM forebay.letter_block(c);
        END IF;
        IF NOT FOUND THEN
            DELETE FROM forebay.claim WHERE token = c.token RETURNING done INTO c.done;
            CONTINUE WHEN NOT FOUND;  -- settled in the meantime
            v_expired := v_expired + c.count - bit_count(c.done);
            IF c.partition IS NOT NULL THEN
                PERFORM forebay.free_lane(p_group, c.partition);
            END IF;
            CONTINUE;
        END IF;
        -- An earlier run of the partition is elsewhere; but an owner may always have its own.
        CONTINUE WHEN c.partition IS NOT NULL AND c.owner IS DISTINCT FROM p_owner AND EXISTS (
            SELECT FROM forebay.claim AS e
            WHERE e.grp = p_group AND e.partition = c.partition AND (e.first, e.count) < (c.first, c.count)
                AND e.owner IS DISTINCT FROM p_owner);
        EXIT WHEN v_taken AND (c.count > v_room OR octet_length(b.body) > v_space);
        v_taken := true;
        v_room := v_room - c.count;
        v_space := v_space - octet_length(b.body);
        UPDATE forebay.claim SET token = forebay.draw_token(), owner = p_owner
            WHERE token = c.token RETURNING token, done, handed INTO c.token, c.done, c.handed;
        CONTINUE WHEN NOT FOUND;  -- settled in the meantime
        RETURN NEXT ROW(c.token, c.first, c.count, c.done, c.handed, c.attempts, c.start_time,
            c.prev_start_time, b.last, b.count, b.id, b.appended_at, b.partition, b.body, NULL)::forebay.claimed;
    END LOOP;
    IF v_expired > 0 THEN
        PERFORM forebay.add_tally(p_group, 0, 0, v_expired, 0);
    END IF;
    IF p_partition IS NOT NULL THEN
        SELECT min(due_at) INTO r.next_due_at FROM forebay.claim
            WHERE grp = p_group AND partition = p_partition AND owner IS NULL;
    ELSIF p_of IS NULL THEN
        SELECT due_at INTO r.next_due_at FROM forebay.claim
            WHERE grp = p_group AND owner IS NULL ORDER BY due_at LIMIT 1;
    END IF;
    IF r.next_due_at IS NOT NULL THEN
        RETURN NEXT r;
    END IF;
END $$;

-- A claim whose block can't be read: keep a copy of what was found, and count its messages as corrupt.
CREATE OR REPLACE FUNCTION forebay.set_aside(p_now bigint, p_group int, p_token bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    c forebay.claim;
BEGIN
    PERFORM forebay.lock_cursor(p_group);
    DELETE FROM forebay.claim WHERE token = p_token RETURNING * INTO c;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO forebay.quarantine
        SELECT last - count + 1, count, id, appended_at, partition, body, coalesce(p_now, forebay.now_us())
        FROM (
            SELECT * FROM forebay.block WHERE last = c.block_last AND appended_at = c.block_at AND c.letter IS NULL
            UNION ALL SELECT * FROM forebay.letter_block(c)
        ) AS found
        ON CONFLICT DO NOTHING;
    PERFORM forebay.add_tally(p_group, 0, 0, 0, c.count - bit_count(c.done));
    IF c.partition IS NOT NULL THEN
        PERFORM forebay.free_lane(p_group, c.partition);
    END IF;
END $$;

-- Lock a group for a change of its dead letters, which are one at a time; see that the group is there.
CREATE OR REPLACE FUNCTION forebay.enter_letters(p_group int) RETURNS forebay.consumer_group
LANGUAGE plpgsql AS $$
DECLARE
    v_group forebay.consumer_group;
BEGIN
    PERFORM forebay.lock_cursor(p_group);
    SELECT * INTO v_group FROM forebay.consumer_group WHERE number = p_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such group' USING ERRCODE = 'FB404';
    END IF;
    RETURN v_group;
END $$;

-- Dead letters become claims that wait for anybody. A lane waits for them, also one that was forgotten.
CREATE OR REPLACE FUNCTION forebay.redrive(p_now bigint, p_group int, p_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_group forebay.consumer_group := forebay.enter_letters(p_group);
    v_now bigint := coalesce(p_now, forebay.now_us());
    v_ids bigint[];
BEGIN
    WITH changed AS (
        UPDATE forebay.dead_letter SET state = 'redriven', changed_at = v_now
        WHERE grp = p_group AND message_id = ANY (p_ids) AND state = 'dead'
        RETURNING message_id, block_last, partition
    ), made AS (
        INSERT INTO forebay.claim
            (token, grp, first, count, block_last, block_at, partition, due_at, start_time, done, handed, letter)
        SELECT forebay.draw_token(), p_group, message_id, 1, coalesce(block_last, message_id), 0, partition,
            v_now, v_now, B'0', B'0', message_id
        FROM changed
    ), held_up AS (
        INSERT INTO forebay.lane
        SELECT DISTINCT p_group, partition, v_group.queue::bigint << 45 | v_group.start, NULL::bigint
        FROM changed WHERE partition IS NOT NULL
        ON CONFLICT (grp, partition) DO UPDATE SET ready = NULL
    )
    SELECT array_agg(message_id ORDER BY message_id) INTO v_ids FROM changed;
    IF v_ids IS NOT NULL THEN
        PERFORM forebay.count_letters(p_group, -cardinality(v_ids), 0);
    END IF;
    RETURN coalesce(v_ids, '{}');
END $$;

-- Dead letters leave the list.
CREATE OR REPLACE FUNCTION forebay.purge(p_now bigint, p_group int, p_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_group forebay.consumer_group := forebay.enter_letters(p_group);
    v_ids bigint[];
BEGIN
    WITH changed AS (
        UPDATE forebay.dead_letter SET state = 'purged', changed_at = coalesce(p_now, forebay.now_us())
        WHERE grp = v_group.number AND message_id = ANY (p_ids) AND state = 'dead'
        RETURNING message_id
    )
    SELECT array_agg(message_id ORDER BY message_id) INTO v_ids FROM changed;
    IF v_ids IS NOT NULL THEN
        PERFORM forebay.count_letters(p_group, -cardinality(v_ids), cardinality(v_ids));
    END IF;
    RETURN coalesce(v_ids, '{}');
END $$;

-- Letters are listed again: purged ones, and redriven ones that nobody holds.
CREATE OR REPLACE FUNCTION forebay.restore(p_now bigint, p_group int, p_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_group forebay.consumer_group := forebay.enter_letters(p_group);
    v_now bigint := coalesce(p_now, forebay.now_us());
    v_purged bigint[];
    v_redriven bigint[];
    v_partitions text[];
BEGIN
    WITH changed AS (
        UPDATE forebay.dead_letter SET state = 'dead', changed_at = v_now
        WHERE grp = v_group.number AND message_id = ANY (p_ids) AND state = 'purged'
        RETURNING message_id
    )
    SELECT coalesce(array_agg(message_id), '{}') INTO v_purged FROM changed;
    WITH gone AS (
        DELETE FROM forebay.claim WHERE grp = p_group AND letter = ANY (p_ids) AND owner IS NULL
        RETURNING letter, partition
    ), changed AS (
        UPDATE forebay.dead_letter AS d SET state = 'dead', changed_at = v_now
        FROM gone WHERE d.grp = p_group AND d.message_id = gone.letter
    )
    SELECT coalesce(array_agg(letter), '{}'), array_agg(DISTINCT partition) FILTER (WHERE partition IS NOT NULL)
        INTO v_redriven, v_partitions FROM gone;
    PERFORM forebay.free_lane(p_group, p) FROM unnest(v_partitions) AS p;
    IF cardinality(v_purged) + cardinality(v_redriven) > 0 THEN
        PERFORM forebay.count_letters(p_group, cardinality(v_purged) + cardinality(v_redriven), -cardinality(v_purged));
    END IF;
    RETURN ARRAY(SELECT i FROM unnest(v_purged || v_redriven) AS i ORDER BY i);
END $$;

-- Drop a piece that nothing needs; how many rows it had.
CREATE OR REPLACE FUNCTION forebay.drop_piece(p_parent text, p_lower bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_name text := p_parent || '_' || p_lower;
    v_rows bigint;
BEGIN
    PERFORM FROM forebay.piece WHERE parent = p_parent AND lower = p_lower FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;  -- somebody else has dropped it
    END IF;
    PERFORM pg_advisory_xact_lock('forebay.piece'::regclass::oid::int, 0);
    EXECUTE format('SELECT count(*) FROM forebay.%I', v_name) INTO v_rows;
    EXECUTE format('DROP TABLE forebay.%I', v_name);
    DELETE FROM forebay.piece WHERE parent = p_parent AND lower = p_lower;
    RETURN v_rows;
END $$;

-- The id of the first message of a queue that some group has still to see or to finish.
CREATE OR REPLACE FUNCTION forebay.needed(p_queue int) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT least(
        p_queue::bigint << 45 | (SELECT max(next) FROM forebay.head WHERE queue = p_queue),
        (SELECT min(p_queue::bigint << 45 | p.position) FROM forebay.consumer_group AS g, LATERAL (
            SELECT position FROM forebay.cursor WHERE grp = g.number ORDER BY turn DESC LIMIT 1
        ) AS p WHERE g.queue = p_queue),
        (SELECT min(c.first) FROM forebay.claim AS c, forebay.consumer_group AS g
            WHERE g.number = c.grp AND g.queue = p_queue AND c.letter IS NULL),
        (SELECT min(b.last) FROM forebay.consumer_group AS g, LATERAL (  -- what redriven messages hold up
            SELECT DISTINCT partition FROM forebay.claim
            WHERE grp = g.number AND letter IS NOT NULL AND partition IS NOT NULL
        ) AS c, forebay.lane AS l, LATERAL (
            SELECT last FROM forebay.block
            WHERE partition = c.partition AND last >= l.position AND last < (p_queue::bigint + 1) << 45
            ORDER BY partition, last LIMIT 1
        ) AS b WHERE g.queue = p_queue AND l.grp = g.number AND l.partition = c.partition),
        (SELECT min(l.ready) FROM forebay.consumer_group AS g, LATERAL (
            SELECT ready FROM forebay.lane WHERE grp = g.number AND ready IS NOT NULL ORDER BY ready LIMIT 1
        ) AS l WHERE g.queue = p_queue))
$$;

-- Drop a piece of blocks, unless a queue in it is to be kept; what is dropped unread counts as expired.
-- Returns the number of blocks, or null where something is needed.
CREATE OR REPLACE FUNCTION forebay.drop_blocks(p_now bigint, p_lower bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, forebay.now_us());
    v_piece forebay.piece;
    v_name text := 'block_' || p_lower;
    v_newest text := format('SELECT array_agg(q.number ORDER BY q.number), array_agg(b.last ORDER BY q.number)
        FROM forebay.queue AS q, LATERAL (
            SELECT last FROM forebay.%I WHERE last >= q.number::bigint << 45 AND last < (q.number::bigint + 1) << 45
            ORDER BY last DESC LIMIT 1) AS b', v_name);
    v_queues int[];
    v_lasts bigint[];
    v_seen bigint[];
    v_queue forebay.queue;
    v_expires boolean;
    v_group forebay.consumer_group;
    v_cursor forebay.cursor;
    v_skipped bigint;
    v_blocks bigint;
BEGIN
    SELECT * INTO v_piece FROM forebay.piece WHERE parent = 'block' AND lower = p_lower FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;  -- somebody else has dropped it
    END IF;
    EXECUTE v_newest INTO v_queues, v_seen;
    PERFORM forebay.lock_queue(q) FROM unnest(v_queues) AS q ORDER BY q;
    PERFORM forebay.lock_cursor(number) FROM (
        SELECT number FROM forebay.consumer_group WHERE queue = ANY (v_queues) ORDER BY number) AS g;
    EXECUTE v_newest INTO v_queues, v_lasts;
    IF v_lasts IS DISTINCT FROM v_seen THEN  -- a clock that was set back: somebody still writes here
        RETURN NULL;
    END IF;
    FOR i IN 1 .. coalesce(cardinality(v_queues), 0) LOOP
        SELECT * INTO v_queue FROM forebay.queue WHERE number = v_queues[i];
        CONTINUE WHEN v_queue.deleted;
        IF v_piece.upper > v_now - (v_queue.settings ->> 'expire_seconds')::float8 * 1000000 THEN
            v_expires := false;
        ELSE
            v_expires := v_queue.settings ->> 'expire_seconds' IS NOT NULL;
        END IF;
        IF NOT v_expires AND (forebay.needed(v_queue.number) <= v_lasts[i]
                OR v_piece.upper > v_now - (v_queue.settings ->> 'keep_seconds')::float8 * 1000000) THEN
            RETURN NULL;
        END IF;
    END LOOP;
    FOR v_group IN
        SELECT g.* FROM forebay.consumer_group AS g WHERE g.queue = ANY (v_queues) ORDER BY g.number
    LOOP
        SELECT * INTO v_queue FROM forebay.queue WHERE number = v_group.queue;
        SELECT * INTO v_cursor FROM forebay.cursor WHERE grp = v_group.number ORDER BY turn DESC LIMIT 1;
        IF v_queue.ordered THEN
            EXECUTE format('SELECT coalesce(sum(greatest(0, b.last + 1 - greatest(b.last - b.count + 1,
                        coalesce(l.position, $2 | $3)))), 0) FROM forebay.%I AS b
                    LEFT JOIN forebay.lane AS l ON l.grp = $1 AND l.partition = b.partition
                    WHERE b.last >> 45 = $4', v_name)
                INTO v_skipped
                USING v_group.number, v_group.queue::bigint << 45, v_group.start, v_group.queue;
        ELSE
            SELECT greatest(0, (m & ((1::bigint << 45) - 1)) + 1 - v_cursor.position) INTO v_skipped
                FROM unnest(v_queues, v_lasts) AS q (number, m) WHERE number = v_group.queue;
        END IF;
        IF v_skipped > 0 THEN
            PERFORM forebay.move_cursor(v_group.number,
                greatest(v_cursor.position, (SELECT (m & ((1::bigint << 45) - 1)) + 1
                    FROM unnest(v_queues, v_lasts) AS q (number, m) WHERE number = v_group.queue)),
                NULL, 0, v_skipped);
        END IF;
    END LOOP;
    UPDATE forebay.queue AS q SET floor = greatest(q.floor, (d.last & ((1::bigint << 45) - 1)) + 1)
        FROM unnest(v_queues, v_lasts) AS d (number, last) WHERE d.number = q.number;
    v_blocks := forebay.drop_piece('block', p_lower);
    -- Lanes whose next run went with the piece begin where their partition goes on.
    FOR v_group IN
        SELECT g.* FROM forebay.consumer_group AS g, forebay.queue AS q
        WHERE g.queue = ANY (v_queues) AND q.number = g.queue AND q.ordered ORDER BY g.number
    LOOP
        UPDATE forebay.lane SET position = greatest(position, d.last + 1)
            FROM unnest(v_queues, v_lasts) AS d (number, last)
            WHERE lane.grp = v_group.number AND d.number = v_group.queue AND lane.position <= d.last;
        PERFORM forebay.free_lane(v_group.number, partition) FROM forebay.lane
            WHERE grp = v_group.number AND ready IS NOT NULL AND ready < position;
        -- A lane that has nothing left behind it, nor anything out, is made anew when it is needed.
        DELETE FROM forebay.lane AS l USING forebay.queue AS q
            WHERE l.grp = v_group.number AND q.number = v_group.queue AND l.ready IS NULL
                AND l.position <= (q.number::bigint << 45 | q.floor) AND NOT EXISTS (
                    SELECT FROM forebay.claim AS c WHERE c.grp = l.grp AND c.partition = l.partition);
    END LOOP;
    RETURN v_blocks;
END $$;

-- For users: enqueue inside your own transaction. The message is pushed if, and when, you commit.
CREATE OR REPLACE FUNCTION forebay.push(
    queue text, payload bytea, partition text DEFAULT '', transaction_id text DEFAULT NULL,
    headers jsonb DEFAULT NULL, start_time timestamptz DEFAULT NULL, delay interval DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_number int;
    v_start timestamptz := coalesce(start_time, clock_timestamp() + delay);
BEGIN
    SELECT q.number INTO v_number FROM forebay.queue AS q WHERE q.name = push.queue AND NOT q.deleted;
    IF v_number IS NULL THEN
        RAISE EXCEPTION 'forebay: there is no queue %', quote_literal(push.queue)
            USING HINT = 'create the queue first', ERRCODE = 'FB404';
    END IF;
    IF payload IS NULL THEN
        RAISE EXCEPTION 'forebay: the payload is null' USING HINT = 'push an empty payload instead', ERRCODE = 'FB400';
    END IF;
    IF start_time IS NOT NULL AND delay IS NOT NULL THEN
        RAISE EXCEPTION 'forebay: start_time and delay exclude each other' USING HINT = 'give one of them', ERRCODE = 'FB400';
    END IF;
    IF headers IS NOT NULL AND (jsonb_typeof(headers) <> 'object' OR EXISTS (
            SELECT FROM jsonb_each(CASE WHEN jsonb_typeof(headers) = 'object' THEN headers ELSE '{}' END) AS h
            WHERE jsonb_typeof(h.value) <> 'string')) THEN
        RAISE EXCEPTION 'forebay: headers must be a JSON object of strings' USING HINT = 'for example {"flow": "orders"}', ERRCODE = 'FB400';
    END IF;
    INSERT INTO forebay.inbox (queue, payload, partition, transaction_id, headers, start_time)
        VALUES (v_number, payload, coalesce(partition, ''), transaction_id, headers,
            (extract(epoch FROM v_start) * 1000000)::bigint);
END $$;

CREATE OR REPLACE FUNCTION forebay.push(
    queue text, payload text, partition text DEFAULT '', transaction_id text DEFAULT NULL,
    headers jsonb DEFAULT NULL, start_time timestamptz DEFAULT NULL, delay interval DEFAULT NULL
) RETURNS void LANGUAGE sql AS $$
    SELECT forebay.push(queue, convert_to(payload, 'UTF8'), partition, transaction_id, headers, start_time, delay)
$$;

CREATE OR REPLACE FUNCTION forebay.push(
    queue text, payload jsonb, partition text DEFAULT '', transaction_id text DEFAULT NULL,
    headers jsonb DEFAULT NULL, start_time timestamptz DEFAULT NULL, delay interval DEFAULT NULL
) RETURNS void LANGUAGE sql AS $$
    SELECT forebay.push(queue, payload::text, partition, transaction_id, headers, start_time, delay)
$$;
