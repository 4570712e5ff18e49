# What each example proves, as a login that has only the role outboxd_app and its own table `orders`.
require 'pg'
require 'securerandom'

# Raised inside a transaction to roll it back.
class Undo < StandardError; end

class Checks
  def initialize(tool)
    @topic = "#{tool}-#{SecureRandom.hex(4)}"
    @failed = false
  end

  # The block gets (topic, dedup_key, undo), writes an order and its notification in one transaction and gives the
  # notification's id, or nil if its key was taken. With `undo` it raises Undo before the commit.
  def prove(way)
    topic = ->(check) { "#{@topic}.#{way}.#{check}" }
    first = yield topic['commit'], nil, false
    counts, ids = written(topic['commit'])
    check way, 'commit', counts, [1, 1]
    check way, 'returning', [first], ids
    status = ask('SELECT outboxd.status($1)', first).first
    begins = { 'notify' => 'QUEUED', 'insert' => 'PENDING' }[way]
    # A running instance may be further already.
    check way, 'status', %w[QUEUED PROCESSING SENT FAILED].include?(status) ? begins : status, begins
    begin
      yield topic['rollback'], nil, true
    rescue Undo
      # As wanted.
    end
    check way, 'rollback', written(topic['rollback']).first, [0, 0]
    given = Array.new(2) { yield topic['dedup'], 'order-4711', false }
    counts, (kept,) = written(topic['dedup'])
    # Both orders are committed: a key that is taken ends no transaction. notify() gives the first id again.
    check way, 'dedup', [counts, given], [[2, 1], [kept, way == 'notify' ? kept : nil]]
  end

  def end
    exit(@failed ? 1 : 0)
  end

  private

  # [[orders, notifications], the notifications' ids], as another session of the same login sees them.
  def written(topic)
    ids = ask('SELECT id FROM outboxd.notification_log WHERE topic = $1 ORDER BY id', topic).map(&:to_i)
    orders = ask('SELECT count(*) FROM orders WHERE item = $1', topic).first.to_i
    [[orders, ids.size], ids]
  end

  def ask(sql, *parameters)
    connection = PG.connect(ENV.fetch('DATABASE_URL'))
    connection.exec_params(sql, parameters).column_values(0)
  ensure
    connection&.close
  end

  def check(way, name, found, wanted)
    good = found == wanted
    @failed ||= !good
    puts good ? "ok #{way} #{name}" : "not ok #{way} #{name}: #{found.inspect} instead of #{wanted.inspect}"
  end
end
