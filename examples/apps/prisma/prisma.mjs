// Prisma 7, which needs Node 20.19 or newer.
//
//     npx prisma generate
//     DATABASE_URL=postgres://my_app@db/app node prisma.mjs
import { PrismaPg } from '@prisma/adapter-pg';
import { Checks, Undo } from './checks.mjs';
import { PrismaClient } from './generated/index.js';

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });

// Every statement says `tx`: one that says `prisma` takes another connection and is not part of the transaction.
const orderByNotify = (topic, dedupKey, undo) =>
  prisma.$transaction(async (tx) => {
    await tx.order.create({ data: { item: topic } });
    const payload = JSON.stringify({ text: 'Thank you' });
    const [{ id }] = await tx.$queryRaw`
      SELECT outboxd.notify(${topic}, ${'device-1'}, ${payload}, dedup_key => ${dedupKey}) AS id`;
    if (undo) throw new Undo();
    return String(id);
  });

const orderByInsert = (topic, dedupKey, undo) =>
  prisma.$transaction(async (tx) => {
    await tx.order.create({ data: { item: topic } });
    // No row if the key is taken; `create` would end the transaction then (P2002). Without `select` all columns are asked
    // for and it is refused.
    const [row] = await tx.notification.createManyAndReturn({
      data: [{ topic, recipient: 'device-1', payload: { text: 'Thank you' }, dedupKey }],
      skipDuplicates: true,
      select: { id: true },
    });
    if (undo) throw new Undo();
    return row ? String(row.id) : null;
  });

const checks = new Checks('prisma');
await checks.prove('notify', orderByNotify);
await checks.prove('insert', orderByInsert);
checks.end();
await prisma.$disconnect();
