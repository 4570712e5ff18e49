-- Topics named in the configuration get their lanes at start.
-- $1 topic names
-- Locks: new rows of topic only. Index: topic_name_key.
INSERT INTO outboxd.topic (name) SELECT n FROM unnest($1::text[]) n ORDER BY n ON CONFLICT (name) DO NOTHING
