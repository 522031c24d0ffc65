// The way to the server: requests with the key, and one stream of events, with polling where there is none.
// The key is in this module and nowhere else: it is gone when the page is.

const POLL_MS = 5_000;
const SILENCE_MS = 20_000;
const AGAIN_MS = [500, 1_000, 2_000, 5_000, 10_000];
const STREAM_AGAIN_MS = 60_000;

let key = null;
let askForKey = null;
let asking = null;
let declined = null;

/** `ask(reason)` resolves to a key, or null where the user gives none; then `tell(true)`, and nobody is asked again
 * until an action needs a key, or `offerKey` is called. */
export const onKeyWanted = (ask, tell) => {
  askForKey = ask;
  declined = { is: false, tell };
};

export const offerKey = () => wantKey(null);

export class Problem extends Error {
  constructor(status, detail, hint) {
    super(detail);
    this.status = status;
    this.hint = hint;
  }
}

const wantKey = (reason) => {
  asking ??= askForKey(reason).then((given) => {
    key = given ?? key;
    asking = null;
    declined.is = given === null;
    declined.tell(declined.is);
    return given;
  });
  return asking;
};

const send = async (path, options = {}) => {
  for (;;) {
    const used = key;
    const headers = { ...(options.headers ?? {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
    if (answer.ok) return answer;
    const problem = await answer.json().catch(() => ({}));
    if (used !== key) continue; // another request got a key meanwhile
    const unknown = answer.status === 401;
    const tooLittle = answer.status === 403 && used !== null;
    if ((unknown || tooLittle) && (options.method || !declined.is)) {
      const reason = tooLittle ? `${problem.detail}.` : used ? "That key isn't valid." : null;
      if (await wantKey(reason)) continue;
    }
    throw new Problem(answer.status, problem.detail ?? `the server answered ${answer.status}`, problem.hint ?? "");
  }
};

export const get = async (path) => (await send(path)).json();

export const post = async (path, body = {}) =>
  (await send(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  })).json();

export const path = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;

/** Events as they are read from a stream. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
}

/** Shows overviews until the page is gone. `show(overview)`; `tell(state, detail)` with live, polling, paused,
 * disconnected. */
export class Live {
  constructor(show, tell) {
    this.show = show;
    this.tell = tell;
    this.failures = 0;
    this.pollUntil = 0;
    this.stopped = null;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.pause() : this.go()));
    addEventListener("pagehide", () => this.pause());
    addEventListener("pageshow", (event) => event.persisted && this.go());
    if (!document.hidden) this.go();
  }

  pause() {
    this.stopped?.abort();
    this.stopped = null;
    this.tell("paused");
  }

  async go() {
    if (this.stopped) return;
    const stopped = (this.stopped = new AbortController());
    while (!stopped.signal.aborted) {
      try {
        if (Date.now() < this.pollUntil) await this.poll(stopped);
        else await this.listen(stopped);
      } catch (error) {
        if (stopped.signal.aborted) return;
        await this.failed(error, stopped);
      }
    }
  }

  async listen(stopped) {
    const quiet = new AbortController();
    const signal = AbortSignal.any([stopped.signal, quiet.signal]);
    let timer = null;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => quiet.abort(), SILENCE_MS);
    };
    try {
      const answer = await send("/v1/overview/events", { signal });
      heard();
      for await (const overview of events(answer.body)) {
        heard();
        this.arrived("live", overview);
      }
      throw new Problem(0, "the stream has ended", "");
    } finally {
      clearTimeout(timer);
      quiet.abort();
    }
  }

  async poll(stopped) {
    const answer = await send("/v1/overview", { signal: stopped.signal });
    this.arrived("polling", await answer.json());
    await this.wait(POLL_MS, stopped);
  }

  arrived(state, overview) {
    this.failures = 0;
    this.tell(state);
    this.show(overview);
  }

  async failed(error, stopped) {
    // Too many listen, or something on the way keeps the stream back.
    if (error.status === 503 || error.name === "AbortError") this.pollUntil = Date.now() + STREAM_AGAIN_MS;
    const pause = AGAIN_MS[Math.min(this.failures, AGAIN_MS.length - 1)];
    this.failures += 1;
    if (this.failures > 1 || error.status) this.tell("disconnected", error instanceof Problem ? error.message : "The server can't be reached");
    await this.wait(pause, stopped);
  }

  wait(milliseconds, stopped) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      stopped.signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
    });
  }
}
