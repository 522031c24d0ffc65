-- Queues

-- name: queue
SELECT number, name, settings, created_at, next, floor, born, appended_at, deleted
FROM queue WHERE number = ?1

-- name: queue_by_name
SELECT number, name, settings, created_at, next, floor, born, appended_at, deleted
FROM queue WHERE name = ?1

-- name: queues
SELECT number, name, settings, created_at, next, floor, born, appended_at, deleted
FROM queue ORDER BY number

-- name: queue_page
-- From the first number past ?1 on, up to ?2 of them; -1: all.
SELECT number, name, settings, created_at, next, floor, born, appended_at, deleted
FROM queue WHERE number > ?1 AND NOT deleted ORDER BY number LIMIT ?2

-- name: used_queues
-- Those that ever had a message, deleted ones as well, from the first number past ?1 on.
SELECT number, name, settings, created_at, next, floor, born, appended_at, deleted
FROM queue WHERE number > ?1 AND next > 1 ORDER BY number LIMIT ?2

-- name: near_names
-- Up to ?2 names on either side of one, by their order.
SELECT name FROM (
    SELECT * FROM (SELECT name, deleted FROM queue WHERE name >= ?1 ORDER BY name LIMIT ?2)
    UNION ALL
    SELECT * FROM (SELECT name, deleted FROM queue WHERE name < ?1 ORDER BY name DESC LIMIT ?2)
) WHERE NOT deleted

-- name: queue_number_max
SELECT coalesce(max(number), 0) FROM queue

-- name: add_queue
INSERT INTO queue (number, name, settings, created_at, next, floor, born, appended_at, deleted)
VALUES (?1, ?2, ?3, ?4, 1, 1, 1, 0, 0)

-- name: revive_queue
UPDATE queue SET settings = ?2, created_at = ?3, deleted = 0 WHERE number = ?1

-- name: configure_queue
UPDATE queue SET settings = ?2 WHERE number = ?1

-- name: delete_queue
UPDATE queue SET deleted = 1, floor = next, born = next WHERE number = ?1

-- name: move_queue
UPDATE queue SET next = ?2, appended_at = ?3 WHERE number = ?1

-- name: move_floor
UPDATE queue SET floor = ?2 WHERE number = ?1

-- Groups

-- name: group
SELECT number, queue, name, start, sought, position
FROM consumer_group WHERE number = ?1 AND name IS NOT NULL

-- name: group_by_name
SELECT number, queue, name, start, sought, position
FROM consumer_group WHERE queue = ?1 AND name = ?2

-- name: groups
SELECT number, queue, name, start, sought, position
FROM consumer_group WHERE queue = ?1 AND name IS NOT NULL ORDER BY number

-- name: add_group
INSERT INTO consumer_group (queue, name, start, position) VALUES (?1, ?2, ?3, ?3)
RETURNING number

-- name: delete_group
UPDATE consumer_group SET name = NULL WHERE number = ?1 AND name IS NOT NULL

-- name: delete_groups
UPDATE consumer_group SET name = NULL WHERE queue = ?1

-- name: deleted_group
SELECT number FROM consumer_group WHERE name IS NULL LIMIT 1

-- name: remove_group
DELETE FROM consumer_group WHERE number = ?1

-- name: move_group
UPDATE consumer_group SET position = ?2 WHERE number = ?1

-- name: group_seen
SELECT earlier, claimed, skipped FROM consumer_group WHERE number = ?1

-- name: seek
UPDATE consumer_group SET
    start = ?2, position = ?2, sought = sought + 1, earlier = earlier + ?3, claimed = claimed + ?4,
    dead = dead + ?5, purged = purged + ?6, done = done + ?7
WHERE number = ?1

-- name: count_claimed
UPDATE consumer_group SET claimed = claimed + ?2 WHERE number = ?1

-- name: count_skipped
UPDATE consumer_group SET skipped = skipped + ?2 WHERE number = ?1

-- name: count_expired
UPDATE consumer_group SET expired = expired + ?2 WHERE number = ?1

-- name: count_corrupt
UPDATE consumer_group SET corrupt = corrupt + ?2 WHERE number = ?1

-- name: count_settled
UPDATE consumer_group SET done = done + ?2, dead = dead + ?3, expired = expired + ?4, purged = purged + ?5
WHERE number = ?1

