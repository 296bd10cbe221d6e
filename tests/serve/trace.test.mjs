// `stemma trace record`: what a server was asked, in a file that `stemma replay` reads; and all that can go wrong.
//
// Made models have a token for every byte, so lengths in tokens can be counted in texts.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { before } from 'node:test';
import {
  assistant, ended, endless, environment, eventually, inFolder, program, roomForEndless, run, serve, system, test, user,
} from './support.mjs';

let server;
let serial = 0;
before(async () => {
  server = await serve('llama', roomForEndless);
});

// A recording under way: its file, and what it says.
async function record(url, flags = [], { env = {} } = {}) {
  const file = inFolder(`${(serial += 1)}.jsonl`);
  const child = spawn(program, ['trace', 'record', url, '--out', file, ...flags], {
    env: environment(env),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const recording = { child, file, log: '', lines: () => readFileSync(file, 'utf8').split('\n').slice(0, -1) };
  child.stderr.setEncoding('utf8').on('data', (text) => (recording.log += text));
  recording.over = () => ended(child);
  recording.stop = (signal = 'SIGINT') => {
    child.kill(signal);
    return ended(child);
  };
  assert.ok(await eventually(() => (existsSync(file) && recording.lines().length > 0) || child.exitCode !== null));
  return recording;
}
const requests = (lines) => lines.map((line) => JSON.parse(line)).filter((line) => line.path !== undefined);

function replayed(file, ...flags) {
  const done = run(['replay', file, '--policy', 'lru', '--json', ...flags]);
  assert.equal(done.status, 0, done.stderr);
  return JSON.parse(done.stdout);
}

test('two conversations under one system prompt: replayed, they find what they found', async () => {
  const rules = system('You are a careful assistant who answers in short sentences. '.repeat(8));
  const recording = await record(server.url, ['--block-tokens', '32']);
  // What was asked, as whole blocks; and what of it was asked before, which a large cache finds.
  const seen = new Set();
  let references = 0;
  let hits = 0;
  const prompts = [];
  const ask = async (talk, key) => {
    const { prompt } = (await server.post('/apply-template', { messages: talk })).json;
    const tokens = await server.tokens(prompt, { add_special: false });
    const answer = await server.chat(talk, { prompt_cache_key: key, max_tokens: 10 });
    assert.equal(answer.prompt, tokens.length);
    prompts.push(answer);
    for (let end = 32; end <= tokens.length; end += 32) {
      const prefix = tokens.slice(0, end).join(' ');
      references += 1;
      hits += seen.has(prefix) ? 1 : 0;
      seen.add(prefix);
    }
    talk.push(assistant(answer.text), user('And what then?'));
  };
  const ann = [rules, user('Good morning, what is new?')];
  const ben = [rules, user('Where is the library?')];
  for (let turn = 0; turn < 3; turn += 1) {
    await ask(ann, 'ann-3f9a');
    await ask(ben, 'ben-77c1');
  }
  assert.equal(await recording.stop(), 0, recording.log);
  assert.match(recording.log, /6 requests, \d+ different blocks\n/);

  const lines = recording.lines();
  assert.deepEqual(JSON.parse(lines[0]), { stemma_trace: 1, block_tokens: 32 });
  assert.equal(lines.at(-1), '{"end":6}');
  const all = requests(lines);
  assert.deepEqual(all.map((each) => each.input_length), prompts.map((each) => each.prompt));
  assert.deepEqual(all.map((each) => each.output_length), prompts.map((each) => each.generated));
  assert.deepEqual(all.map((each) => [each.session_id, each.turn]), [[1, 1], [2, 1], [1, 2], [2, 2], [1, 3], [2, 3]]);
  const words = { stop: 'end_turn', length: 'length' };
  assert.deepEqual(all.map((each) => each.finish_reason), prompts.map((each) => words[each.finish]));
  // No names, no text; nothing but what the format says.
  assert.doesNotMatch(lines.join('\n'), /ann|ben|careful|library/);
  const known = ['timestamp', 'input_length', 'output_length', 'session_id', 'turn', 'finish_reason', 'path'];
  for (const each of all) assert.deepEqual(Object.keys(each), known);

  assert.ok(hits > references / 2, `${hits} of ${references}: the test says little`);
  const [large] = replayed(recording.file, '--capacity', '1000');
  assert.deepEqual([large.requests, large.block_refs, large.block_hits], [6, references, hits]);
});

test('Ctrl-C and SIGTERM leave a whole trace, also of what is still under way', async () => {
  for (const signal of ['SIGINT', 'SIGTERM']) {
    const recording = await record(server.url, ['--block-tokens', '16']);
    const leave = new AbortController();
    const long = fetch(`${server.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify({ prompt: 'x'.repeat(100), ...endless }),
      signal: leave.signal,
    });
    assert.ok(await eventually(async () => (await server.get('/slots')).json.some((slot) => slot.is_processing)));
    await server.post('/v1/completions', { prompt: 'y'.repeat(100), max_tokens: 1 });
    assert.equal(await recording.stop(signal), 0, recording.log);
    const lines = recording.lines();
    assert.equal(lines.at(-1), '{"end":2}', recording.log);
    const [first, second] = requests(lines);
    assert.deepEqual([first.output_length, first.finish_reason], [undefined, undefined]);
    assert.deepEqual([second.output_length, second.finish_reason], [1, 'length']);
    assert.equal(replayed(recording.file, '--capacity', '100')[0].requests, 2);
    leave.abort();
    await assert.rejects(long);
    assert.ok(await server.idle());
  }
});

test('--seconds ends it by itself; nothing was asked, and it is a whole file', async () => {
  const recording = await record(server.url, ['--seconds', '1']);
  assert.equal(await recording.over(), 0, recording.log);
  assert.deepEqual(recording.lines(), ['{"stemma_trace":1,"block_tokens":512}', '{"end":0}']);
});

test('a client that goes is recorded as cancelled', async () => {
  const recording = await record(server.url);
  const gone = new AbortController();
  const reply = await fetch(`${server.url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ prompt: 'Once', ...endless, stream: true }),
    signal: gone.signal,
  });
  await reply.body.getReader().read();
  gone.abort();
  assert.ok(await eventually(() => requests(recording.lines()).length === 1));
  const [request] = requests(recording.lines());
  assert.equal(request.finish_reason, 'cancelled');
  assert.ok(request.output_length >= 1 && request.output_length < endless.max_tokens, JSON.stringify(request));
  assert.equal(await recording.stop(), 0);
});

test('a server that ends: its recordings end as whole files', async () => {
  const other = await serve('llama', [...roomForEndless, '--drain-seconds', '0']);
  const recording = await record(other.url);
  const cut = other.post('/v1/completions', { prompt: 'Once', ...endless });
  assert.ok(await eventually(async () => (await other.get('/slots')).json.some((slot) => slot.is_processing)));
  assert.equal(await other.stop(), 0, other.log);
  assert.equal((await cut).status, 503);
  assert.equal(await recording.over(), 0, recording.log);
  assert.equal(recording.lines().at(-1), '{"end":1}');
  assert.equal(requests(recording.lines())[0].finish_reason, 'cancelled');
  assert.match(other.log, /recording 1 begins.*\n(.*\n)*.*recording 1 ended, 1 requests: the server is ending/);
});

test('a server that dies: what came before is a whole trace, and the status says so', async () => {
  const other = await serve('llama');
  const recording = await record(other.url);
  await other.post('/v1/completions', { prompt: 'Once', max_tokens: 1 });
  assert.ok(await eventually(() => recording.lines().length === 2));
  other.child.kill('SIGKILL');
  assert.equal(await recording.over(), 1);
  assert.match(recording.log, /stemma trace: the connection to \S+ broke; .*whole trace\n$/);
  assert.equal(recording.lines().at(-1), '{"end":1}');
});

test('keys: from a file or the variable; a wrong one is named', async () => {
  writeFileSync(inFolder('key'), 'secret\n');
  writeFileSync(inFolder('wrong'), 'guess\n');
  const guarded = await serve('llama', ['--api-key-file', inFolder('key')]);
  for (const [flags, env] of [
    [['--api-key-file', inFolder('key')], {}],
    [[], { STEMMA_API_KEY: 'secret' }],
  ]) {
    const recording = await record(guarded.url, flags, { env });
    assert.equal(await recording.stop(), 0, recording.log);
    assert.deepEqual(recording.lines().length, 2);
  }
  const refused = (flags, says) => {
    const done = run(['trace', 'record', guarded.url, ...flags]);
    assert.equal(done.status, 1);
    assert.match(done.stderr, says);
    assert.equal(done.stdout, '');
  };
  refused([], /^stemma trace: \S+ wants a key: --api-key-file FILE, or the variable STEMMA_API_KEY\n$/);
  refused(['--api-key-file', inFolder('wrong')], /does not take this key/);
  refused(['--api-key-file', '/nowhere/key'], /cannot read \/nowhere\/key/);
});

// A server that says this and closes, or stays.
async function impostor(t, answer) {
  const listening = net.createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => answer(socket));
  });
  await new Promise((done) => listening.listen(0, '127.0.0.1', done));
  t.after(() => listening.close());
  return `http://127.0.0.1:${listening.address().port}`;
}

