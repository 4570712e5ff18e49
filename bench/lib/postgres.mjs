// Databases, and the session of a system whose jobs are written with SQL.
import pg from "pg";
import { CHUNK } from "./jobs.mjs";

const server = () => `postgres://postgres@127.0.0.1:${process.env.PGPORT}`;

export const databaseUrl = (name) => `${server()}/${name}`;

/** One session. */
export async function connect(url) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    return client;
}

export async function createDatabase(name) {
    const admin = await connect(databaseUrl("postgres"));
    await admin.query(`CREATE DATABASE ${name}`);
    await admin.end();
}

const STATEMENTS = `
    SELECT regexp_replace(regexp_replace(query, '--[^\n]*', '', 'g'), '\\s+', ' ', 'g') AS query, calls::int, rows::int,
           round(total_exec_time::numeric, 1)::float AS total_ms, wal_bytes::float
      FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
     WHERE d.datname = current_database() ORDER BY total_exec_time DESC LIMIT 12`;

/**
 * A session with a system's database.
 *
 * `sql.add` writes one job with `sql.values(topic, recipient, n)`; `sql.preload` writes the jobs $1 to $2 of topic $3,
 * in turn for the recipients $4; `sql.left` says whether any job is left; `sql.before` runs before a preload.
 */
export async function openSession(url, sql) {
    const client = await connect(url);
    const one = async (text) => Object.values((await client.query(text)).rows[0])[0];
    return {
        add: (topic, recipient, n) =>
            client.query({ name: "add", text: sql.add, values: sql.values(topic, recipient, n) }),
        async preload(count, topic, recipients) {
            for (const statement of sql.before ?? []) await client.query(statement);
            // Now, so that none falls into what is measured: after one, each page is written whole once more.
            await client.query("CHECKPOINT");
            const before = await this.wal();
            for (let from = 1; from <= count; from += CHUNK) {
                await client.query(sql.preload, [from, Math.min(from + CHUNK - 1, count), topic, recipients]);
            }
            const written = (await this.wal()) - before;
            await client.query(`VACUUM ANALYZE ${sql.tables}`);
            return written;
        },
        left: () => one(sql.left),
        /** Bytes of WAL that the server has written so far. */
        wal: async () => Number(await one(`SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`)),
        forgetStatements: () => one("SELECT pg_stat_statements_reset()::text"),
        statements: async () => (await client.query(STATEMENTS)).rows,
        close: () => client.end(),
    };
}
