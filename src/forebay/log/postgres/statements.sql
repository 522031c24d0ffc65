-- name: queues
-- From the first number past $1 on, up to $2 of them; NULL: all.
SELECT number, name, settings, created_at
FROM forebay.queue WHERE number > $1 AND NOT deleted ORDER BY number LIMIT $2

-- name: queues_of
SELECT number, name, settings, created_at
FROM forebay.queue WHERE number = ANY ($1::int[]) AND NOT deleted ORDER BY number

-- name: near_names
-- Up to $2 names on either side of one, by their order.
SELECT name FROM (
    (SELECT name, deleted FROM forebay.queue WHERE name >= $1 ORDER BY name LIMIT $2)
    UNION ALL
    (SELECT name, deleted FROM forebay.queue WHERE name < $1 ORDER BY name DESC LIMIT $2)
) AS near WHERE NOT deleted

-- name: queue_by_name
SELECT number, name, settings, created_at, deleted FROM forebay.queue WHERE name = $1

-- name: lock_queues
LOCK TABLE forebay.queue IN SHARE ROW EXCLUSIVE MODE

-- name: queue_numbers
SELECT coalesce(max(number), 0) FROM forebay.queue

-- name: queue_name_of
SELECT name FROM forebay.queue WHERE number = $1

-- name: insert_queue
INSERT INTO forebay.queue (number, name, settings, ordered, dedupe_us, created_at)
VALUES ($1, $2, $3, $4, $5, coalesce($6, forebay.now_us()))
RETURNING created_at

-- name: insert_head
INSERT INTO forebay.head VALUES ($1, 1, 0)

-- name: revive_queue
UPDATE forebay.queue
SET settings = $2, ordered = $3, dedupe_us = $4, created_at = coalesce($5, forebay.now_us()), deleted = false
WHERE number = $1
RETURNING created_at

-- name: update_settings
UPDATE forebay.queue SET settings = $2, dedupe_us = $3 WHERE number = $1

-- name: lock_queue
SELECT forebay.lock_queue($1)

-- name: lock_cursor
SELECT forebay.lock_cursor($1)

-- name: lock_tally
SELECT forebay.lock_tally($1)

-- name: group_exists
SELECT EXISTS (SELECT FROM forebay.consumer_group WHERE number = $1)

-- name: delete_queue
UPDATE forebay.queue SET deleted = true, floor = $2 WHERE number = $1

-- name: delete_inbox
DELETE FROM forebay.inbox WHERE queue = $1

-- name: head
SELECT h.next, q.floor
FROM forebay.queue AS q, LATERAL (
    SELECT next FROM forebay.head WHERE queue = q.number ORDER BY next DESC LIMIT 1
) AS h
WHERE q.number = $1 AND NOT q.deleted

-- name: groups
SELECT number, queue, name, start, sought FROM forebay.consumer_group WHERE queue = $1 ORDER BY number

-- name: insert_group
INSERT INTO forebay.consumer_group (queue, name, start, created_at)
VALUES ($1, $2, $3, coalesce($4, forebay.now_us()))
ON CONFLICT DO NOTHING
RETURNING number, queue, name, start, sought

-- name: group_by_name
SELECT number, queue, name, start, sought FROM forebay.consumer_group WHERE queue = $1 AND name = $2

-- name: insert_cursor
INSERT INTO forebay.cursor VALUES ($1, 1, $2, 0, 0, 0)

-- name: insert_tally
INSERT INTO forebay.tally VALUES ($1, 1, 0, 0, 0, 0)

-- name: seeking_group
SELECT g.number, g.queue, g.name, g.start, g.sought, g.earlier, q.ordered, c.position, c.claimed, c.skipped, h.next
FROM forebay.consumer_group AS g JOIN forebay.queue AS q ON q.number = g.queue, LATERAL (
    SELECT * FROM forebay.cursor WHERE grp = g.number ORDER BY turn DESC LIMIT 1
) AS c, LATERAL (
    SELECT next FROM forebay.head WHERE queue = q.number ORDER BY next DESC LIMIT 1
) AS h
WHERE g.number = $1

-- name: lock_claims
-- What settling defers while we wait for its claim waits for us: only a claim with an owner is settled.
SELECT count(*) FROM (SELECT FROM forebay.claim WHERE grp = $1 ORDER BY first, count FOR UPDATE) AS locked

-- name: left_by_claims
SELECT
    coalesce(sum(behind), 0)::bigint AS returned, coalesce(sum(count - bit_count(done) - behind), 0)::bigint AS dropped
FROM forebay.claim, LATERAL (
    SELECT CASE
        WHEN first >= $2 THEN count - bit_count(done)
        WHEN first + count <= $2 THEN 0
        ELSE first + count - $2 - bit_count(substring(done FROM ($2 - first)::int + 1))
    END AS behind
) AS split
WHERE grp = $1 AND letter IS NULL

-- name: claimed_since
-- Up to the first block of each lane of which something is unclaimed.
SELECT coalesce(sum(greatest(0, least(b.last + 1, l.position) - greatest(b.last - b.count + 1, $2))), 0)::bigint
FROM forebay.lane AS l, LATERAL (
    SELECT last, count FROM forebay.block WHERE partition = l.partition AND last >= $2 AND last <= coalesce((
        SELECT n.last FROM forebay.block AS n
        WHERE n.partition = l.partition AND n.last >= l.position AND n.last <= $3 ORDER BY n.partition, n.last LIMIT 1
    ), l.position)
) AS b
WHERE l.grp = $1 AND l.position > $2

