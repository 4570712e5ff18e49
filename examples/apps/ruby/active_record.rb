# ActiveRecord (Rails) on ruby-pg.
#
#     DATABASE_URL=postgres://my_app@db/app ruby active_record.rb
require 'active_record'
require_relative 'checks'

# Finders prepare statements otherwise, which PgBouncer in transaction mode does not bear before its version 1.21. Both
# settings stand in database.yml; the second is for migrations.
ActiveRecord::Base.establish_connection(url: ENV.fetch('DATABASE_URL'), prepared_statements: false, advisory_locks: false)

class Order < ActiveRecord::Base
end

class Notification < ActiveRecord::Base
  self.table_name = 'outboxd.notification_log'
  # Only what the app writes. Otherwise Rails from 7 on writes the defaults of the others (partial_inserts is off there),
  # and they are not the app's to write.
  self.ignored_columns = %w[created_at finished_at due_at failed_at status epoch attempts http_status channel error]
end

checks = Checks.new('active-record')
checks.prove('notify') do |topic, dedup_key, undo|
  Order.transaction do
    Order.create!(item: topic)
    id = Order.connection.select_value(
      Order.sanitize_sql(['SELECT outboxd.notify(?, ?, ?, dedup_key => ?)', topic, 'device-1', { text: 'Thank you' }.to_json, dedup_key])
    )
    # Any error but ActiveRecord::Rollback is raised again after the rollback.
    raise Undo if undo

    id
  end
end
checks.prove('insert') do |topic, dedup_key, undo|
  Order.transaction do
    Order.create!(item: topic)
    values = { topic: topic, recipient: 'device-1', payload: { text: 'Thank you' }, dedup_key: dedup_key }
    id = if dedup_key
           # ON CONFLICT DO NOTHING RETURNING "id": no row if the key is taken. create! would raise RecordNotUnique and
           # end the transaction, unless it stands in `transaction(requires_new: true)`.
           Notification.insert(values).rows.dig(0, 0)
         else
           Notification.create!(values).id # RETURNING "id"
         end
    raise Undo if undo

    id
  end
end
checks.end
