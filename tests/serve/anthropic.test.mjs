// The Messages API as Anthropic's own client sees it: against the program, and against a model that says what a script
// says, for tools and thinking.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { exact, inFolder, patience, program, serve, test } from './support.mjs';

const scripted = process.env.STEMMA_SCRIPTED_SERVER ?? path.join(path.dirname(program), 'scripted_server');

let server;
let anthropic;
before(async () => {
  server = await serve('llama', [...exact, '--alias', 'tiny', '--context', '4096']);
  anthropic = client(server.url);
});
function client(url, options = {}) {
  return new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0, timeout: 30_000 * patience, ...options });
}

const hello = [{ role: 'user', content: 'Hello' }];
const create = (more = {}) =>
  anthropic.messages.create({ model: 'tiny', max_tokens: 24, messages: hello, temperature: 0, ...more });
const prompt = ({ usage }) =>
  usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens;

// A server whose model says what the rules say; it ends with its standard input.
async function script(rules) {
  const file = inFolder(`rules-${Math.random().toString(36).slice(2)}.json`);
  writeFileSync(file, JSON.stringify(rules));
  const child = spawn(scripted, [file, '--context', '65536'], { stdio: ['pipe', 'pipe', 'ignore'] });
  const ended = new Promise((tell) => child.once('exit', tell));
  after(async () => {
    child.stdin.end();
    await ended;
  });
  const url = await new Promise((tell, fail) => {
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text) => {
      said += text;
      const line = said.match(/url=(\S+)\n/);
      if (line) tell(line[1]);
    });
    child.once('exit', (status) => fail(new Error(`scripted_server ended with ${status}`)));
    child.once('error', fail);
  });
  return { url, anthropic: client(url), stats: async () => (await (await fetch(`${url}/cache`)).json()).transcripts };
}

// ---- Answers ---------------------------------------------------------------------------------------------

test('a message has all that clients read', async () => {
  const message = await create();
  assert.match(message.id, /^msg_[0-9A-Za-z]{22}$/);
  assert.equal(message.type, 'message');
  assert.equal(message.role, 'assistant');
  assert.equal(message.model, 'tiny');
  assert.equal(message.content.length, 1);
  assert.equal(message.content[0].type, 'text');
  assert.equal(message.stop_reason, 'max_tokens');
  assert.equal(message.stop_sequence, null);
  assert.equal(message.usage.output_tokens, 24);
  // <|bos|><|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n: a token each byte and each special.
  assert.equal(prompt(message), 25);
});

test('a stream says what the whole message says, event by event', async () => {
  const whole = await create();
  const types = [];
  const stream = anthropic.messages.stream({ model: 'tiny', max_tokens: 24, messages: hello, temperature: 0 });
  stream.on('streamEvent', (event) => types.push(event.type));
  let heard = '';
  stream.on('text', (text) => (heard += text));
  const message = await stream.finalMessage();
  assert.deepEqual(message.content, whole.content);
  assert.equal(heard, whole.content[0].text);
  assert.equal(message.stop_reason, whole.stop_reason);
  assert.equal(prompt(message), prompt(whole));
  assert.equal(message.usage.output_tokens, 24);
  assert.equal(types[0], 'message_start');
  assert.equal(types[1], 'content_block_start');
  assert.deepEqual(types.slice(-3), ['content_block_stop', 'message_delta', 'message_stop']);
  assert.ok(types.slice(2, -3).every((type) => type === 'content_block_delta'));
});

test('what is repeated is read from the cache, and cache_control says what is written', async () => {
  const system = [{ type: 'text', text: 'Be kind. '.repeat(20), cache_control: { type: 'ephemeral', ttl: '1h' } }];
  const first = await create({ system });
  assert.ok(first.usage.cache_creation_input_tokens > 150, JSON.stringify(first.usage));
  assert.ok(first.usage.input_tokens > 0);
  const second = await create({ system });
  assert.equal(prompt(second), prompt(first));
  assert.ok(second.usage.cache_read_input_tokens >= prompt(first) - 1);
  assert.deepEqual(second.content, first.content);
});

test('stop_sequences, prefilled answers, and counting', async () => {
  const text = (await create()).content[0].text;
  const stop = text.slice(5, 8);
  const cut = await create({ stop_sequences: [stop] });
  assert.equal(cut.stop_reason, 'stop_sequence');
  assert.equal(cut.stop_sequence, stop);
  assert.equal(cut.content[0]?.text ?? '', text.slice(0, text.indexOf(stop)));
  const rest = await create({ messages: [...hello, { role: 'assistant', content: text.slice(0, 10) }] });
  assert.equal(rest.content[0].text.slice(0, 14), text.slice(10));
  const counted = await anthropic.messages.countTokens({ model: 'tiny', messages: hello });
  assert.equal(counted.input_tokens, 25);
});

test('errors are the classes that the client has for them', async () => {
  await assert.rejects(create({ model: 'claude' }), Anthropic.NotFoundError);
  await assert.rejects(create({ max_tokens: 0 }), Anthropic.BadRequestError);
  const image = [{ role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: '' } }] }];
  await assert.rejects(create({ messages: image }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.equal(error.error.error.type, 'invalid_request_error');
    assert.match(error.error.error.message, /messages\[0\]\.content\[0\]\.type.*image/);
    assert.equal(typeof error.error.request_id, 'string');
    return true;
  });
  const shell = [{ type: 'bash_20250124', name: 'bash' }];
  await assert.rejects(create({ tools: shell }), /bash_20250124/);
  const search = [{ type: 'web_search_20250305', name: 'web_search' }];
  assert.equal((await create({ tools: search, max_tokens: 1 })).type, 'message');
  const guarded = await serve('llama', ['--alias', 'tiny'], { env: { STEMMA_API_KEY: 'secret' } });
  const ask = (apiKey) =>
    client(guarded.url, { apiKey }).messages.create({ model: 'tiny', max_tokens: 1, messages: hello });
  await assert.rejects(ask('wrong'), Anthropic.AuthenticationError);
  assert.equal((await ask('secret')).type, 'message');
});

