-- How each check of the health view stands: 0 ok, 1 warn, 2 critical.
-- Parameters: none. Locks: none. Index: see the view.
SELECT h.name, CASE h.level WHEN 'ok' THEN 0 WHEN 'warn' THEN 1 ELSE 2 END AS level FROM outboxd.health h
