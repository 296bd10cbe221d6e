// What the tests of the server share: models, servers that are sure to end, and requests.
//
// STEMMA_PROGRAM names the program; every test file starts its own servers on ports of their own choice,
// keeps its files in a folder of its own, and leaves neither behind.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import nodeTest, { after } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const program = path.resolve(root, process.env.STEMMA_PROGRAM ?? 'build-dev/stemma');

// Busy machines take their time, and sanitized programs more; what comes soon does not wait for it.
export const patience = Number(process.env.STEMMA_TEST_PATIENCE ?? 4);
export const test = (name, run) => nodeTest(name, { timeout: 60_000 * patience }, run);

export const folder = mkdtempSync(path.join(os.tmpdir(), 'stemma-serve-'));
export const inFolder = (name) => path.join(folder, name);
const running = new Set();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});
after(async () => {
  for (const child of [...running]) await end(child);
});

// Settings of whoever runs the tests are not the server's.
export function environment(more = {}) {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('STEMMA_'));
  return { ...Object.fromEntries(kept), ...more };
}

// Runs the program to its end: { status, stdout, stderr }.
export function run(words, { env = {}, timeout = 30_000 * patience } = {}) {
  const done = spawnSync(program, words, { env: environment(env), encoding: 'utf8', timeout });
  assert.equal(done.error, undefined, `stemma ${words.join(' ')}: ${done.error}`);
  return done;
}

export const kinds = ['llama', 'window', 'recurrent', 'hybrid'];

// A model file of a kind; the same one when asked again.
const models = new Map();
export function model(kind = 'llama') {
  if (!models.has(kind)) {
    const file = inFolder(`${kind}.gguf`);
    const small = ['--layers', '2', '--dim', '64', '--heads', '4', '--kv-heads', '2'];
    const made = run(['make-model', '--arch', kind, ...small, '--window', '64', '--out', file]);
    assert.equal(made.status, 0, made.stderr);
    models.set(kind, file);
  }
  return models.get(kind);
}

// Resolves to true once `done` says so.
export async function eventually(done, seconds = 10) {
  for (const until = Date.now() + seconds * 1000 * patience; Date.now() < until; ) {
    if (await done()) return true;
    await new Promise((wake) => setTimeout(wake, 20));
  }
  return false;
}

// The process has ended, and all that it said has been read, which may take longer: its exit status, or the signal that
// ended it.
export function ended(child) {
  const status = () => child.exitCode ?? child.signalCode;
  if (status() !== null && child.stdio.every((pipe) => pipe === null || pipe.closed)) return Promise.resolve(status());
  return new Promise((tell) => child.once('close', () => tell(status())));
}

// Asks it to end, and makes it if it does not.
export async function end(child) {
  child.kill('SIGTERM');
  const last = setTimeout(() => child.kill('SIGKILL'), 15_000 * patience);
  const status = await ended(child);
  clearTimeout(last);
  running.delete(child);
  return status;
}

// Arithmetic so precise that an answer computed another way (another batch, other parts reused) is the same
// unless it is wrong; with sixteen bits or flash attention, one in some dozens is decided by rounding.
export const exact = ['--flash-attention', 'off', '--k-type', 'f32', '--v-type', 'f32'];

// Starts a server and waits until it says that it is ready. It takes from its cache what it assumes to be faster than
// computing, however fast this machine is; one that is to `measure` decides by what it measures.
export async function serve(kind, flags = [], { env = {}, measure = false } = {}) {
  const words = ['serve', '--threads', '1', '--port', '0'];
  if (kind !== null) words.push('--model', model(kind));
  const child = spawn(program, [...words, ...flags], {
    env: environment({ ...(!measure && { STEMMA_TEST_STILL_CLOCK: '1' }), ...env }),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  running.add(child);
  const server = { child, log: '' };
  child.stderr.setEncoding('utf8').on('data', (text) => (server.log += text));
  const ready = await eventually(() => / ready .* url=\S+\n/.test(server.log) || child.exitCode !== null, 30);
  assert.ok(ready && child.exitCode === null, `the server did not start: ${server.log}`);
  server.url = server.log.match(/ url=(\S+)\n/)[1];
  server.stop = () => end(child);
  server.get = (where, headers = {}) => call(server.url + where, { headers });
  server.post = (where, body, headers = {}) =>
    call(server.url + where, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
    });
  // A conversation: strings are the user's and the assistant's in turn, behind the system's.
  server.chat = async (messages, options = {}) => {
    const answer = await server.post('/v1/chat/completions', { messages, max_tokens: 24, temperature: 0, ...options });
    assert.equal(answer.status, 200, answer.text);
    const { choices, usage, stemma } = answer.json;
    return {
      text: choices[0].message.content,
      finish: choices[0].finish_reason,
      prompt: usage.prompt_tokens,
      generated: usage.completion_tokens,
      cached: usage.prompt_tokens_details.cached_tokens,
      choices,
      stemma,
    };
  };
  server.tokens = async (content, options = {}) => {
    const answer = await server.post('/tokenize', { content, ...options });
    assert.equal(answer.status, 200, answer.text);
    return answer.json.tokens;
  };
  // Nothing is under way, and nobody holds a sequence.
  server.idle = () =>
    eventually(async () => {
      const slots = (await server.get('/slots')).json;
      return slots.every((slot) => !slot.is_processing);
    });
  server.metric = async (name) => {
    const line = (await server.get('/metrics')).text.split('\n').find((each) => each.startsWith(`${name} `));
    assert.ok(line, `no ${name} in /metrics`);
    return Number(line.split(' ').at(-1));
  };
  return server;
}

async function call(url, options) {
  const reply = await fetch(url, { ...options, signal: AbortSignal.timeout(30_000 * patience) });
  const text = await reply.text();
  const answer = { status: reply.status, headers: reply.headers, text };
  try {
    answer.json = JSON.parse(text);
  } catch {
    answer.json = undefined;
  }
  return answer;
}

// Answers that must not end by themselves while a test lasts, however slow the machine is: what their server is
// started with, and what is asked for.
export const roomForEndless = ['--context', '65536'];
export const endless = { ignore_eos: true, max_tokens: 60_000 };

export const system = (content) => ({ role: 'system', content });
export const user = (content) => ({ role: 'user', content });
export const assistant = (content) => ({ role: 'assistant', content });