// ---- Tools and thinking ----------------------------------------------------------------------------------

const read = {
  name: 'read',
  description: 'Reads a line of a file.',
  input_schema: { type: 'object', properties: { path: { type: 'string' }, line: { type: 'integer' } } },
};
const call = (n) =>
  `<think>\nstep ${n} of it\n</think>\n\nlooking\n<tool_call>\n{"name": "read", "arguments": {"path": "a.txt", "line": ${n}}}\n</tool_call>`;
const rules = [
  { user: 'read it', results: 3, say: '<think>\nenough\n</think>\n\nall lines were read' },
  { user: 'read it', say: call('{n}') },
  { user: 'both', results: 0, say: '<tool_call>\n{"name": "read", "arguments": {"line": 1}}\n</tool_call>\n<tool_call>\n{"name": "read", "arguments": {"line": 2}}\n</tool_call>' },
  { user: 'both', say: 'both are there' },
];
const tools = [read];
const thinking = { type: 'adaptive' };

test('thinking is signed, calls stream as JSON, and what comes back is spliced', async () => {
  const { anthropic, stats } = await script(rules);
  const messages = [{ role: 'user', content: 'read it' }];
  let before;
  for (let turn = 1; turn <= 4; ++turn) {
    const events = [];
    const stream = anthropic.messages.stream({ model: 'x', max_tokens: 500, tools, thinking, messages });
    stream.on('streamEvent', (event) => events.push(event));
    const message = await stream.finalMessage();
    const kinds = message.content.map((block) => block.type);
    const last = turn === 4;
    assert.deepEqual(kinds, last ? ['thinking', 'text'] : ['thinking', 'text', 'tool_use']);
    assert.equal(message.stop_reason, last ? 'end_turn' : 'tool_use');
    assert.match(message.content[0].signature, /^tr_/);
    assert.equal(message.content[0].thinking.trim(), last ? 'enough' : `step ${turn} of it`);
    const deltas = events.filter((event) => event.type === 'content_block_delta').map((event) => event.delta.type);
    assert.ok(deltas.includes('thinking_delta') && deltas.includes('signature_delta'));
    assert.equal(deltas.includes('input_json_delta'), !last);
    if (before) {
      const fresh = prompt(message) - prompt(before) - before.usage.output_tokens;
      assert.ok(prompt(message) - message.usage.cache_read_input_tokens <= fresh + 8, JSON.stringify(message.usage));
    }
    before = message;
    messages.push({ role: 'assistant', content: message.content });
    if (last) break;
    assert.deepEqual(message.content[2].input, { path: 'a.txt', line: turn });
    assert.match(message.content[2].id, /^toolu_/);
    messages.push({
      role: 'user',
      content: [{ type: 'tool_result', tool_use_id: message.content[2].id, content: [{ type: 'text', text: `text ${turn}` }] }],
    });
  }
  assert.deepEqual({ ...(await stats()), entries: 0, bytes: 0 }, {
    entries: 0, bytes: 0, remembered: 4, spliced: 6, unfit: 0, different: 0, unknown: 0, evicted: 0, from_tiers: 0,
  });
});

test('the tool runner works its way to the answer, parallel calls as well', async () => {
  const { anthropic } = await script(rules);
  const run = (content, seen) =>
    anthropic.beta.messages.toolRunner({
      model: 'x',
      max_tokens: 500,
      messages: [{ role: 'user', content }],
      tools: [
        betaTool({
          name: 'read',
          description: read.description,
          inputSchema: read.input_schema,
          run: (input) => {
            seen.push(input);
            return `text of line ${input.line}`;
          },
        }),
      ],
    });
  const seen = [];
  const message = await run('read it', seen);
  assert.deepEqual(seen.map((input) => input.line), [1, 2, 3]);
  assert.equal(message.content.at(-1).text, 'all lines were read');
  const both = [];
  assert.equal((await run('both', both)).content[0].text, 'both are there');
  assert.deepEqual(both, [{ line: 1 }, { line: 2 }]);
});

test('thinking that is edited or dropped, and signatures of others, do no harm', async () => {
  const { anthropic, stats } = await script(rules);
  const first = await anthropic.messages.create({ model: 'x', max_tokens: 500, tools, thinking, messages: [{ role: 'user', content: 'read it' }] });
  const again = (content) =>
    anthropic.messages.create({
      model: 'x', max_tokens: 500, tools, thinking,
      messages: [
        { role: 'user', content: 'read it' },
        { role: 'assistant', content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: first.content[2].id, content: 'text' }] },
      ],
    });
  const [thought, text, use] = first.content;
  const kept = prompt(await again(first.content));
  assert.equal(prompt(await again([text, use])), kept, 'what was dropped is put back');
  assert.equal(prompt(await again([{ ...thought, signature: 'of another server' }, text, use])), kept);
  assert.equal((await stats()).spliced, 3);
  await again([{ ...thought, thinking: 'another thought' }, text, use]);
  await again([thought, { ...text, text: 'hiding' }, use]);
  await again([thought, text, { ...use, input: { path: 'a.txt', line: 7 } }]);
  const after = await stats();
  assert.equal(after.spliced, 3);
  assert.equal(after.different, 3);
  await again([{ type: 'redacted_thinking', data: 'xyz' }, text, use]);
});
