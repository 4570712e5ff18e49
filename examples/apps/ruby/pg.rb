# ruby-pg without an ORM.
#
#     DATABASE_URL=postgres://my_app@db/app ruby pg.rb
require 'json'
require 'pg'
require_relative 'checks'

# exec_params prepares nothing that stays: it works through PgBouncer in transaction mode. `prepare` does not before
# PgBouncer 1.21.
connection = PG.connect(ENV.fetch('DATABASE_URL'))
PAYLOAD = JSON.generate(text: 'Thank you')

checks = Checks.new('ruby-pg')
checks.prove('notify') do |topic, dedup_key, undo|
  connection.transaction do
    connection.exec_params('INSERT INTO orders (item) VALUES ($1)', [topic])
    # Parameters are text without a type, which notify() takes.
    answer = connection.exec_params('SELECT outboxd.notify($1, $2, $3, dedup_key => $4)', [topic, 'device-1', PAYLOAD, dedup_key])
    raise Undo if undo

    answer.getvalue(0, 0).to_i
  end
end
checks.prove('insert') do |topic, dedup_key, undo|
  connection.transaction do
    connection.exec_params('INSERT INTO orders (item) VALUES ($1)', [topic])
    # No row if the key is taken. DO NOTHING names no columns: the role may not read dedup_key.
    answer = connection.exec_params(<<~SQL, [topic, 'device-1', PAYLOAD, dedup_key])
      INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key) VALUES ($1, $2, $3, $4)
      ON CONFLICT DO NOTHING RETURNING id
    SQL
    raise Undo if undo

    answer.first && answer.first['id'].to_i
  end
end
connection.close
checks.end