-- name: bury_again
WITH changed AS (
    UPDATE forebay.dead_letter SET state = 'dead', changed_at = coalesce($2, forebay.now_us())
    WHERE grp = $1 AND state = 'redriven' AND message_id IN (
        SELECT letter FROM forebay.claim WHERE grp = $1 AND letter IS NOT NULL
    ) RETURNING 1
)
SELECT count(*) FROM changed

-- name: seek
UPDATE forebay.consumer_group SET start = $2, sought = sought + 1, earlier = earlier + $3 WHERE number = $1

-- name: move_cursor
SELECT forebay.move_cursor($1, $2, $3, $4, 0)

-- name: count_done
SELECT forebay.add_tally($1, $2, $3, 0, 0)

-- name: count_letters
SELECT forebay.count_letters($1, $2, $3)

-- name: recall
SELECT c.token, c.first, c.count, c.done, c.handed, c.attempts, c.start_time, c.prev_start_time,
    b.last, b.count, b.id, b.appended_at, b.partition, b.body, NULL::bigint
FROM forebay.claim AS c, LATERAL (
    SELECT * FROM forebay.block WHERE c.letter IS NULL AND last = c.block_last AND appended_at = c.block_at
    UNION ALL SELECT * FROM forebay.letter_block(c) WHERE c.letter IS NOT NULL
) AS b
WHERE c.grp = $1 AND c.token = ANY ($2::bigint[]) AND c.owner IS NOT NULL

-- name: enter_group
SELECT forebay.enter_group(coalesce($1, forebay.now_us()), $2, $3)

