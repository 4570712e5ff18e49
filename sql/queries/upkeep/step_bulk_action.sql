-- One batch of an operator's bulk action, if there is one and nobody else is at it; see sql/functions/_bulk_step.sql.
-- Parameters: none. Locks: the action's row and those it changes. Index: bulk_action_open.
SELECT s.bulk_id, s.changed, s.ended FROM outboxd._bulk_step() s
