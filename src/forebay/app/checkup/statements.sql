-- name: clock
SELECT extract(epoch FROM clock_timestamp())::float8

-- name: settings
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') ORDER BY name

-- name: has_schema
SELECT to_regclass('forebay.schema_version') IS NOT NULL

-- name: schema
SELECT coalesce(max(number), 0) FROM forebay.schema_version

-- name: has_inbox
SELECT to_regclass('forebay.inbox_rejected') IS NOT NULL

-- name: rejected_rows
SELECT count(*) FROM (SELECT FROM forebay.inbox_rejected LIMIT $1) AS counted

-- name: old_sessions
-- What PostgreSQL may not clean up, in any session of this database, and who keeps it from doing so.
SELECT
    format(
        'process %s (%s, %s) is %s for %ss',
        pid,
        coalesce(usename, 'nobody'),
        coalesce(nullif(application_name, ''), backend_type),
        coalesce(state, 'at work'),
        round(extract(epoch FROM clock_timestamp() - xact_start))
    ) AS text,
    format('SELECT pg_terminate_backend(%s);', pid) AS help
FROM pg_stat_activity
WHERE
    pid <> pg_backend_pid()
    AND (datname IS NULL OR datname = current_database())
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR state LIKE 'idle in transaction%')
    AND xact_start <= clock_timestamp() - make_interval(secs => $1)
ORDER BY xact_start
LIMIT $2

-- name: old_prepared
SELECT
    format(
        'prepared transaction %L waits for %ss', gid, round(extract(epoch FROM clock_timestamp() - prepared))
    ) AS text,
    format('ROLLBACK PREPARED %L;', gid) AS help
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared <= clock_timestamp() - make_interval(secs => $1)
ORDER BY prepared
LIMIT $2

-- name: old_slots
-- A slot has no time: one that nobody uses and that holds a snapshot counts, whatever its age.
SELECT
    format('replication slot %L is unused and holds a snapshot', slot_name) AS text,
    format('SELECT pg_drop_replication_slot(%L);', slot_name) AS help
FROM pg_replication_slots
WHERE NOT active AND xmin IS NOT NULL AND $1 >= 0
ORDER BY slot_name
LIMIT $2