-- name: seize
-- The claims of these messages (each begins in the message's block, or at the message if that is a letter),
-- and those of a partition.
WITH wanted AS MATERIALIZED (
    SELECT h.token
    FROM unnest($3::bigint[]) AS m (id) LEFT JOIN LATERAL (
        SELECT last - count + 1 AS first FROM forebay.block WHERE last >= m.id ORDER BY last LIMIT 1
    ) AS b ON true, LATERAL (
        SELECT token FROM forebay.claim
        WHERE grp = $1 AND first BETWEEN least(b.first, m.id) AND m.id
            AND CASE WHEN first + count > m.id THEN get_bit(done, (m.id - first)::int) = 0 ELSE false END
    ) AS h
    UNION SELECT token FROM forebay.claim WHERE grp = $1 AND partition = $4
)
UPDATE forebay.claim AS c SET owner = $2 FROM wanted
WHERE c.token = wanted.token AND ($5 OR c.owner IS NULL) AND c.owner IS DISTINCT FROM $2
RETURNING c.token

-- name: holding
-- The claims of these messages: each begins in the message's block, or at the message if that is a letter.
WITH wanted AS MATERIALIZED (
    SELECT DISTINCT h.token
    FROM unnest($2::bigint[]) AS m (id) LEFT JOIN LATERAL (
        SELECT last - count + 1 AS first FROM forebay.block WHERE last >= m.id ORDER BY last LIMIT 1
    ) AS b ON true, LATERAL (
        SELECT token FROM forebay.claim
        WHERE grp = $1 AND first BETWEEN least(b.first, m.id) AND m.id AND owner IS NOT NULL
            AND CASE WHEN first + count > m.id THEN get_bit(done, (m.id - first)::int) = 0 ELSE false END
        OFFSET 0  -- message by message: joined otherwise, all claims of the group would be looked at
    ) AS h
)
SELECT c.token, c.first, c.count, c.done, c.handed, c.attempts, c.start_time, c.prev_start_time,
    b.last, b.count, b.id, b.appended_at, b.partition, b.body, NULL::bigint
FROM wanted, LATERAL (
    SELECT * FROM forebay.claim WHERE token = wanted.token LIMIT 1
) AS c, LATERAL (
    SELECT * FROM forebay.block WHERE c.letter IS NULL AND last = c.block_last AND appended_at = c.block_at
    UNION ALL SELECT * FROM forebay.letter_block(c) WHERE c.letter IS NOT NULL
) AS b

-- name: locate
-- A row for the queue, if it is there, then one for each digest.
WITH q AS MATERIALIZED (
    SELECT greatest(coalesce($2, forebay.now_us()) - dedupe_us + 1, created_at) AS since
    FROM forebay.queue WHERE number = $1 AND NOT deleted
)
SELECT 0 AS place, NULL::bigint AS message_id FROM q
UNION ALL
SELECT k.place, d.message_id
FROM q CROSS JOIN unnest($3::bytea[]) WITH ORDINALITY AS k (digest, place) LEFT JOIN LATERAL (
    SELECT message_id FROM forebay.dedupe WHERE digest = k.digest AND at >= q.since
    ORDER BY coalesce(accepted_at, at) DESC LIMIT 1
) AS d ON true
ORDER BY place

-- name: delete_group
DELETE FROM forebay.consumer_group WHERE number = $1 RETURNING number

-- name: delete_cursor
DELETE FROM forebay.cursor WHERE grp = $1

-- name: delete_tally
DELETE FROM forebay.tally WHERE grp = $1

-- name: delete_worker_claims
DELETE FROM forebay.claim
WHERE token IN (SELECT token FROM forebay.claim WHERE grp = $1 AND letter IS NULL ORDER BY first FOR UPDATE)

-- name: worker_claim
SELECT EXISTS (SELECT FROM forebay.claim WHERE grp = $1 AND letter IS NULL)

-- name: bury_read
-- Letters of messages that a group has not come to: from $3 on, or from where it is in their partition. One that
-- is there already is replaced, unless it is on its way again, when what becomes of it counts.
WITH arrived AS (
    SELECT d.*, k.state, c.letter IS NOT NULL AS is_out
    FROM unnest($4::bigint[], $5::text[], $6::int[], $7::bytea[], $8::text[])
        AS d (message_id, reason, attempts, body, partition)
    LEFT JOIN forebay.lane AS l ON l.grp = $1 AND l.partition = d.partition
    LEFT JOIN forebay.dead_letter AS k ON k.grp = $1 AND k.message_id = d.message_id
    LEFT JOIN forebay.claim AS c ON c.grp = $1 AND c.letter = d.message_id
    WHERE d.message_id >= coalesce(l.position, $3)
), kept AS (
    INSERT INTO forebay.dead_letter (grp, message_id, died_at, reason, attempts, body, state, changed_at, partition)
    SELECT $1, message_id, coalesce($2, forebay.now_us()), reason, attempts, body, 'dead',
        coalesce($2, forebay.now_us()), partition
    FROM arrived WHERE NOT is_out
    ON CONFLICT (grp, message_id) DO UPDATE
        SET died_at = excluded.died_at, reason = excluded.reason, attempts = excluded.attempts,
            body = excluded.body, state = excluded.state, changed_at = excluded.changed_at
)
SELECT
    count(*) FILTER (WHERE NOT is_out AND state IS DISTINCT FROM 'dead') AS fresh,
    count(*) FILTER (WHERE is_out OR state = 'dead') AS again
FROM arrived

-- name: delete_claims
DELETE FROM forebay.claim
WHERE token IN (SELECT token FROM forebay.claim WHERE grp = $1 ORDER BY first FOR UPDATE)

-- name: delete_lanes
DELETE FROM forebay.lane WHERE grp = $1

-- name: delete_dead_letters
DELETE FROM forebay.dead_letter WHERE grp = $1

-- name: delete_outcomes
DELETE FROM forebay.outcome WHERE grp = $1

-- name: claim
SELECT * FROM forebay.claim_next($1, $2, $3, $4, $5, $6)

-- name: claim_ordered
SELECT * FROM forebay.claim_ordered($1, $2, $3, $4, $5, $6, $7)

-- name: take_over
SELECT * FROM forebay.take_over($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: set_aside
SELECT forebay.set_aside($1, $2, $3)

-- name: heartbeat
-- By name, so that two servers that beat for the same owners lock them in one order.
INSERT INTO forebay.owner
SELECT name, coalesce($2, forebay.now_us()) FROM unnest($1::text[]) AS name ORDER BY name
ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at

-- name: owners
SELECT name, beat_at FROM forebay.owner ORDER BY name COLLATE "C"

-- name: stamp
-- Which transactions are over: another text as soon as one more that wrote something is, in any database.
SELECT pg_current_snapshot()::text

-- name: outlook
SELECT g.number, h.next, c.position, l.ready, d.due_at, g.sought
FROM unnest($1::int[]) AS w (number)
JOIN forebay.consumer_group AS g ON g.number = w.number
CROSS JOIN LATERAL (
    SELECT next FROM forebay.head WHERE queue = g.queue ORDER BY next DESC LIMIT 1
) AS h
CROSS JOIN LATERAL (
    SELECT position FROM forebay.cursor WHERE grp = g.number ORDER BY turn DESC LIMIT 1
) AS c
LEFT JOIN LATERAL (
    SELECT ready FROM forebay.lane WHERE grp = g.number AND ready IS NOT NULL ORDER BY ready LIMIT 1
) AS l ON true
LEFT JOIN LATERAL (
    SELECT due_at FROM forebay.claim WHERE grp = g.number AND owner IS NULL ORDER BY due_at LIMIT 1
) AS d ON true

-- name: owner_groups
SELECT DISTINCT grp FROM forebay.claim WHERE owner = $1 ORDER BY grp

-- name: retire
WITH gone AS (
    DELETE FROM forebay.owner WHERE name = $1
), given AS (
    -- One time for all, by a subquery: rows come in any order, and what is due is taken over in that of its times.
    UPDATE forebay.claim SET owner = NULL, due_at = (SELECT coalesce($2, forebay.now_us()))
    WHERE token IN (SELECT token FROM forebay.claim WHERE owner = $1 ORDER BY grp, first FOR UPDATE) RETURNING 1
)
SELECT count(*) FROM given

-- name: block_from
SELECT last, count, appended_at
FROM forebay.block WHERE last >= $1 AND last < $2 ORDER BY last LIMIT 1

-- name: read
SELECT last, count, id, appended_at, partition, octet_length(body) AS size
FROM forebay.block WHERE last >= $1 AND last < $2 ORDER BY last LIMIT $3

-- name: read_partition
SELECT last, count, id, appended_at, partition, octet_length(body) AS size
FROM forebay.block WHERE partition = $4 AND last >= $1 AND last < $2 ORDER BY partition, last LIMIT $3

-- name: partition_bodies
SELECT last, body FROM forebay.block
WHERE partition = $5 AND last >= $1 AND last <= $2 AND appended_at BETWEEN $3 AND $4 ORDER BY partition, last

-- name: bodies
SELECT last, body FROM forebay.block
WHERE last >= $1 AND last <= $2 AND appended_at BETWEEN $3 AND $4 ORDER BY last

-- name: dead_letters
SELECT message_id, died_at, reason, attempts, body
FROM forebay.dead_letter WHERE grp = $1 AND message_id > $2 AND state = 'dead' ORDER BY message_id LIMIT $3

-- name: redrive
SELECT forebay.redrive($1, $2, $3)

-- name: purge
SELECT forebay.purge($1, $2, $3)

-- name: restore
SELECT forebay.restore($1, $2, $3)

-- name: trim_letters
DELETE FROM forebay.dead_letter AS d
WHERE d.state <> 'dead' AND d.changed_at < $1 AND NOT EXISTS (
    SELECT FROM forebay.claim AS c WHERE c.grp = d.grp AND c.letter = d.message_id
)

-- name: flow_cursor
SELECT q.ordered, g.start, c.position, c.position_at
FROM forebay.consumer_group AS g JOIN forebay.queue AS q ON q.number = g.queue, LATERAL (
    SELECT position, position_at FROM forebay.cursor WHERE grp = g.number ORDER BY turn DESC LIMIT 1
) AS c
WHERE g.number = $1

-- name: block_flows
SELECT last, count, appended_at, flows FROM forebay.block
WHERE last >= $1 AND last <= $2 AND appended_at >= $3 ORDER BY last LIMIT $4

-- name: lane_flows
-- Of an ordered queue: what is left behind the cursor, where lanes are ready or claims open, and what lies ahead of
-- it. Blocks with equal flows together, a block that was claimed in part alone.
WITH behind AS (
    SELECT partition FROM forebay.lane WHERE grp = $1 AND ready IS NOT NULL
    UNION SELECT partition FROM forebay.claim WHERE grp = $1 AND partition IS NOT NULL
), unclaimed AS (
    SELECT b.last, b.count, b.appended_at, b.flows, l.position
    FROM behind
    JOIN forebay.lane AS l ON l.grp = $1 AND l.partition = behind.partition
    JOIN forebay.block AS b ON b.partition = l.partition AND b.last >= l.position AND b.last < $3
    UNION ALL
    SELECT b.last, b.count, b.appended_at, b.flows, coalesce(l.position, $2)
    FROM forebay.block AS b LEFT JOIN forebay.lane AS l ON l.grp = $1 AND l.partition = b.partition
    WHERE b.last >= $3 AND b.last <= $4 AND b.appended_at >= $5 AND b.last >= coalesce(l.position, $2)
)
SELECT flows, count(*), sum(last + 1 - greatest(position, last + 1 - count))::bigint, min(appended_at),
    CASE WHEN last - count + 1 < position THEN last END AS cut
FROM unclaimed GROUP BY flows, cut

-- name: returned_flows
-- Claims that are due and with nobody: of blocks with the same flow together, or alone where there are several.
-- The column is an array, and 0x91 begins one of one element.
SELECT b.flows, sum(c.count - bit_count(c.done))::bigint, min(c.start_time),
    CASE WHEN c.letter IS NOT NULL OR substr(b.flows, 1, 1) <> '\x91' THEN c.token END AS alone
FROM forebay.claim AS c
LEFT JOIN forebay.block AS b ON b.last = c.block_last AND b.appended_at = c.block_at
WHERE c.grp = $1 AND c.owner IS NULL AND c.due_at <= (SELECT coalesce($2, forebay.now_us()))
    AND (b.last IS NOT NULL OR c.letter IS NOT NULL)
GROUP BY b.flows, alone

-- name: held_flows
-- Claims of other owners than $2: of untouched whole blocks with the same flows together, with their number; of
-- others with one flow likewise, with 0; alone where the column doesn't say enough.
WITH held AS (
    SELECT b.flows, c.count - bit_count(c.done | c.handed) AS remaining, c.start_time, c.token, c.letter,
        c.letter IS NULL AND c.count = b.count AND bit_count(c.done | c.handed) = 0 AS whole
    FROM forebay.claim AS c
    LEFT JOIN forebay.block AS b ON b.last = c.block_last AND b.appended_at = c.block_at
    WHERE c.grp = $1 AND c.owner IS NOT NULL AND c.owner <> ALL ($2::text[])
        AND (b.last IS NOT NULL OR c.letter IS NOT NULL)
), placed AS (
    SELECT *, CASE WHEN letter IS NOT NULL OR (NOT whole AND substr(flows, 1, 1) <> '\x91') THEN token END AS alone
    FROM held
)
SELECT flows, CASE WHEN whole THEN count(*) ELSE 0 END, sum(remaining)::bigint, min(start_time), alone
FROM placed WHERE remaining > 0 GROUP BY flows, whole, alone

-- name: returned_claims
-- What is out with workers counts as gone, where somebody has the claim.
SELECT coalesce(c.letter, c.block_last), c.letter IS NOT NULL,
    CASE WHEN c.letter IS NULL THEN c.first - (b.last - b.count + 1) ELSE 0 END,
    c.count, CASE WHEN c.owner IS NULL THEN c.done ELSE c.done | c.handed END, c.start_time, c.block_at
FROM forebay.claim AS c
LEFT JOIN forebay.block AS b ON b.last = c.block_last AND b.appended_at = c.block_at
WHERE c.token = ANY ($1)

-- name: letter_body
SELECT body FROM forebay.dead_letter WHERE grp = $1 AND message_id = $2

-- name: lane_group
SELECT q.ordered, q.floor, g.start
FROM forebay.consumer_group AS g JOIN forebay.queue AS q ON q.number = g.queue WHERE g.number = $1

-- name: lanes
-- The partitions that have messages from $3 to $4, from name to name of the index, whatever lies in between.
-- They begin at $5, or past $6 where it is given. A lane that was never claimed begins at $2.
WITH RECURSIVE name AS (
    (SELECT partition FROM forebay.block WHERE partition >= $5 ORDER BY partition, last LIMIT 1)
    UNION ALL
    SELECT (
        SELECT b.partition FROM forebay.block AS b
        WHERE b.partition > name.partition ORDER BY b.partition, b.last LIMIT 1
    )
    FROM name WHERE name.partition IS NOT NULL
), listed AS MATERIALIZED (
    SELECT name.partition, coalesce((
        SELECT position FROM forebay.lane WHERE grp = $1 AND partition = name.partition
    ), $2) AS position
    FROM name, LATERAL (
        SELECT FROM forebay.block
        WHERE partition = name.partition AND last BETWEEN $3 AND $4 ORDER BY partition, last LIMIT 1
    ) AS kept
    WHERE name.partition IS DISTINCT FROM $6 LIMIT $7
)
SELECT listed.partition, b.first, b.last, b.oldest_at, b.newest_at, b.messages,
    b.unclaimed + c.remaining - c.handed AS waiting, c.handed, least(b.waiting_at, c.waiting_at) AS oldest_waiting_at
FROM listed, LATERAL (
    SELECT min(last - count + 1) AS first, max(last) AS last, min(appended_at) AS oldest_at,
        max(appended_at) AS newest_at, sum(count)::bigint AS messages,
        sum(greatest(0, last + 1 - greatest(last + 1 - count, listed.position)))::bigint AS unclaimed,
        min(appended_at) FILTER (WHERE last >= listed.position) AS waiting_at
    FROM forebay.block WHERE partition = listed.partition AND last BETWEEN $3 AND $4
) AS b, LATERAL (
    SELECT coalesce(sum(remaining), 0)::bigint AS remaining, coalesce(sum(handed), 0)::bigint AS handed,
        min(at) FILTER (WHERE remaining > handed) AS waiting_at
    FROM (
        SELECT o.count - bit_count(o.done) AS remaining, coalesce(d.died_at, o.block_at) AS at,
            CASE WHEN o.owner IS NULL THEN 0 ELSE bit_count(o.handed & ~o.done) END AS handed
        FROM forebay.claim AS o LEFT JOIN forebay.dead_letter AS d ON d.grp = o.grp AND d.message_id = o.letter
        WHERE o.grp = $1 AND o.partition = listed.partition AND (o.letter IS NOT NULL OR o.block_last >= $3)
    ) AS claims
) AS c

-- name: span_queue
SELECT q.ordered, q.floor, h.appended_at
FROM forebay.queue AS q, LATERAL (
    SELECT appended_at FROM forebay.head WHERE queue = q.number ORDER BY next DESC LIMIT 1
) AS h
WHERE q.number = $1 AND NOT q.deleted

-- name: span_names
-- The partitions that have messages from $1 to $2, beginning at $3, or past $4 where it is given.
WITH RECURSIVE name AS (
    (SELECT partition FROM forebay.block WHERE partition >= $3 ORDER BY partition, last LIMIT 1)
    UNION ALL
    SELECT (
        SELECT b.partition FROM forebay.block AS b
        WHERE b.partition > name.partition ORDER BY b.partition, b.last LIMIT 1
    )
    FROM name WHERE name.partition IS NOT NULL
)
SELECT name.partition FROM name, LATERAL (
    SELECT FROM forebay.block
    WHERE partition = name.partition AND last BETWEEN $1 AND $2 ORDER BY partition, last LIMIT 1
) AS kept
WHERE name.partition IS DISTINCT FROM $4 LIMIT $5

-- name: spans
SELECT n.partition, f.first, l.last, f.appended_at AS oldest_at, l.appended_at AS newest_at
FROM unnest($1::text[]) WITH ORDINALITY AS n (partition, place), LATERAL (
    SELECT last - count + 1 AS first, appended_at FROM forebay.block
    WHERE partition = n.partition AND last BETWEEN $2 AND $3 ORDER BY partition, last LIMIT 1
) AS f, LATERAL (
    SELECT last, appended_at FROM forebay.block
    WHERE partition = n.partition AND last BETWEEN $2 AND $3 ORDER BY partition DESC, last DESC LIMIT 1
) AS l
ORDER BY n.place

-- name: lane_count
WITH RECURSIVE name AS (
    (SELECT partition FROM forebay.block WHERE partition >= '' ORDER BY partition, last LIMIT 1)
    UNION ALL
    SELECT (
        SELECT b.partition FROM forebay.block AS b
        WHERE b.partition > name.partition ORDER BY b.partition, b.last LIMIT 1
    )
    FROM name WHERE name.partition IS NOT NULL
)
SELECT count(*) FROM name, LATERAL (
    SELECT FROM forebay.block
    WHERE partition = name.partition AND last BETWEEN $1 AND $2 ORDER BY partition, last LIMIT 1
) AS kept

-- name: enter_write
SELECT forebay.enter_write($1, $2)

-- name: write_records
SELECT place, found FROM forebay.write_records($1, $2, $3, $4, $5, $6)

-- name: records
SELECT r.key, r.value, r.version, r.updated_at, r.expires_at
FROM unnest($2::text[]) WITH ORDINALITY AS k (key, place), LATERAL (
    SELECT * FROM forebay.record WHERE space = $1 AND key = k.key LIMIT 1
) AS r
WHERE r.expires_at IS NULL OR r.expires_at > coalesce($3, forebay.now_us())
ORDER BY k.place

-- name: scan_records
-- From $2 on and before $3, but not $4 itself.
SELECT key, value, version, updated_at, expires_at FROM forebay.record
WHERE space = $1 AND key >= $2 AND key < $3 AND key <> $4
    AND (expires_at IS NULL OR expires_at > coalesce($5, forebay.now_us()))
ORDER BY key LIMIT $6

-- name: trim_records
WITH gone AS (
    DELETE FROM forebay.record WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM forebay.record WHERE expires_at <= $1
        ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
    )) RETURNING 1
)
SELECT count(*) FROM gone

