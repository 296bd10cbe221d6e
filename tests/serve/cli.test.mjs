// `stemma serve` as its operator sees it: settings, what goes wrong at the start, and how it ends.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, constants, openSync, readFileSync, readSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { after } from 'node:test';
import { ended, endless, environment, eventually, inFolder, model, program, roomForEndless, run, serve, test, user } from './support.mjs';

// Ends with the status and one line that says why.
function fails(words, status, says, options) {
  const done = run(['serve', ...words], options);
  assert.equal(done.status, status, done.stderr);
  assert.equal(done.stdout, '');
  assert.match(done.stderr, /^stemma serve: [^\n]+\n$/);
  assert.match(done.stderr, says);
}
const file = (name, contents) => {
  writeFileSync(inFolder(name), contents);
  return inFolder(name);
};

test('--help: teaches what there is', () => {
  const { status, stdout, stderr } = run(['serve', '--help']);
  assert.deepEqual([status, stderr], [0, '']);
  for (const word of [
    '--model', '--port', '--host', '--context', '--sequences', '--threads', '--reuse', '--saved-bytes',
    '--api-key-file', '--chat-template', '--drain-seconds', '--config', 'STEMMA_SAVED_BYTES', 'TOML', 'curl ',
    '/metrics', 'cached_tokens', 'SIGTERM', 'exit status',
  ]) {
    assert.ok(stdout.includes(word), `${word} is not in --help`);
  }
  assert.ok(stdout.split('\n').every((line) => line.length <= 100), 'a line is too long to read');
  assert.match(run(['--help']).stdout, /serve/);
});

