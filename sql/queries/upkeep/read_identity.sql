-- Whose keys in Redis an instance may use: this installation's, in this database.
-- Parameters: none. Locks: none. Index: none, there is one row each.
SELECT s.install_id, outboxd._database() AS database, coalesce(o.adopted_as = 'same' AND o.phase = 'own', false) AS is_moved
  FROM outboxd.setting s, outboxd.origin o