-- name: body
SELECT body FROM forebay.block WHERE last = $1 AND appended_at = $2

-- name: outcomes
SELECT first, at, count, body FROM forebay.outcome
WHERE grp = $1 AND block_last = (
    SELECT last FROM (
        SELECT last, count FROM forebay.block WHERE last >= $2 ORDER BY last LIMIT 1
    ) AS b WHERE b.last - b.count < $2
)
ORDER BY at, first LIMIT $3

-- name: queue_found
SELECT q.number, q.name, q.settings, q.created_at, q.ordered, q.floor, h.next
FROM forebay.queue AS q, LATERAL (
    SELECT next FROM forebay.head WHERE queue = q.number ORDER BY next DESC LIMIT 1
) AS h
WHERE q.number = $1 AND NOT q.deleted

-- name: block_of
SELECT last, count, id, appended_at, partition, body
FROM forebay.block WHERE last >= $1 ORDER BY last LIMIT 1

-- name: groups_found
SELECT g.number, g.queue, g.name, g.start, g.sought, c.position, l.position AS lane
FROM forebay.consumer_group AS g
LEFT JOIN forebay.lane AS l ON l.grp = g.number AND l.partition = $2, LATERAL (
    SELECT position FROM forebay.cursor WHERE grp = g.number ORDER BY turn DESC LIMIT 1
) AS c
WHERE g.queue = $1 ORDER BY g.number