for (const [what, words, says] of [
  ['no model', [], /--model FILE/],
  ['a flag there is not', ['--sessions', '4'], /--sessions.*--help/],
  ['a word that is no flag', ['model.gguf'], /model\.gguf/],
  ['a flag without its value', ['--port'], /--port needs a value/],
  ['a port that is none', ['--port', '99999'], /--port.*65535.*99999/],
  ['a number that is none', ['--context', 'many'], /--context.*many/],
  ['too many sequences', ['--sequences', '1000'], /--sequences.*255/],
  ['a size that is none', ['--saved-bytes', '2GB2'], /--saved-bytes.*2GiB/],
  ['a share that is none', ['--checkpoint-share', '1.5'], /--checkpoint-share.*0 to 1/],
  ['a switch that is neither', ['--quiet', 'perhaps'], /--quiet.*on or off/],
  ['a kind of reuse there is not', ['--reuse', 'some'], /--reuse.*everything, live, saved or disabled/],
  ['a policy there is not', ['--policy', 'mru'], /--policy.*adaptive.*lru.*gdsf.*mru/],
  ['a type of K there is not', ['--k-type', 'f64'], /--k-type.*f16.*f64/],
  ['a type of V there is not', ['--v-type', 'q9'], /--v-type.*f16.*q9/],
  ['segments that are no power of two', ['--segment-tokens', '48'], /--segment-tokens.*power of two.*48/],
  ['an adapter times no number', ['--model', 'x', '--adapter', 'lora.gguf:nan'], /--adapter lora\.gguf:nan.*scale/],
  ['a host that is empty', ['--host', ''], /--host.*not empty/],
  ['a key that is empty', ['--api-key='], /--api-key.*not empty/],
  ['a head of no bytes', ['--header-bytes', '0'], /--header-bytes.*1KiB/],
  ['a folder of settings', ['--config', '/'], /cannot read \//],
  ['a file of settings that is not there', ['--config', '/nowhere/stemma.toml'], /\/nowhere\/stemma\.toml/],
]) {
  test(`wrong settings, ${what}: one line, status 2`, () => fails(words, 2, says));
}

test('wrong settings in a file or a variable: where they are, status 2', () => {
  fails(['--config', file('a.toml', 'port = 8080\nprot = 1\n')], 2, /a\.toml.*prot/);
  fails(['--config', file('b.toml', 'port = "many"\n')], 2, /b\.toml.*port.*many/);
  fails(['--config', file('c.toml', 'port = \n')], 2, /c\.toml, line 1/);
  fails(['--config', file('d.toml', '[server]\nport = 1\n')], 2, /d\.toml.*server/);
  fails([], 2, /STEMMA_PORT.*many/, { env: { STEMMA_PORT: 'many' } });
});

test('a model file that is none: one line that says why, status 1', () => {
  const whole = readFileSync(model('llama'));
  const start = (path) => ['--port', '0', '--threads', '1', '--model', path];
  fails(start('/nowhere/model.gguf'), 1, /\/nowhere\/model\.gguf.*No such file/);
  fails(start(inFolder('.')), 1, /not a file/);
  fails(start(file('empty.gguf', '')), 1, /empty\.gguf.*magic/);
  fails(start(file('noise.gguf', randomBytes(5000))), 1, /noise\.gguf.*magic/);
  fails(start(file('text.gguf', 'not a model\n'.repeat(100))), 1, /text\.gguf.*magic/);
  fails(start(file('head.gguf', whole.subarray(0, 1000))), 1, /head\.gguf.*read/);
  fails(start(file('half.gguf', whole.subarray(0, whole.length / 2))), 1, /half\.gguf.*(corrupt|incomplete)/);
  const broken = Buffer.from(whole);
  broken.write('lemma', broken.indexOf('llama')); // An architecture that nobody has.
  fails(start(file('lemma.gguf', broken)), 1, /lemma\.gguf.*lemma/);
});

test('other files that are not there: one line, status 1', () => {
  const start = ['--port', '0', '--threads', '1', '--model', model('llama')];
  fails([...start, '--api-key-file', '/nowhere/key'], 1, /\/nowhere\/key/);
  fails([...start, '--api-key-file', file('no.key', '\n')], 1, /no\.key/);
  fails([...start, '--chat-template', '/nowhere/chat.jinja'], 1, /\/nowhere\/chat\.jinja/);
  fails([...start, '--chat-template', file('bad.jinja', '{% if %}')], 1, /--chat-template/);
  fails([...start, '--adapter', '/nowhere/lora.gguf'], 1, /\/nowhere\/lora\.gguf/);
  fails([...start, '--adapter', model('llama')], 1, /adapter.*llama\.gguf/);
});

test('a port that is taken, a host that is not ours: one line, status 1', async () => {
  const other = net.createServer();
  await new Promise((done) => other.listen(0, '127.0.0.1', done));
  const start = ['--threads', '1', '--model', model('llama')];
  fails([...start, '--port', String(other.address().port)], 1, /127\.0\.0\.1:\d+.*in use/);
  other.close();
  fails([...start, '--port', '0', '--host', '192.0.2.1'], 1, /192\.0\.2\.1/);
});

test('flags count before variables, those before the file', async () => {
  const settings = file('stemma.toml', `
model = "${model('llama')}"
alias = "of the file"
sequences = 2
context = 512
saved_bytes = "16MiB"
vllm-metrics = true
`);
  const context = async (server) => (await server.get('/props')).json.default_generation_settings.n_ctx;
  const slots = async (server) => (await server.get('/slots')).json.length;
  const name = async (server) => (await server.get('/v1/models')).json.data[0].id;

  const alone = await serve(null, ['--config', settings]);
  assert.deepEqual([await name(alone), await slots(alone), await context(alone)], ['of the file', 2, 512]);
  assert.match(alone.log, /saved_bytes=16777216/);
  assert.match((await alone.get('/metrics')).text, /^vllm:/m);
  await alone.stop();

  const env = { STEMMA_CONFIG: settings, STEMMA_ALIAS: 'of a variable', STEMMA_SEQUENCES: '3' };
  const both = await serve(null, [], { env });
  assert.deepEqual([await name(both), await slots(both), await context(both)], ['of a variable', 3, 512]);
  await both.stop();

  const all = await serve(null, ['--alias', 'of a flag', '--vllm-metrics=off'], { env });
  assert.deepEqual([await name(all), await slots(all), await context(all)], ['of a flag', 3, 512]);
  assert.doesNotMatch((await all.get('/metrics')).text, /^vllm:/m);
  await all.stop();
});

test('--api-key-file: its first line is the key', async () => {
  const server = await serve('llama', ['--api-key-file', file('key', 'sesame\nand a note\n')]);
  assert.equal((await server.get('/v1/models')).status, 401);
  assert.equal((await server.get('/v1/models', { authorization: 'Bearer wrong' })).status, 401);
  assert.equal((await server.get('/v1/models', { authorization: 'Bearer sesame' })).status, 200);
  assert.ok(!server.log.includes('sesame'), 'the key is in the log');
  assert.equal(await server.stop(), 0);
});

test('a wrong key is told before the body is sent', async () => {
  const server = await serve('llama', ['--api-key', 'sesame']);
  const { hostname, port } = new URL(server.url);
  const socket = net.connect(Number(port), hostname);
  let said = '';
  socket.setEncoding('utf8').on('data', (text) => (said += text));
  socket.write('POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 60000000\r\n\r\n');
  await new Promise((tell) => socket.on('end', tell));
  assert.match(said, /^HTTP\/1\.1 401 /);
  socket.destroy();
  assert.equal(await server.stop(), 0);
});

test('a line a request, unless --quiet', async () => {
  for (const quiet of [false, true]) {
    const server = await serve('llama', quiet ? ['--quiet'] : []);
    await server.chat([user('Do not write this down')], { max_tokens: 3 });
    assert.equal(await server.stop(), 0);
    assert.equal(/ request id=\S+ .*status=200 prompt=42 reused=0 .*generated=3 /.test(server.log), !quiet, server.log);
    assert.ok(!server.log.includes('write this'), 'what users say is in the log');
    assert.match(server.log, /ending on SIGTERM\n.* ended\n$/);
  }
});

// Asks over a connection that was there before.
function over(agent, server, path, body) {
  return new Promise((tell, fail) => {
    const asked = http.request(server.url + path, { agent, method: body ? 'POST' : 'GET' }, (reply) => {
      let text = '';
      reply.setEncoding('utf8').on('data', (piece) => (text += piece)).on('end', () => tell({ status: reply.statusCode, text }));
    });
    asked.on('error', fail).end(body && JSON.stringify(body));
  });
}

test('SIGTERM: what is under way ends, what comes is refused', async () => {
  const server = await serve('llama', ['--drain-seconds', '600']);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  assert.equal((await over(agent, server, '/ready')).status, 200);

  const tokens = 6000;  // It is not over when all has been looked at.
  const body = { messages: [user('Hello')], stream: true, ignore_eos: true, max_tokens: tokens, temperature: 0,
    stream_options: { include_usage: true } };
  const reply = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify(body) });
  const reader = reply.body.getReader();
  const decoder = new TextDecoder();
  let text = decoder.decode((await reader.read()).value, { stream: true });
  server.child.kill('SIGTERM');
  while (!server.log.includes('ending on SIGTERM')) {
    const { value } = await reader.read();
    text += decoder.decode(value, { stream: true });
  }
  const ready = await over(agent, server, '/ready');
  assert.deepEqual([ready.status, JSON.parse(ready.text).status], [503, 'ending']);
  assert.equal((await over(agent, server, '/health')).status, 200);
  const late = await over(agent, server, '/v1/chat/completions', { messages: [user('Hi')] });
  assert.deepEqual([late.status, JSON.parse(late.text).error.code], [503, 'overloaded']);
  await assert.rejects(fetch(`${server.url}/ready`), 'a new connection was taken');

  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += decoder.decode(part.value, { stream: true });
  }
  const events = text.trimEnd().split('\n\n').map((event) => event.replace(/^data: /, ''));
  assert.equal(events.at(-1), '[DONE]');
  assert.equal(JSON.parse(events.at(-2)).usage.completion_tokens, tokens);
  assert.equal(await ended(server.child), 0);
  assert.match(server.log, / ended\n$/);
  agent.destroy();
});

