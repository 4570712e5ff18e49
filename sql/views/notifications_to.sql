-- A view with a parameter: the notifications to a recipient, found by the index notification_log_recipient. The view
-- outboxd.notifications cannot use it, because nothing tells the planner that equal recipients have equal hashes. It is planned as part of the statement that calls it, so ORDER BY id DESC LIMIT n reads no more than that.
-- Locks: none. Index: notification_log_recipient.
CREATE OR REPLACE FUNCTION outboxd.notifications_to(recipient text) RETURNS SETOF outboxd.notifications
LANGUAGE sql STABLE AS $$
    SELECT n.* FROM outboxd.notifications n
     WHERE n.recipient OPERATOR(pg_catalog.=) notifications_to.recipient
       AND (pg_catalog.hashtext(n.recipient) OPERATOR(pg_catalog.&) 255)
           OPERATOR(pg_catalog.=) (pg_catalog.hashtext(notifications_to.recipient) OPERATOR(pg_catalog.&) 255)
       AND pg_catalog.hashtext(n.recipient) OPERATOR(pg_catalog.=) pg_catalog.hashtext(notifications_to.recipient)
$$;

COMMENT ON FUNCTION outboxd.notifications_to IS
    'The notifications to a recipient, found by an index: SELECT * FROM outboxd.notifications_to(''…'') ORDER BY id DESC LIMIT 20.';
