// Prints events as they come: LIVE_URL=ws://127.0.0.1:8080 LIVE_TOKEN=… node listen.mjs order
//
// A program of your own presents a token and needs no ticket. Needs npm's `ws` (npm install ws): the WebSocket that Node
// brings sends no headers.
import WebSocket from 'ws';

const url = process.env.LIVE_URL ?? 'ws://127.0.0.1:8080';
const headers = process.env.LIVE_TOKEN ? { Authorization: `Bearer ${process.env.LIVE_TOKEN}` } : {};
const topics = process.argv.slice(2);
const positions = new Map();
let failures = 0;

function connect() {
  const query = new URLSearchParams();
  for (const topic of topics) {
    query.append('topic', topic);
    if (positions.has(topic)) query.append('after', positions.get(topic));
  }
  const socket = new WebSocket(`${url}/v1/live?${query}`, { headers });
  socket.on('message', (data) => {
    const message = JSON.parse(data);
    for (const [topic, position] of Object.entries(message.positions ?? {})) positions.set(topic, position);
    if (message.type === 'ready') {
      failures = 0;
      console.error(`connected to ${url}`);
    }
    if (message.type === 'gap') console.log(`gap in ${message.topic} after ${message.after}`);
    if (message.type !== 'event') return;
    positions.set(message.topic, message.position);
    console.log(`${message.topic} ${message.position} ${message.key} ${JSON.stringify(message.payload)}`);
  });
  // A refusal does not pass by itself: a wrong token, or a topic that it may not read.
  socket.on('unexpected-response', (_, response) => {
    console.error(`${url} answers ${response.statusCode} ${response.statusMessage}`);
    response.on('data', (detail) => console.error(detail.toString()));
    if (response.statusCode < 500) process.exitCode = 1;
    else response.on('end', again);
  });
  socket.on('error', (error) => console.error(error.message));
  socket.on('close', (code, reason) => {
    console.error(`closed: ${code} ${reason}`);
    again();
  });
}

function again() {
  setTimeout(connect, Math.min(30_000, 500 * 2 ** failures++) * (0.5 + Math.random() / 2));
}

connect();