-- name: claims_at
-- Claims that hold message $3 and begin at $2 or after it.
SELECT grp, first, owner, due_at, attempts, done, handed FROM forebay.claim
WHERE grp = ANY ($1::int[]) AND first BETWEEN $2 AND $3 AND first + count > $3

-- name: letters_at
SELECT grp, died_at, reason, attempts, body, state, changed_at FROM forebay.dead_letter
WHERE grp = ANY ($1::int[]) AND message_id = $2

-- name: progress_group
SELECT g.number, g.queue, g.name, g.start, g.sought, g.earlier, t.purged, h.next, q.floor, q.ordered, c.position
FROM forebay.consumer_group AS g JOIN forebay.queue AS q ON q.number = g.queue AND NOT q.deleted, LATERAL (
    SELECT position FROM forebay.cursor WHERE grp = g.number ORDER BY turn DESC LIMIT 1
) AS c, LATERAL (
    SELECT purged FROM forebay.tally WHERE grp = g.number ORDER BY turn DESC LIMIT 1
) AS t, LATERAL (
    SELECT next FROM forebay.head WHERE queue = q.number ORDER BY next DESC LIMIT 1
) AS h
WHERE g.number = $1

-- name: progress_lanes
SELECT partition, position FROM forebay.lane WHERE grp = $1

