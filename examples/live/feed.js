// Events as they come, through restarts and lost connections. `ticket` asks your own backend for one.
//
//   const feed = new Feed('wss://outboxd.example', { topics: ['order'], ticket: () => fetch('/live-ticket').then((r) => r.text()) });
//   feed.addEventListener('event', ({ detail }) => show(detail));
//   feed.addEventListener('gap', () => reload());
export class Feed extends EventTarget {
  #positions = new Map();
  #failures = 0;
  #socket;
  #isClosed = false;

  constructor(url, { topics, key, ticket }) {
    super();
    Object.assign(this, { url, topics, key, ticket });
    this.#connect();
  }

  close() {
    this.#isClosed = true;
    this.#socket?.close();
  }

  async #connect() {
    try {
      const query = new URLSearchParams();
      for (const topic of this.topics) {
        query.append('topic', topic);
        // Belongs to the topic before it.
        if (this.#positions.has(topic)) query.append('after', this.#positions.get(topic));
      }
      if (this.key) query.append('key', this.key);
      const ticket = await this.ticket();
      this.#socket = new WebSocket(`${this.url}/v1/live?${query}`, ['outboxd.v1', `ticket.${ticket}`]);
      this.#socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
      this.#socket.onclose = () => this.#retry();
    } catch {
      this.#retry();
    }
  }

  #receive(message) {
    if (message.type === 'event') this.#positions.set(message.topic, message.position);
    for (const [topic, position] of Object.entries(message.positions ?? {})) this.#positions.set(topic, position);
    if (message.type === 'ready') this.#failures = 0;
    this.dispatchEvent(new CustomEvent(message.type, { detail: message }));
  }

  #retry() {
    if (this.#isClosed) return;
    // Thousands of clients lose an instance at the same time; they must not come back at the same time.
    const wait = Math.min(30_000, 500 * 2 ** this.#failures++) * (0.5 + Math.random() / 2);
    setTimeout(() => this.#connect(), wait);
  }
}
