-- What pgmq does for one queue, in our own words, for machines that cannot fetch pgmq itself.
--
-- The tables and statements are those that its documentation describes: a row per message, invisible
-- until `vt`; reading moves `vt` ahead; archiving moves the row to another table.

CREATE SCHEMA pgmq;

CREATE FUNCTION pgmq.create(queue_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'CREATE TABLE pgmq.%1$I (
            msg_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            read_ct      int NOT NULL DEFAULT 0,
            enqueued_at  timestamptz NOT NULL DEFAULT now(),
            last_read_at timestamptz,
            vt           timestamptz NOT NULL,
            message      jsonb,
            headers      jsonb
        );
        CREATE INDEX ON pgmq.%1$I (vt);
        CREATE TABLE pgmq.%2$I (LIKE pgmq.%1$I, archived_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (msg_id));
        CREATE INDEX ON pgmq.%2$I (archived_at)',
        'q_' || queue_name, 'a_' || queue_name);
END $$;

CREATE FUNCTION pgmq.drop_queue(queue_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TABLE pgmq.%I, pgmq.%I', 'q_' || queue_name, 'a_' || queue_name);
END $$;

CREATE FUNCTION pgmq.send_batch(queue_name text, msgs jsonb[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'INSERT INTO pgmq.%I (vt, message) SELECT clock_timestamp(), unnest($1) RETURNING msg_id',
        'q_' || queue_name) USING msgs;
END $$;

CREATE FUNCTION pgmq.read(queue_name text, vt int, qty int)
RETURNS TABLE (msg_id bigint, read_ct int, enqueued_at timestamptz, message jsonb) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'WITH next AS (
            SELECT msg_id FROM pgmq.%1$I WHERE vt <= clock_timestamp()
            ORDER BY msg_id LIMIT $1 FOR UPDATE SKIP LOCKED
        )
        UPDATE pgmq.%1$I AS q
        SET vt = clock_timestamp() + $2, last_read_at = clock_timestamp(), read_ct = q.read_ct + 1
        FROM next WHERE q.msg_id = next.msg_id
        RETURNING q.msg_id, q.read_ct, q.enqueued_at, q.message',
        'q_' || queue_name) USING qty, make_interval(secs => vt);
END $$;

CREATE FUNCTION pgmq.archive(queue_name text, msg_ids bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'WITH gone AS (
            DELETE FROM pgmq.%I WHERE msg_id = ANY ($1) RETURNING *
        )
        INSERT INTO pgmq.%I (msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers)
        SELECT msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers FROM gone
        RETURNING msg_id',
        'q_' || queue_name, 'a_' || queue_name) USING msg_ids;
END $$;