-- name: progress_claims
SELECT token, first, count, done, handed, owner IS NOT NULL, due_at, start_time, attempts
FROM forebay.claim WHERE grp = $1 ORDER BY first, token

-- name: progress_dead
SELECT message_id, died_at FROM forebay.dead_letter WHERE grp = $1 AND state = 'dead' ORDER BY message_id

-- name: outcomes_at
-- Those on claims that hold a message, newest first. The block may have been dropped: of a group's blocks
-- that have outcomes, it is the first that ends at or after the message, if any.
SELECT o.grp, o.first, o.at, o.count, o.body
FROM unnest($1::int[]) AS g (number), LATERAL (
    SELECT block_last FROM forebay.outcome
    WHERE grp = g.number AND block_last >= $2 ORDER BY block_last LIMIT 1
) AS b, LATERAL (
    SELECT grp, first, at, count, body FROM forebay.outcome
    WHERE grp = g.number AND block_last = b.block_last AND first <= $2 AND first + count > $2
    ORDER BY at DESC, first DESC LIMIT $3
) AS o
ORDER BY o.grp, o.at DESC, o.first DESC

-- name: quarantined_at
SELECT EXISTS (
    SELECT FROM (SELECT first, count FROM forebay.quarantine WHERE first <= $1 ORDER BY first DESC LIMIT 1) AS q
    WHERE q.first + q.count > $1
)

-- name: quarantined
SELECT first, count, id, appended_at, partition, body
FROM forebay.quarantine WHERE first >= $1 AND first < $2 ORDER BY first

-- name: sync
-- A transaction that writes something, so that its commit waits for the disk.
SELECT pg_logical_emit_message(true, 'forebay', '')

-- name: now
SELECT forebay.now_us()

-- name: queue_page
SELECT number FROM forebay.queue WHERE number > $1 AND NOT deleted ORDER BY number LIMIT $2

-- name: queue_stats
SELECT q.number, q.name, q.settings, q.created_at, h.next, q.floor
FROM forebay.queue AS q, LATERAL (
    SELECT next FROM forebay.head WHERE queue = q.number ORDER BY next DESC LIMIT 1
) AS h
WHERE q.number = ANY ($1::int[]) AND NOT q.deleted ORDER BY q.number

-- name: group_stats
SELECT g.number, g.queue, g.name, g.start, g.sought, g.earlier,
    c.claimed, c.skipped, t.done, t.dead, t.purged, t.expired, t.corrupt
FROM forebay.consumer_group AS g, LATERAL (
    SELECT * FROM forebay.cursor WHERE grp = g.number ORDER BY turn DESC LIMIT 1
) AS c, LATERAL (
    SELECT * FROM forebay.tally WHERE grp = g.number ORDER BY turn DESC LIMIT 1
) AS t
WHERE g.queue = ANY ($1::int[]) ORDER BY g.number

