-- The key of this installation, with which digests are made that only its instances can compare.
-- Parameters: none. Locks: none. Index: none, there is one row.
SELECT s.signing_key FROM outboxd.setting s