test('--drain-seconds: is as long as it waits', async () => {
  const server = await serve('llama', [...roomForEndless, '--drain-seconds', '0']);
  const body = JSON.stringify({ messages: [user('Hello')], stream: true, ...endless });
  const reply = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body });
  const reader = reply.body.getReader();
  await reader.read();
  server.child.kill('SIGTERM');
  let text = '';
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += Buffer.from(part.value);
  } catch { /* Cut off. */ }
  assert.ok(!text.includes('[DONE]'), 'it waited for the request');
  assert.equal(await ended(server.child), 0);
  assert.match(server.log, /cut off/);
});

test('SIGTERM while the model is read: it ends then, and not when it is loaded', async () => {
  // A file that takes long to read, and no room.
  truncateSync(file('long.gguf', ''), 2 ** 38);
  const child = spawn(program, ['serve', '--port', '0', '--model', inFolder('long.gguf')], { env: environment() });
  let log = '';
  child.stderr.on('data', (text) => { log += text; });
  // Once it reads, signals are blocked.
  await eventually(() => /^SigBlk:\s*0*[1-9a-f]/m.test(readFileSync(`/proc/${child.pid}/status`, 'utf8')));
  child.kill('SIGTERM');
  assert.equal(await ended(child), 0);
  assert.match(log, /ended on SIGTERM before it was ready/);
});