-- name: claim_stats
SELECT grp,
    coalesce(sum(c.count - bit_count(done)) FILTER (WHERE owner IS NOT NULL), 0)::bigint AS held,
    coalesce(sum(c.count - bit_count(done)) FILTER (WHERE owner IS NULL), 0)::bigint AS deferred,
    coalesce(sum(bit_count(handed & ~done)) FILTER (WHERE owner IS NOT NULL), 0)::bigint AS handed,
    coalesce(sum(c.count - bit_count(done)) FILTER (WHERE owner IS NULL AND due_at <= $1), 0)::bigint AS due
FROM forebay.consumer_group AS g JOIN forebay.claim AS c ON c.grp = g.number
WHERE g.queue = ANY ($2::int[]) GROUP BY grp

-- name: add_delayed
INSERT INTO forebay.delayed (queue, latest, last, count, earliest, delayed, partition, starts)
SELECT u.* FROM unnest(
    $2::int[], $3::bigint[], $4::bigint[], $5::int[], $6::bigint[], $7::int[], $8::text[], $9::bytea[]
) AS u (queue, latest, last, count, earliest, delayed, partition, starts)
WHERE u.latest > coalesce($1, forebay.now_us())

-- name: trim_delayed
DELETE FROM forebay.delayed WHERE latest <= $1

-- name: delayed_stats
-- What groups of queues $2 have at $1 that is delayed: whole blocks of which all start times are to come together,
-- unless $3; others by their start times.
SELECT b.grp, coalesce(sum(b.delayed) FILTER (WHERE b.is_whole), max(b.count))::bigint AS count, count(*)::int AS blocks,
    CASE WHEN NOT b.is_whole THEN greatest(0, b.position - (b.last - b.count + 1))::int END AS begin,
    CASE WHEN NOT b.is_whole THEN b.starts END AS starts
FROM (
    SELECT g.number AS grp, d.*, p.position,
        NOT $3 AND d.earliest > $1 AND p.position <= d.last - d.count + 1 AS is_whole
    FROM forebay.queue AS q
    JOIN forebay.delayed AS d ON d.queue = q.number AND d.latest > $1
    JOIN forebay.consumer_group AS g ON g.queue = q.number
    CROSS JOIN LATERAL (
        SELECT position FROM forebay.cursor WHERE grp = g.number ORDER BY turn DESC LIMIT 1
    ) AS c
    LEFT JOIN forebay.lane AS l ON l.grp = g.number AND l.partition = d.partition
    CROSS JOIN LATERAL (
        SELECT CASE WHEN q.ordered THEN coalesce(l.position, q.number::bigint << 45 | g.start)
            ELSE q.number::bigint << 45 | c.position END AS position
    ) AS p
    WHERE q.number = ANY ($2::int[]) AND NOT q.deleted
        AND d.last >= greatest(p.position, q.number::bigint << 45 | q.floor)
) AS b
GROUP BY 1, 4, 5, CASE WHEN NOT b.is_whole THEN b.count END

-- name: stage
INSERT INTO forebay.staged (stage, staged_at, id, queue, body, count, partition, flows, digests, delays)
SELECT $1, coalesce($2, forebay.now_us()), s.*
FROM unnest(
    $3::uuid[], $4::int[], $5::bytea[], $6::int[], $7::text[], $8::bytea[], $9::bytea[], $10::bytea[]
) AS s
ON CONFLICT DO NOTHING

-- name: lock_stage
SELECT pg_advisory_xact_lock('forebay.staged'::regclass::oid::int, hashtext($1))

-- name: staged
-- `created_at` is where the header of a block has it.
SELECT id, queue, count, partition, octet_length(body) AS size, octet_length(digests) AS digests,
    substr(body, 9, 8) AS created_at
FROM forebay.staged WHERE stage = $1 AND id = ANY ($2::uuid[]) FOR UPDATE

-- name: staged_body
SELECT body FROM forebay.staged WHERE stage = $1 AND id = $2

-- name: describe_staged
UPDATE forebay.staged SET count = $3, partition = $4, flows = $5, digests = $6, delays = $7
WHERE stage = $1 AND id = $2

-- name: staged_delays
SELECT id, delays FROM forebay.staged WHERE stage = $1 AND id = ANY ($2::uuid[]) AND delays IS NOT NULL

-- name: publishing_queues
SELECT q.number, q.name, q.settings, q.created_at, h.next, greatest(h.appended_at, $2) AS at,
    q.dedupe_us
FROM forebay.queue AS q, LATERAL (
    SELECT next, appended_at FROM forebay.head WHERE queue = q.number ORDER BY next DESC LIMIT 1
) AS h
WHERE q.number = ANY ($1::int[]) AND NOT q.deleted

-- name: copy_staged
-- Under numbers that no other transaction uses; their places come later, which leaves the bodies where they are.
INSERT INTO forebay.block
SELECT u.number, s.count, s.id, $2, NULL, s.body, s.flows
FROM unnest($3::uuid[], $4::bigint[]) AS u (id, number), forebay.staged AS s
WHERE s.stage = $1 AND s.id = u.id

-- name: staged_duplicates
-- Messages whose transaction ids are known, or come several times in these blocks, with the message that was
-- accepted last of those that are known. The digests of a block are fetched once, by adding nothing to them.
WITH offered AS MATERIALIZED (
    SELECT u.place, u.since, n, substr(s.digests, n * 16 + 1, 16) AS digest
    FROM unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS u (id, since, place), LATERAL (
        SELECT count, digests || ''::bytea AS digests FROM forebay.staged WHERE stage = $1 AND id = u.id OFFSET 0
    ) AS s, generate_series(0, s.count - 1) AS n
    WHERE substr(s.digests, n * 16 + 1, 16) <> '\x00000000000000000000000000000000'
), named AS (
    SELECT *, count(*) OVER (PARTITION BY digest) AS times FROM offered
)
SELECT (o.place - 1)::int AS place, o.n, o.digest, d.message_id, d.accepted
FROM named AS o LEFT JOIN LATERAL (
    SELECT message_id, coalesce(accepted_at, at) AS accepted FROM forebay.dedupe
    WHERE digest = o.digest AND at >= o.since ORDER BY 2 DESC LIMIT 1
) AS d ON true
WHERE d.message_id IS NOT NULL OR o.times > 1
ORDER BY o.place, o.n