test('what is no stemma server is told from one, in one line', async (t) => {
  const fails = async (url, says, flags = []) => {
    const file = inFolder(`${(serial += 1)}.jsonl`);
    const child = spawn(program, ['trace', 'record', url, '--out', file, ...flags], { env: environment() });
    let log = '';
    child.stderr.setEncoding('utf8').on('data', (text) => (log += text));
    assert.equal(await ended(child), 1, log);
    assert.match(log, says);
    return file;
  };
  const free = net.createServer();
  await new Promise((done) => free.listen(0, '127.0.0.1', done));
  const nobody = `http://127.0.0.1:${free.address().port}`;
  await new Promise((done) => free.close(done));
  const untouched = await fails(nobody, /^stemma trace: cannot reach 127\.0\.0\.1:\d+: Connection refused\n$/);
  assert.equal(existsSync(untouched), false);
  await fails('http://no-such-host.invalid:80', /no host 'no-such-host\.invalid'/);

  const other = http.createServer((_, reply) => reply.writeHead(404).end('no'));
  await new Promise((done) => other.listen(0, '127.0.0.1', done));
  t.after(() => other.close());
  await fails(`http://127.0.0.1:${other.address().port}`, /no \/cache\/trace: it is no stemma server, or an older one/);
  const head = (type) => `HTTP/1.1 200 OK\r\nContent-Type: ${type}\r\nConnection: close\r\n\r\n`;
  await fails(await impostor(t, (s) => s.end(`${head('text/html')}<p>`)), /no stemma server/);
  await fails(await impostor(t, (s) => s.end('SSH-2.0-hello\r\n\r\n')), /not answer like an HTTP server/);
  await fails(await impostor(t, (s) => s.end()), /not answer like an HTTP server/);
  await fails(await impostor(t, (s) => s.end(`${head('application/jsonl')}{"a":1}\n`)), /does not begin like a trace/);
  await fails(await impostor(t, (s) => s.end(`${head('application/jsonl')}hello\n`)), /no trace: a line of it is no JSON/);
  await fails(server.url, /block_tokens is a whole number from 16 to 1024/, ['--block-tokens', '8']);
  const nowhere = run(['trace', 'record', server.url, '--out', '/nowhere/file']);
  assert.equal(nowhere.status, 1);
  assert.match(nowhere.stderr, /cannot write '\/nowhere\/file': No such file/);
});