-- name: sweep_claims
DELETE FROM claim WHERE token IN (SELECT token FROM claim WHERE group_number = ?1 LIMIT ?2)

-- name: sweep_lanes
DELETE FROM lane WHERE group_number = ?1
AND partition IN (SELECT partition FROM lane WHERE group_number = ?1 LIMIT ?2)

-- name: sweep_dead_letters
DELETE FROM dead_letter
WHERE number IN (SELECT number FROM dead_letter WHERE group_number = ?1 LIMIT ?2)

-- name: sweep_outcomes
DELETE FROM outcome WHERE (group_number, block_last, number) IN
    (SELECT group_number, block_last, number FROM outcome WHERE group_number = ?1 LIMIT ?2)

-- Blocks

-- name: add_block
INSERT INTO block (last, count, appended_at, size, id, partition, flows, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: blocks
SELECT last, count, appended_at, id, partition, body
FROM block WHERE last BETWEEN ?1 AND ?2 ORDER BY last

-- name: next_blocks
-- Bodies from message id ?3 on are known, and not read.
SELECT
    last, count, appended_at, id, partition,
    CASE WHEN last - count + 1 >= ?3 THEN x'' ELSE body END, size
FROM block WHERE last BETWEEN ?1 AND ?2 ORDER BY last

-- name: block
SELECT last, count, appended_at, id, partition, body FROM block WHERE last = ?1

-- name: block_at
SELECT last, count, appended_at FROM block WHERE last >= ?1 ORDER BY last LIMIT 1

-- name: sweep_blocks
DELETE FROM block
WHERE last IN (SELECT last FROM block WHERE last >= ?1 AND last < ?2 ORDER BY last LIMIT ?3)

-- name: old_blocks
SELECT last, count, appended_at, partition, size
FROM block WHERE last BETWEEN ?1 AND ?2 ORDER BY last LIMIT ?3

-- name: drop_blocks
DELETE FROM block WHERE last BETWEEN ?1 AND ?2

-- What was answered

-- name: receipt
SELECT first, count, dropped FROM receipt WHERE id = ?1

-- name: add_receipt
INSERT INTO receipt (id, at, first, count, dropped) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING

-- name: trim_receipts
DELETE FROM receipt WHERE id IN (SELECT id FROM receipt WHERE at < ?1 ORDER BY at LIMIT ?2)

-- name: settled
SELECT conflicts FROM settled WHERE id = ?1

-- name: add_settled
INSERT INTO settled (id, at, conflicts) VALUES (?1, ?2, ?3)

-- name: trim_settled
DELETE FROM settled WHERE id IN (SELECT id FROM settled WHERE at < ?1 ORDER BY at LIMIT ?2)

-- Transaction ids

-- name: digest
SELECT message_id, at, coalesce(accepted_at, at) FROM digest WHERE digest = ?1

-- name: add_digest
-- The message that was accepted last stays, unless it is of a queue of that number that was deleted (?5).
INSERT INTO digest (digest, message_id, at, accepted_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (digest) DO UPDATE
SET message_id = excluded.message_id, at = excluded.at, accepted_at = excluded.accepted_at
WHERE coalesce(digest.accepted_at, digest.at) <= coalesce(excluded.accepted_at, excluded.at)
    OR digest.message_id < ?5

-- name: add_digest_block
INSERT INTO digest_block (last, at, digests) VALUES (?1, ?2, ?3)

-- name: old_digest_blocks
SELECT last, at, digests FROM digest_block WHERE last BETWEEN ?1 AND ?2 ORDER BY last LIMIT ?3

-- name: remove_digest
DELETE FROM digest WHERE digest = ?1 AND (at <= ?2 OR message_id < ?3)

-- name: remove_digest_block
DELETE FROM digest_block WHERE last = ?1

-- Claims

-- name: take_tokens
UPDATE counter SET token = token + ?1 WHERE one = 1 RETURNING token

-- name: add_claim
INSERT INTO claim (
    token, group_number, first, count, remaining, block_last, due_at, start_time,
    prev_start_time, attempts, owner, partition
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)

-- name: held_claim
SELECT c.first, c.count, c.block_last, c.partition, c.done
FROM claim AS c
JOIN consumer_group AS g ON g.number = c.group_number AND g.name IS NOT NULL
WHERE c.token = ?1 AND c.group_number = ?2 AND c.owner IS NOT NULL

-- name: held_marks
SELECT c.handed, c.first, c.partition, c.owner, c.done
FROM claim AS c
JOIN consumer_group AS g ON g.number = c.group_number AND g.name IS NOT NULL
WHERE c.token = ?1 AND c.group_number = ?2 AND c.count = ?3 AND c.owner IS NOT NULL

-- name: mark_handed
UPDATE claim SET handed = ?2 WHERE token = ?1

-- name: mark_done
UPDATE claim SET remaining = ?2, done = ?3 WHERE token = ?1

-- name: left_of_claim
-- Of an ordered queue, and of one of which something is finished.
SELECT group_number, first, count, block_last, partition, prev_start_time, attempts, done FROM claim
WHERE token = ?1 AND partition IS NOT NULL AND done IS NOT NULL

-- name: remove_claim
DELETE FROM claim WHERE token = ?1

-- name: take_over
UPDATE claim SET token = ?2, owner = ?3 WHERE token = ?1

-- name: due_claims
SELECT
    c.token, c.first, c.count, c.remaining, c.block_last, c.start_time, c.prev_start_time,
    c.attempts, c.partition, c.done, c.handed, coalesce(length(d.body), b.size), c.letter
FROM claim AS c
LEFT JOIN block AS b ON b.last = c.block_last
LEFT JOIN dead_letter AS d ON d.group_number = c.group_number AND d.message_id = c.letter
WHERE c.group_number = ?1 AND c.owner IS NULL AND c.due_at <= ?2
ORDER BY c.due_at, c.first, c.count

-- name: partition_due_claims
SELECT
    c.token, c.first, c.count, c.remaining, c.block_last, c.start_time, c.prev_start_time,
    c.attempts, c.partition, c.done, c.handed, coalesce(length(d.body), b.size), c.letter
FROM claim AS c INDEXED BY claim_partition
LEFT JOIN block AS b ON b.last = c.block_last
LEFT JOIN dead_letter AS d ON d.group_number = c.group_number AND d.message_id = c.letter
WHERE c.group_number = ?1 AND c.partition = ?2 AND c.owner IS NULL AND c.due_at <= ?3
ORDER BY c.due_at, c.first, c.count

-- name: next_due
SELECT due_at FROM claim WHERE group_number = ?1 AND owner IS NULL ORDER BY due_at LIMIT 1

-- name: outlook
SELECT
    g.number, q.next, g.position,
    (SELECT ready FROM lane WHERE group_number = ?1 AND ready IS NOT NULL ORDER BY ready LIMIT 1),
    (SELECT due_at FROM claim WHERE group_number = ?1 AND owner IS NULL ORDER BY due_at LIMIT 1),
    g.sought
FROM consumer_group AS g JOIN queue AS q ON q.number = g.queue
WHERE g.number = ?1 AND g.name IS NOT NULL

-- name: partition_next_due
SELECT min(due_at) FROM claim INDEXED BY claim_partition
WHERE group_number = ?1 AND partition = ?2 AND owner IS NULL

-- name: owner_claims
SELECT
    c.token, c.first, c.count, c.remaining, c.block_last, c.start_time, c.prev_start_time,
    c.attempts, c.partition, c.done, c.handed, coalesce(length(d.body), b.size), c.letter
FROM claim AS c
LEFT JOIN block AS b ON b.last = c.block_last
LEFT JOIN dead_letter AS d ON d.group_number = c.group_number AND d.message_id = c.letter
WHERE c.owner = ?1 AND c.group_number = ?2
ORDER BY c.first, c.count, c.letter IS NOT NULL

-- name: recalled
SELECT
    token, first, count, remaining, block_last, start_time, prev_start_time, attempts, partition,
    done, handed, NULL, letter
FROM claim WHERE token = ?1 AND group_number = ?2 AND owner IS NOT NULL

-- name: held_at
-- Claims that somebody holds, and that hold a message and begin at ?2 or after it.
SELECT
    token, first, count, remaining, block_last, start_time, prev_start_time, attempts, partition,
    done, handed, NULL, letter
FROM claim
WHERE group_number = ?1 AND first BETWEEN ?2 AND ?3 AND first + count > ?3 AND owner IS NOT NULL

-- name: claim_bits_at
-- Claims that hold a message and begin at ?2 or after it.
SELECT token, first, done FROM claim
WHERE group_number = ?1 AND first BETWEEN ?2 AND ?3 AND first + count > ?3

-- name: seize
UPDATE claim SET owner = ?2 WHERE token = ?1 AND (?3 OR owner IS NULL) AND owner IS NOT ?2

-- name: seize_partition
UPDATE claim SET owner = ?3
WHERE group_number = ?1 AND partition = ?2 AND (?4 OR owner IS NULL) AND owner IS NOT ?3

-- name: left_by_claims
-- Those that lie on both sides of the place are counted one by one.
SELECT
    coalesce(sum(remaining) FILTER (WHERE first >= ?2), 0),
    coalesce(sum(remaining) FILTER (WHERE first + count <= ?2), 0)
FROM claim WHERE group_number = ?1 AND letter IS NULL

-- name: cut_claims
SELECT first, count, remaining, done FROM claim
WHERE group_number = ?1 AND letter IS NULL AND first < ?2 AND first + count > ?2

-- name: end_claims
DELETE FROM claim WHERE group_number = ?1

-- name: end_worker_claims
DELETE FROM claim WHERE group_number = ?1 AND letter IS NULL

-- name: worker_claim
SELECT 1 FROM claim WHERE group_number = ?1 AND letter IS NULL LIMIT 1

-- name: runs_elsewhere
SELECT first, count, token FROM claim
WHERE group_number = ?1 AND partition = ?2 AND owner IS NOT ?3 ORDER BY first, count

-- name: earlier_runs
SELECT count, token, owner, done, handed FROM claim
WHERE group_number = ?1 AND partition = ?2 AND (first, count) < (?3, ?4) ORDER BY first, count

-- name: first_claim
SELECT min(first) FROM claim WHERE group_number = ?1 AND letter IS NULL

-- name: first_held_up
-- What lies behind redriven messages in their lanes: the first block of which something is unclaimed.
SELECT min((
    SELECT b.last FROM block AS b
    WHERE b.partition = c.partition AND b.last BETWEEN coalesce(l.position, ?2) AND ?3
    ORDER BY b.last LIMIT 1
))
FROM (
    SELECT DISTINCT partition FROM claim
    WHERE group_number = ?1 AND letter IS NOT NULL AND partition IS NOT NULL
) AS c
LEFT JOIN lane AS l ON l.group_number = ?1 AND l.partition = c.partition

-- name: give_back
UPDATE claim SET owner = NULL, due_at = ?2 WHERE owner = ?1

-- name: open_claims
-- Of the groups of queues ?1 to ?2, found group by group: of others, nothing is read.
SELECT
    c.group_number, c.owner IS NOT NULL, sum(c.remaining), sum(c.remaining) FILTER (WHERE c.due_at <= ?3)
FROM consumer_group AS g CROSS JOIN claim AS c INDEXED BY claim_first
WHERE g.queue BETWEEN ?1 AND ?2 AND g.name IS NOT NULL AND c.group_number = g.number GROUP BY 1, 2

-- name: handed_claims
SELECT c.group_number, c.done, c.handed
FROM consumer_group AS g CROSS JOIN claim AS c INDEXED BY claim_first
WHERE g.queue BETWEEN ?1 AND ?2 AND g.name IS NOT NULL
    AND c.group_number = g.number AND c.owner IS NOT NULL AND c.handed IS NOT NULL

-- Owners

-- name: add_owner
INSERT INTO owner (name, beat_at) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING

-- name: beat
INSERT INTO owner (name, beat_at) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at

-- name: remove_owner
DELETE FROM owner WHERE name = ?1

-- name: owners
SELECT name, beat_at FROM owner ORDER BY name

-- name: silent_owners
SELECT name FROM owner WHERE beat_at <= ?1

-- name: trim_owners
DELETE FROM owner
WHERE beat_at < ?1 AND NOT EXISTS (SELECT 1 FROM claim WHERE claim.owner = owner.name)

-- Lanes

-- name: discovered
SELECT last, partition FROM block
WHERE last BETWEEN ?1 AND ?2 ORDER BY last LIMIT ?3

-- name: lane
SELECT position, ready FROM lane WHERE group_number = ?1 AND partition = ?2

-- name: lane_next
SELECT last FROM block WHERE partition = ?1 AND last BETWEEN ?2 AND ?3 ORDER BY last LIMIT 1

-- name: mark_ready
INSERT INTO lane (group_number, partition, position, ready) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (group_number, partition) DO UPDATE SET ready = excluded.ready

-- name: ready_lane
SELECT partition, position, ready FROM lane
WHERE group_number = ?1 AND ready IS NOT NULL ORDER BY ready LIMIT 1

-- name: busy_lane
SELECT 1 FROM claim WHERE group_number = ?1 AND partition = ?2 LIMIT 1

-- name: lane_elsewhere
SELECT 1 FROM claim INDEXED BY claim_partition
WHERE group_number = ?1 AND partition = ?2 AND owner IS NOT ?3 LIMIT 1

-- name: lane_blocks
SELECT
    last, count, appended_at, size, id, CASE WHEN last - count + 1 >= ?4 THEN x'' ELSE body END
FROM block
WHERE partition = ?1 AND last BETWEEN ?2 AND ?3 ORDER BY last

-- name: move_lane
INSERT INTO lane (group_number, partition, position, ready) VALUES (?1, ?2, ?3, NULL)
ON CONFLICT (group_number, partition) DO UPDATE SET position = excluded.position, ready = NULL

-- name: claimed_since
-- Up to the first block of each lane of which something is unclaimed.
SELECT coalesce(sum(max(0, min(b.last + 1, l.position) - max(b.last - b.count + 1, ?2))), 0)
FROM lane AS l CROSS JOIN block AS b
WHERE l.group_number = ?1 AND l.position > ?2 AND b.partition = l.partition AND b.last >= ?2
    AND b.last <= coalesce((
        SELECT n.last FROM block AS n
        WHERE n.partition = l.partition AND n.last BETWEEN l.position AND ?3 ORDER BY n.last LIMIT 1
    ), l.position)

-- name: forget_lanes
DELETE FROM lane WHERE group_number = ?1

-- name: forget_lane
DELETE FROM lane
WHERE group_number = ?1 AND partition = ?2 AND position <= ?3 AND ready IS NULL

-- name: partitions
-- Those that have messages from ?3 to ?4: from name to name of the index, whatever lies in between. They
-- begin at ?1, or past ?2 where it is given.
WITH RECURSIVE name (partition) AS (
    SELECT (SELECT partition FROM block WHERE partition >= ?1 ORDER BY partition LIMIT 1)
    UNION ALL
    SELECT (SELECT b.partition FROM block AS b WHERE b.partition > name.partition ORDER BY b.partition LIMIT 1)
    FROM name WHERE name.partition IS NOT NULL
)
SELECT partition FROM name
WHERE partition IS NOT ?2
    AND EXISTS (SELECT 1 FROM block AS b WHERE b.partition = name.partition AND b.last BETWEEN ?3 AND ?4)
LIMIT ?5

-- name: span
SELECT f.last - f.count + 1, l.last, f.appended_at, l.appended_at
FROM (
    SELECT last, count, appended_at FROM block
    WHERE partition = ?1 AND last BETWEEN ?2 AND ?3 ORDER BY last LIMIT 1
) AS f, (
    SELECT last, appended_at FROM block
    WHERE partition = ?1 AND last BETWEEN ?2 AND ?3 ORDER BY last DESC LIMIT 1
) AS l

-- name: partition_blocks
SELECT last, count, appended_at, id, partition, body
FROM block WHERE partition = ?3 AND last BETWEEN ?1 AND ?2 ORDER BY last

-- name: partition_count
WITH RECURSIVE name (partition) AS (
    SELECT (SELECT partition FROM block WHERE partition >= '' ORDER BY partition LIMIT 1)
    UNION ALL
    SELECT (SELECT b.partition FROM block AS b WHERE b.partition > name.partition ORDER BY b.partition LIMIT 1)
    FROM name WHERE name.partition IS NOT NULL
)
SELECT count(*) FROM name
WHERE EXISTS (SELECT 1 FROM block AS b WHERE b.partition = name.partition AND b.last BETWEEN ?1 AND ?2)

-- name: lane_totals
-- What is kept of a partition, and what of it is unclaimed: from ?4 on.
SELECT
    min(last - count + 1), max(last), min(appended_at), max(appended_at), sum(count),
    sum(max(0, last + 1 - max(last + 1 - count, ?4))), min(appended_at) FILTER (WHERE last >= ?4)
FROM block WHERE partition = ?1 AND last BETWEEN ?2 AND ?3

-- name: lane_claims
SELECT c.remaining, c.owner IS NOT NULL, c.done, c.handed, coalesce(d.died_at, b.appended_at)
FROM claim AS c
LEFT JOIN block AS b ON b.last = c.block_last
LEFT JOIN dead_letter AS d ON d.group_number = c.group_number AND d.message_id = c.letter
WHERE c.group_number = ?1 AND c.partition = ?2 AND (c.letter IS NOT NULL OR c.block_last >= ?3)

-- What came of it

-- name: add_dead_letter
INSERT OR REPLACE INTO dead_letter (
    group_number, message_id, died_at, attempts, reason, body, changed_at, block_last, partition
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?3, ?7, ?8)

-- name: dead_letters
SELECT message_id, died_at, reason, attempts, body FROM dead_letter
WHERE group_number = ?1 AND message_id > ?2 AND state = 'dead' ORDER BY message_id LIMIT ?3

-- name: letter
SELECT died_at, body FROM dead_letter WHERE group_number = ?1 AND message_id = ?2

-- name: letter_state
SELECT state FROM dead_letter WHERE group_number = ?1 AND message_id = ?2

-- name: letter_is_out
SELECT 1 FROM claim WHERE group_number = ?1 AND letter = ?2 AND token <> ?3 LIMIT 1

-- name: bury_again
UPDATE dead_letter SET state = 'dead', changed_at = ?2
WHERE group_number = ?1 AND state = 'redriven' AND message_id IN (
    SELECT letter FROM claim WHERE group_number = ?1 AND letter IS NOT NULL
)

-- name: change_letter
UPDATE dead_letter SET state = ?4, changed_at = ?5
WHERE group_number = ?1 AND message_id = ?2 AND state = ?3
RETURNING coalesce(block_last, message_id), partition

-- name: add_letter_claim
INSERT INTO claim (
    token, group_number, first, count, remaining, block_last, due_at, start_time, attempts, partition, letter
) VALUES (?1, ?2, ?3, 1, 1, ?4, ?5, ?5, 0, ?6, ?3)

-- name: claim_letter
SELECT letter FROM claim WHERE token = ?1

-- name: tie_to_letter
UPDATE claim SET letter = ?2 WHERE token = ?1

-- name: take_back
DELETE FROM claim WHERE group_number = ?1 AND letter = ?2 AND owner IS NULL RETURNING partition

-- name: count_letters
UPDATE consumer_group SET dead = dead + ?2, purged = purged + ?3 WHERE number = ?1

-- name: hold_up_lane
UPDATE lane SET ready = NULL WHERE group_number = ?1 AND partition = ?2

-- name: trim_letters
DELETE FROM dead_letter WHERE number IN (
    SELECT d.number FROM dead_letter AS d
    WHERE d.state <> 'dead' AND d.changed_at < ?1 AND NOT EXISTS (
        SELECT 1 FROM claim AS c WHERE c.group_number = d.group_number AND c.letter = d.message_id
    )
    LIMIT ?2
)

-- name: add_outcome
INSERT INTO outcome (group_number, block_last, number, at, first, count, body)
VALUES (
    ?1, ?2,
    (SELECT coalesce(max(number), 0) + 1 FROM outcome WHERE group_number = ?1 AND block_last = ?2),
    ?3, ?4, ?5, ?6
)

-- name: progress_counts
SELECT earlier, purged FROM consumer_group WHERE number = ?1

-- name: progress_lanes
SELECT partition, position FROM lane WHERE group_number = ?1

-- name: progress_claims
SELECT token, first, count, done, handed, owner IS NOT NULL, due_at, start_time, attempts
FROM claim WHERE group_number = ?1 ORDER BY first, token

-- name: progress_dead
SELECT message_id, died_at FROM dead_letter WHERE group_number = ?1 AND state = 'dead' ORDER BY message_id

-- name: outcomes
SELECT first, at, count, body FROM outcome
WHERE group_number = ?1 AND block_last = ?2 ORDER BY number LIMIT ?3

-- name: outcomes_at
-- Those on claims that hold a message, newest first. The block may have been dropped: of the groups' blocks
-- that have outcomes, it is the first that ends at or after the message, if any.
SELECT first, at, count, body FROM outcome
WHERE group_number = ?1 AND first <= ?2 AND first + count > ?2 AND block_last =
    (SELECT min(block_last) FROM outcome WHERE group_number = ?1 AND block_last >= ?2)
ORDER BY number DESC LIMIT ?3

-- name: claims_at
-- Claims that hold a message and begin at ?2 or after it.
SELECT first, owner, due_at, attempts, done, handed FROM claim
WHERE group_number = ?1 AND first BETWEEN ?2 AND ?3 AND first + count > ?3

-- name: letter_at
SELECT died_at, reason, attempts, body, state, changed_at FROM dead_letter
WHERE group_number = ?1 AND message_id = ?2

-- name: block_of
SELECT last, count, appended_at, id, partition, body FROM block WHERE last >= ?1 ORDER BY last LIMIT 1

-- name: quarantined_at
SELECT first, count FROM quarantine WHERE first <= ?1 ORDER BY first DESC LIMIT 1

-- name: old_outcomes
SELECT block_last, number, at FROM outcome
WHERE group_number = ?1 ORDER BY block_last, number LIMIT ?2

-- name: remove_outcomes
DELETE FROM outcome WHERE group_number = ?1 AND (block_last, number) <= (?2, ?3)

-- name: add_quarantine
INSERT OR REPLACE INTO quarantine (first, count, appended_at, id, partition, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: quarantined
SELECT first, count, id, appended_at, partition, body
FROM quarantine WHERE first BETWEEN ?1 AND ?2 ORDER BY first

-- name: group_counts
SELECT
    number, queue, name, start, sought, position, earlier, claimed, skipped, done, dead, purged, expired, corrupt
FROM consumer_group WHERE queue BETWEEN ?1 AND ?2 AND name IS NOT NULL ORDER BY number

-- Start times

-- name: add_delayed
INSERT INTO delayed (queue, latest, last, count, earliest, delayed, partition, starts)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: trim_delayed
DELETE FROM delayed WHERE number IN (SELECT number FROM delayed WHERE latest <= ?1 LIMIT ?2)

-- name: delayed
-- Of queue ?2 for group ?1 at ?3: whole blocks of which all start times are to come together, unless ?7; others by
-- their start times. Nothing before ?4 is unclaimed (in an ordered queue, ?6: of a lane that it has not claimed
-- from), and nothing before ?5 is kept.
SELECT
    coalesce(sum(delayed) FILTER (WHERE is_whole), max(count)), count(*),
    CASE WHEN NOT is_whole THEN max(0, position - (last - count + 1)) END AS begin,
    CASE WHEN NOT is_whole THEN starts END AS starts
FROM (
    SELECT *, NOT ?7 AND earliest > ?3 AND position <= last - count + 1 AS is_whole
    FROM (
        SELECT d.*, CASE WHEN ?6 THEN coalesce((
            SELECT l.position FROM lane AS l WHERE l.group_number = ?1 AND l.partition = d.partition
        ), ?4) ELSE ?4 END AS position
        FROM delayed AS d WHERE d.queue = ?2 AND d.latest > ?3
    ) WHERE last >= max(position, ?5)
)
GROUP BY 3, 4, CASE WHEN NOT is_whole THEN count END

-- Flows

-- name: block_flows
SELECT last, count, appended_at, flows FROM block WHERE last BETWEEN ?1 AND ?2 ORDER BY last LIMIT ?3

-- name: lane_flows
-- Blocks with equal ones together, a block that was claimed in part alone.
WITH behind AS (
    SELECT partition FROM lane INDEXED BY lane_ready WHERE group_number = ?1 AND ready IS NOT NULL
    UNION SELECT partition FROM claim WHERE group_number = ?1 AND partition IS NOT NULL
), unclaimed AS (
    SELECT b.last, b.count, b.appended_at, b.flows, coalesce(l.position, ?2) AS position
    FROM behind LEFT JOIN lane AS l ON l.group_number = ?1 AND l.partition = behind.partition
    CROSS JOIN block AS b
    WHERE b.partition = behind.partition AND b.last >= coalesce(l.position, ?2) AND b.last < ?3
    UNION ALL
    SELECT b.last, b.count, b.appended_at, b.flows, coalesce(l.position, ?2) AS position
    FROM block AS b LEFT JOIN lane AS l ON l.group_number = ?1 AND l.partition = b.partition
    WHERE b.last BETWEEN ?3 AND ?4 AND b.last >= coalesce(l.position, ?2)
)
SELECT
    flows, count(*), sum(last + 1 - max(position, last + 1 - count)), min(appended_at),
    CASE WHEN last - count + 1 < position THEN last END AS cut
FROM unclaimed GROUP BY flows, cut

-- name: returned_flows
-- Claims that are due and with nobody: of blocks with the same flow together, or alone where there are several.
-- The column is an array, and 0x91 begins one of one element.
SELECT
    b.flows, sum(c.remaining), min(c.start_time),
    CASE WHEN c.letter IS NOT NULL OR substr(b.flows, 1, 1) <> x'91' THEN c.token END AS alone
FROM claim AS c LEFT JOIN block AS b ON b.last = c.block_last
WHERE c.group_number = ?1 AND c.owner IS NULL AND c.due_at <= ?2 AND (b.last IS NOT NULL OR c.letter IS NOT NULL)
GROUP BY b.flows, alone

-- name: held_flows
-- Claims that owners have: of untouched whole blocks with the same flows together, with their number; else each, with
-- its token where the column doesn't say enough.
WITH held AS (
    SELECT
        c.owner, b.flows, c.count, c.start_time, c.token, c.done, c.handed, c.letter,
        c.letter IS NULL AND c.done IS NULL AND c.handed IS NULL AND c.count = b.count AS whole
    FROM claim AS c LEFT JOIN block AS b ON b.last = c.block_last
    WHERE c.group_number = ?1 AND c.owner IS NOT NULL AND (b.last IS NOT NULL OR c.letter IS NOT NULL)
)
SELECT
    owner, flows, CASE WHEN whole THEN count(*) ELSE 0 END, sum(count), min(start_time),
    CASE WHEN letter IS NOT NULL OR (NOT whole AND substr(flows, 1, 1) <> x'91') THEN token END,
    max(done), max(handed)
FROM held GROUP BY owner, flows, CASE WHEN whole THEN 0 ELSE token END

-- name: returned_claim
SELECT
    coalesce(c.letter, c.block_last), c.letter IS NOT NULL,
    CASE WHEN c.letter IS NULL THEN c.first - (b.last - b.count + 1) ELSE 0 END,
    c.count, coalesce(c.done, x''), c.start_time
FROM claim AS c LEFT JOIN block AS b ON b.last = c.block_last
WHERE c.token = ?1

-- name: letter_body
SELECT body FROM dead_letter WHERE group_number = ?1 AND message_id = ?2

-- Records

-- name: record
SELECT key, value, version, updated_at, expires_at FROM record WHERE space = ?1 AND key = ?2

-- name: record_state
-- The same without its value.
SELECT key, x'', version, updated_at, expires_at FROM record WHERE space = ?1 AND key = ?2

-- name: scan_records
-- From ?2 on and before ?3, but not ?4 itself.
SELECT key, value, version, updated_at, expires_at FROM record
WHERE space = ?1 AND key >= ?2 AND key < ?3 AND key <> ?4 AND (expires_at IS NULL OR expires_at > ?5)
ORDER BY key LIMIT ?6

-- name: put_record
INSERT INTO record (space, key, value, version, updated_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (space, key) DO UPDATE SET
    value = excluded.value, version = excluded.version, updated_at = excluded.updated_at,
    expires_at = excluded.expires_at

-- name: remove_record
DELETE FROM record WHERE space = ?1 AND key = ?2

-- name: trim_records
DELETE FROM record WHERE number IN (
    SELECT number FROM record WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2
)

-- Stages

-- name: stage
SELECT number FROM stage WHERE name = ?1

-- name: touch_stage
INSERT INTO stage (name, at) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET at = max(at, excluded.at) RETURNING number

-- name: add_staged
INSERT INTO staged (stage, queue, id, body) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (stage, id) DO NOTHING

-- name: staged
SELECT queue, body FROM staged WHERE stage = ?1 AND id = ?2

-- name: is_staged
SELECT 1 FROM staged WHERE stage = ?1 AND id = ?2

-- name: forget_stage
UPDATE stage SET name = NULL, at = -1 WHERE name = ?1

-- name: old_stage
SELECT number FROM stage WHERE at < ?1 LIMIT 1

-- name: sweep_staged
DELETE FROM staged WHERE number IN (SELECT number FROM staged WHERE stage = ?1 LIMIT ?2)

-- name: remove_stage
DELETE FROM stage WHERE number = ?1