-- name: copied_body
SELECT body FROM forebay.block WHERE last = $2 AND appended_at = $1

-- name: rewrite_copy
UPDATE forebay.block SET body = $3, flows = $4 WHERE last = $2 AND appended_at = $1

-- name: drop_copies
DELETE FROM forebay.block WHERE last = ANY ($2::bigint[]) AND appended_at = $1

-- name: place_copies
UPDATE forebay.block AS b SET last = u.last, count = u.count, appended_at = u.at, partition = u.partition
FROM unnest($2::bigint[], $3::bigint[], $4::int[], $5::bigint[], $6::text[])
    AS u (number, last, count, at, partition)
WHERE b.last = u.number AND b.appended_at = $1

-- name: publish_receipts
INSERT INTO forebay.receipt
SELECT id, $1, first, count, dropped
FROM unnest($2::uuid[], $3::bigint[], $4::int[], $5::bytea[]) AS u (id, first, count, dropped)

-- name: publish_digests
INSERT INTO forebay.dedupe
SELECT substr(s.digests, n * 16 + 1, 16), $2, u.first + n, nullif(u.accepted, $2)
FROM unnest($3::uuid[], $4::bigint[], $5::bigint[]) AS u (id, first, accepted), LATERAL (
    SELECT count, digests || ''::bytea AS digests FROM forebay.staged WHERE stage = $1 AND id = u.id OFFSET 0
) AS s, generate_series(0, s.count - 1) AS n
WHERE substr(s.digests, n * 16 + 1, 16) <> '\x00000000000000000000000000000000'

-- name: drop_heads
DELETE FROM forebay.head WHERE queue = $1 AND next < $2

-- name: add_head
INSERT INTO forebay.head VALUES ($1, $2, $3)

-- name: unstage
WITH gone AS (
    DELETE FROM forebay.staged WHERE stage = $1 AND id IN (
        SELECT id FROM forebay.staged WHERE stage = $1 LIMIT $2
    ) RETURNING 1
)
SELECT count(*) FROM gone

-- name: receipts
SELECT DISTINCT ON (id) id, first, count, dropped FROM forebay.receipt
WHERE id = ANY ($1::uuid[]) AND written_at >= $2 AND first IS NOT NULL

-- name: make_pieces
SELECT forebay.make_pieces(at) FROM (
    SELECT coalesce($1, forebay.now_us())
    UNION SELECT coalesce($1, forebay.now_us()) + (SELECT min(us) FROM forebay.span)
    UNION SELECT max(appended_at) FROM forebay.head GROUP BY queue
        HAVING max(appended_at) > coalesce($1, forebay.now_us())
) AS times (at)

-- name: pieces
SELECT lower, upper FROM forebay.piece WHERE parent = $1 AND upper <= $2 ORDER BY lower

-- name: dedupe_max
-- Longer than the window by as long as a push may wait in a spool: see forebay.log.intake.
SELECT coalesce(max(dedupe_us + least((settings ->> 'keep_seconds')::float8 * 1000000, $1)), 0)::bigint
FROM forebay.queue WHERE NOT deleted AND dedupe_us > 0

-- name: drop_blocks
SELECT forebay.drop_blocks($1, $2)

-- name: drop_piece
SELECT forebay.drop_piece($1, $2)

-- name: sweep_heads
DELETE FROM forebay.head AS h WHERE h.next < (SELECT max(next) FROM forebay.head WHERE queue = h.queue)

-- name: sweep_cursors
DELETE FROM forebay.cursor AS c
WHERE c.turn < (SELECT max(turn) FROM forebay.cursor WHERE grp = c.grp)

-- name: sweep_tallies
DELETE FROM forebay.tally AS t
WHERE t.turn < (SELECT max(turn) FROM forebay.tally WHERE grp = t.grp)

-- name: drop_stages
DELETE FROM forebay.staged WHERE staged_at < $1

-- name: drop_owners
DELETE FROM forebay.owner AS o
WHERE o.beat_at < $1 AND NOT EXISTS (SELECT FROM forebay.claim AS c WHERE c.owner = o.name)

-- name: lock_inbox
SELECT pg_advisory_xact_lock('forebay.inbox'::regclass::oid::int, 0)

-- name: sweep_inbox
SELECT id, queue, payload, partition, transaction_id, headers, start_time
FROM forebay.inbox ORDER BY id LIMIT $1 FOR UPDATE

-- name: reject_inbox
INSERT INTO forebay.inbox_rejected
SELECT i.*, $2, coalesce($3, forebay.now_us()) FROM forebay.inbox AS i WHERE i.id = $1

-- name: inbox_rejected
SELECT r.id, q.name AS queue, octet_length(r.payload) AS size, r.partition, r.transaction_id, r.reason,
    r.rejected_at
FROM forebay.inbox_rejected AS r JOIN forebay.queue AS q ON q.number = r.queue
WHERE r.id > $1 ORDER BY r.id LIMIT $2

-- name: swept
DELETE FROM forebay.inbox WHERE id = ANY ($1::bigint[])
