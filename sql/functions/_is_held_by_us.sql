-- Whether somebody who may act holds the advisory lock of this key: the daemon, an operator, the owner. Any login of the
-- database may take any advisory lock, so one that a stranger holds does not count: whoever tries a lock in vain asks
-- here, and goes on if it is no lock of ours. What the lock is for is kept by a unique index besides; without it two of
-- us may wait for each other's transaction.
-- Interleavings: the holder ends between the try and this: it is not held, and what the holder has done is found by the
-- statement's own guard.
-- Locks: none. Asked only after a lock was not to be had.
CREATE OR REPLACE FUNCTION outboxd._is_held_by_us(key bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
           AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
           AND l.classid = (key >> 32 & 4294967295)::oid AND l.objid = (key & 4294967295)::oid
           AND has_function_privilege(a.usesysid, 'outboxd.retry(bigint)', 'EXECUTE')
           -- In a session that reads an audience foreign code runs under the daemon's login: src/store/audience.rs.
           AND NOT EXISTS (SELECT FROM pg_locks m WHERE m.pid = l.pid AND m.locktype = 'advisory' AND m.objsubid = 2
                              AND m.classid = 1869968482));
END $$;
