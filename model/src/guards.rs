//! The guards of the protocol, one flag each. A test removes one and expects the checker to find what it was for.

/// Which guards stand. Each field names the statement or the file that it mirrors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// A keyed PENDING row waits for the earlier due ones of its key: `missing` in `producer/release_due.sql`.
    pub release_waits_for_earlier: bool,
    /// Every few seconds each topic is scanned from its beginning: `full_scan_if_due` in `src/relay.rs`.
    pub relay_scans: bool,
    /// A publication is confirmed only after its push: `push`, then `confirm` in `src/relay/publisher.rs`.
    pub push_comes_before_confirm: bool,
    /// A head is admitted only if nobody of its key has the turn: the scalar subquery in `relay/admit_heads.sql`.
    pub admission_checks_turn: bool,
    /// At most one row of a key has the turn: the unique index `a_key_has_at_most_one_live_row` in `V0001`.
    pub one_turn_per_key: bool,
    /// A key belongs to its topic: `v.topic = k.topic` in `relay/admit_heads.sql`, and the columns of the unique index.
    pub key_belongs_to_topic: bool,
    /// The row's epoch must be the message's: `o.epoch = …` in `worker/claim_messages.sql`.
    pub claim_checks_epoch: bool,
    /// Only what is ready or published is claimed: `o.state IN …` in `worker/claim_messages.sql`.
    pub claim_checks_state: bool,
    /// The claim raises the epoch: `epoch = o.epoch + 1` in `worker/claim_messages.sql`.
    pub claim_raises_epoch: bool,
    /// Only what is published under the message's epoch is put back: the WHERE of `worker/put_back.sql`.
    pub put_back_checks_row: bool,
    /// A success needs no token, so a late one wins too: `worker/record_sent.sql`, `worker/record_late_sent.sql`.
    pub late_success_wins: bool,
    /// A late success also ends what an operator's retry began meanwhile: `worker/drop_sent_work.sql`.
    pub late_success_drops_work: bool,
    /// A failure counts only under the current token: `o.epoch = u.token` in `worker/record_failures.sql`.
    pub failure_checks_token: bool,
    /// A failure ends only a QUEUED record, and only with its row: `logged` in `worker/record_failures.sql`.
    pub failure_spares_ended: bool,
    /// A claim is undone only under its token: `o.epoch = u.token` in `worker/release_claims.sql`.
    pub undo_checks_token: bool,
    /// A sweep ends a claim only under the token it has read: `o.epoch = u.token` in `worker/record_failures.sql`.
    pub sweep_checks_token: bool,
    /// A sweep ends a claim only if its lease is still over: `NOT $12 OR …` in `worker/record_failures.sql`.
    pub sweep_checks_lease: bool,
    /// Only what is still published is recalled: `o.state = 'published'` in `relay/recall_publications.sql`.
    pub recall_checks_state: bool,
    /// A recall leaves the epoch alone: `relay/recall_publications.sql`. Either way is safe.
    pub recall_keeps_epoch: bool,
    /// What is republished gets a new epoch: `epoch = o.epoch + 1` in `relay/republish.sql`. Either way is safe.
    pub republish_raises_epoch: bool,
    /// Only what is still published is republished: `o.state = 'published'` in `relay/republish.sql`.
    pub republish_checks_state: bool,
    /// The push counter shows that the queue lost messages: `republish_lost` in `src/relay/repair.rs`.
    pub loss_is_noticed: bool,
    /// What is published although the queue is empty is republished: `republish_orphans` in `src/relay/repair.rs`.
    pub orphans_are_found: bool,
    /// What dead instances had in their in-process queues is republished: `PublishedBy` in `src/relay/repair.rs`.
    pub dead_queues_are_republished: bool,
    /// An instance that looked dead, was alive and died again is dealt with again: `SweepState::dealt_with` in
    /// `src/relay/repair.rs` keeps the heartbeat as of which it was.
    pub the_dead_are_dealt_with_again: bool,
    /// An instance that falls back says so in Postgres before its first push there. A rule for a fallback: none is
    /// built.
    pub fallback_is_told: bool,
    /// An instance that returns from its fallback works off its in-process queue. Likewise.
    pub return_keeps_queue: bool,
    /// What is in flight is flagged and not taken away: `h.state <> 'processing'` in `_cancel.sql`.
    pub cancel_spares_processing: bool,
    /// Only FAILED and CANCELED are retried: `l.status IN …` in `_requeue.sql`.
    pub retry_checks_status: bool,
    /// An operator's retry goes on with the epoch of the log: `epoch = l.epoch + 1` in `_requeue.sql`.
    pub retry_raises_epoch: bool,
}

impl Guards {
    /// As the SQL and the Rust have them.
    pub const TODAY: Guards = Guards {
        release_waits_for_earlier: true,
        relay_scans: true,
        push_comes_before_confirm: true,
        admission_checks_turn: true,
        one_turn_per_key: true,
        key_belongs_to_topic: true,
        claim_checks_epoch: true,
        claim_checks_state: true,
        claim_raises_epoch: true,
        put_back_checks_row: true,
        late_success_wins: true,
        late_success_drops_work: true,
        failure_checks_token: true,
        failure_spares_ended: true,
        undo_checks_token: true,
        sweep_checks_token: true,
        sweep_checks_lease: true,
        recall_checks_state: true,
        recall_keeps_epoch: true,
        republish_raises_epoch: true,
        republish_checks_state: true,
        loss_is_noticed: true,
        orphans_are_found: true,
        dead_queues_are_republished: true,
        the_dead_are_dealt_with_again: true,
        fallback_is_told: true,
        return_keeps_queue: true,
        cancel_spares_processing: true,
        retry_checks_status: true,
        retry_raises_epoch: true,
    };
}