test('a stream in pieces of one byte, cut off in the middle of a line: the lines before it', async (t) => {
  const lines = '{"stemma_trace":1,"block_tokens":512}\n\n{"timestamp":0,"input_length":1024,"path":[0,2]}\n{"times';
  const url = await impostor(t, async (socket) => {
    socket.write('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-type: application/jsonl\r\n');
    socket.write('TRANSFER-ENCODING: chunked\r\n\r\n');
    socket.setNoDelay(true);
    const bytes = [...lines].map((byte) => `1\r\n${byte}\r\n`).join('');
    for (const byte of bytes) {
      socket.write(byte);
      if (Math.random() < 0.1) await new Promise((wake) => setImmediate(wake));
    }
    socket.destroy();
  });
  const recording = await record(url);
  assert.equal(await recording.over(), 1);
  assert.deepEqual(recording.lines(), [...lines.split('\n').filter((_, i) => i === 0 || i === 2), '{"end":1}']);
});

test('IPv6, a path in front, and /v1 behind', async () => {
  const six = await serve('llama', ['--host', '::1']);
  assert.match(six.url, /^http:\/\/\[::1\]:/);
  const recording = await record(`${six.url}/v1/`);
  assert.equal(await recording.stop(), 0, recording.log);
  const prefixed = run(['trace', 'record', `${server.url}/elsewhere`]);
  assert.match(prefixed.stderr, /no \/cache\/trace/);
});

for (const [what, words, says] of [
  ['no server', ['record'], /the server is missing/],
  ['https', ['record', 'https://example.org'], /https is not supported/],
  ['no scheme', ['record', '127.0.0.1:8080'], /no address like http:\/\/127\.0\.0\.1:8080/],
  ['a port that is none', ['record', 'http://h:99999'], /'99999' is no port/],
  ['no host', ['record', 'http://:80'], /names no host/],
  ['an open bracket', ['record', 'http://[::1'], /'\]' is missing/],
  ['a user', ['record', 'http://a@h'], /names of users/],
  ['a time that is none', ['record', 'http://h', '--seconds', '0'], /--seconds needs a whole number/],
  ['a time for something else', ['make', 'chat', '--seconds', '5'], /are for record/],
]) {
  test(`wrong arguments, ${what}: one line, status 2`, () => {
    const done = run(['trace', ...words]);
    assert.equal(done.status, 2, done.stderr);
    assert.match(done.stderr, says);
    assert.match(done.stderr, /^[^\n]*\n$/);
  });
}

test('a full disk is an error', () => {
  const done = run(['trace', 'record', server.url, '--seconds', '1', '--out', '/dev/full']);
  assert.equal(done.status, 1);
  assert.match(done.stderr, /cannot write '\/dev\/full': No space left on device; it lacks its end/);
});

test('a fifth recording is told to wait', async () => {
  const busy = await serve('llama');
  const four = [];
  for (let i = 0; i < 4; i += 1) four.push(await record(busy.url));
  const done = run(['trace', 'record', busy.url]);
  assert.equal(done.status, 1);
  assert.match(done.stderr, /answers 503: as many recordings are under way as there may be/);
  four[0].child.kill('SIGKILL');
  await four[0].over();
  assert.ok(await eventually(async () => {
    const next = await record(busy.url, ['--seconds', '1']);
    return (await next.over()) === 0;
  }));
  for (const each of four.slice(1)) assert.equal(await each.stop(), 0);
});