test('SIGHUP: streams go on, and the log says that nothing is loaded again', async () => {
  const server = await serve('llama', roomForEndless);
  const body = JSON.stringify({ messages: [user('Hello')], stream: true, ...endless });
  const abort = new AbortController();
  const reply = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body, signal: abort.signal });
  const reader = reply.body.getReader();
  await reader.read();
  for (const times of [1, 2]) {
    server.child.kill('SIGHUP');
    assert.ok(await eventually(() => server.log.split('SIGHUP: nothing is loaded again').length === times + 1), server.log);
    assert.ok(!(await reader.read()).done);
  }
  abort.abort();
  assert.equal((await server.chat([user('Hello')])).generated, 24);
  assert.equal(await server.stop(), 0);
});

test('settings that are probably not meant are named at the start', async () => {
  const env = { STEMMA_SAVED_BYTE: '1GiB', STEMMA_CONTEXT: '512' };
  const open = await serve('llama', ['--host', '0.0.0.0'], { env });
  assert.ok(await eventually(() => /warning: 0\.0\.0\.0 can be reached by other machines/.test(open.log)), open.log);
  assert.match(open.log, /warning: STEMMA_SAVED_BYTE is not a setting .* STEMMA_SAVED_BYTES meant/);
  assert.ok(!open.log.includes('STEMMA_CONTEXT'));
  await open.stop();
  for (const flags of [['--host', '0.0.0.0', '--api-key', 'sesame'], ['--host', '127.0.0.1'], ['--host', 'localhost']]) {
    const quiet = await serve('llama', flags);
    await quiet.stop();
    assert.ok(!quiet.log.includes('warning'), quiet.log);
  }
});

test('a log that nobody reads holds no request up, and says later what is missing', async () => {
  const pipe = inFolder('log');
  assert.equal(spawnSync('mkfifo', [pipe]).status, 0);
  const { O_RDWR, O_NONBLOCK, O_WRONLY } = constants;
  const reader = openSync(pipe, O_RDWR | O_NONBLOCK);
  const writer = openSync(pipe, O_WRONLY);
  const words = ['serve', '--threads', '1', '--port', '0', '--model', model('llama')];
  const child = spawn(program, words, { env: environment(), stdio: ['ignore', 'ignore', writer] });
  after(() => child.kill('SIGKILL'));
  let log = '';
  const read = () => {
    const bytes = Buffer.alloc(65536);
    try {
      log += bytes.toString('utf8', 0, readSync(reader, bytes));
      return true;
    } catch {
      return false; // Nothing is there.
    }
  };
  assert.ok(await eventually(() => read() && / url=\S+\n/.test(log), 30), log);
  const url = log.match(/ url=(\S+)\n/)[1];
  // From now on nobody reads, and there is no room for another line.
  const line = Buffer.from('.'.repeat(4095) + '\n');
  try {
    for (;;) writeSync(reader, line);
  } catch (error) {
    assert.equal(error.code, 'EAGAIN');
  }
  const ask = (path, body) => fetch(url + path, { method: 'POST', body: JSON.stringify(body) });
  // More lines than are kept.
  const name = 'x'.repeat(200);
  for (let i = 0; i < 40; ++i) {
    const answers = await Promise.all(Array.from({ length: 100 }, () => fetch(`${url}/${name}`)));
    for (const answer of answers) assert.equal(answer.status, 404);
  }
  const answer = await ask('/v1/completions', { prompt: 'Hello', max_tokens: 4 });
  assert.equal(answer.status, 200);
  await answer.text();
  log = '';
  assert.ok(await eventually(async () => {
    while (read());
    await (await fetch(`${url}/props`)).text();
    return /the log is missing \d+ lines here/.test(log);
  }), log.slice(-2000));
  const over = ended(child);
  child.kill('SIGTERM');
  const status = await Promise.race([over, eventually(() => { while (read()); return child.exitCode !== null; }, 30).then(() => over)]);
  assert.equal(status, 0);
  closeSync(reader);
  closeSync(writer);
});

test('SIGINT ends it as well', async () => {
  const server = await serve('llama');
  server.child.kill('SIGINT');
  assert.equal(await ended(server.child), 0);
  assert.match(server.log, /ending on SIGINT/);
});
