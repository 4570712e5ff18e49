// Sequelize 6 on node-pg.
//
//     DATABASE_URL=postgres://my_app@db/app node sequelize.mjs
import { DataTypes, QueryTypes, Sequelize } from 'sequelize';
import { Checks, Undo } from './checks.mjs';

const sequelize = new Sequelize(process.env.DATABASE_URL, { logging: false });

const id = { type: DataTypes.BIGINT, primaryKey: true, autoIncrement: true, autoIncrementIdentity: true };
const Order = sequelize.define(
  'Order',
  { id, item: DataTypes.TEXT },
  { tableName: 'orders', timestamps: false },
);
// The columns the app writes, and no others: timestamps would write createdAt.
const Notification = sequelize.define(
  'Notification',
  {
    id,
    topic: DataTypes.TEXT,
    recipient: DataTypes.TEXT,
    payload: DataTypes.JSONB,
    dedupKey: { type: DataTypes.TEXT, field: 'dedup_key' },
  },
  { schema: 'outboxd', tableName: 'notification_log', timestamps: false },
);

// Every call says `transaction`: without it, it takes another connection and is not part of it.
const orderByNotify = (topic, dedupKey, undo) =>
  sequelize.transaction(async (transaction) => {
    await Order.create({ item: topic }, { transaction });
    // `bind`, not `replacements`: the server gets parameters, and JSON needs no quoting.
    const [{ id }] = await sequelize.query('SELECT outboxd.notify($1, $2, $3, dedup_key => $4) AS id', {
      bind: [topic, 'device-1', JSON.stringify({ text: 'Thank you' }), dedupKey],
      type: QueryTypes.SELECT,
      transaction,
    });
    if (undo) throw new Undo();
    return id;
  });

const orderByInsert = (topic, dedupKey, undo) =>
  sequelize.transaction(async (transaction) => {
    await Order.create({ item: topic }, { transaction });
    // Without `returning` Sequelize asks for every column of the model, and the role may not read recipient and payload.
    // ignoreDuplicates: ON CONFLICT DO NOTHING; the id is null if the key is taken.
    const [row] = await Notification.bulkCreate(
      [{ topic, recipient: 'device-1', payload: { text: 'Thank you' }, dedupKey }],
      { ignoreDuplicates: true, returning: ['id'], transaction },
    );
    if (undo) throw new Undo();
    return row.id;
  });

const checks = new Checks('sequelize');
await checks.prove('notify', orderByNotify);
await checks.prove('insert', orderByInsert);
checks.end();
await sequelize.close();
