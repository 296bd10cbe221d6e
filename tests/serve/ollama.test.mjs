// Ollama's API as its own client sees it.
import assert from 'node:assert/strict';
import { before } from 'node:test';
import { Ollama } from 'ollama';
import { exact, serve, test } from './support.mjs';

let server;
let ollama;
before(async () => {
  server = await serve('llama', [...exact, '--alias', 'tiny', '--context', '4096']);
  ollama = new Ollama({ host: server.url });
});

const options = { temperature: 0, num_predict: 20, num_ctx: 4096 };
const messages = [{ role: 'user', content: 'Hello' }];
async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

test('the model is listed, shown and running', async () => {
  const { models } = await ollama.list();
  assert.deepEqual(models.map((model) => model.name), ['tiny']);
  assert.match(models[0].digest, /^[0-9a-f]{64}$/);
  assert.ok(models[0].size > 0 && !Number.isNaN(Date.parse(models[0].modified_at)));
  const shown = await ollama.show({ model: 'tiny:latest' });
  assert.equal(shown.details.family, 'llama');
  assert.equal(shown.model_info['llama.context_length'], 4096);
  assert.ok(shown.capabilities.includes('completion'));
  assert.equal((await ollama.ps()).models[0].context_length, 4096);
  assert.match((await ollama.version()).version, /^\d+\.\d+\.\d+$/);
  await assert.rejects(ollama.show({ model: 'huge' }), { status_code: 404 });
});

test('chat: a stream says what the whole says, which is what chat completions say', async () => {
  const plain = await server.chat(messages, { max_tokens: 20 });
  const whole = await ollama.chat({ model: 'tiny', messages, options });
  assert.equal(whole.message.content, plain.text);
  assert.equal(whole.done_reason, plain.finish);
  assert.equal(whole.eval_count, 20);
  assert.equal(whole.prompt_eval_count, plain.prompt);
  assert.ok(whole.total_duration > 0);
  const parts = await collect(await ollama.chat({ model: 'tiny:latest', messages, options, stream: true }));
  assert.equal(parts.map((part) => part.message.content).join(''), plain.text);
  assert.ok(parts.length > 5, 'it comes a token at a time');
  assert.deepEqual(parts.map((part) => part.done), [...Array(parts.length - 1).fill(false), true]);
  assert.equal(parts.at(-1).eval_count, 20);
});

test('generate: through the template, or raw', async () => {
  const plain = await server.chat(messages, { max_tokens: 20 });
  const whole = await ollama.generate({ model: 'tiny', prompt: 'Hello', options });
  assert.equal(whole.response, plain.text);
  const raw = await ollama.generate({ model: 'tiny', prompt: 'Once upon', raw: true, options });
  const completion = await server.post('/v1/completions', { prompt: 'Once upon', max_tokens: 20, temperature: 0 });
  assert.equal(raw.response, completion.json.choices[0].text);
  const parts = await collect(await ollama.generate({ model: 'tiny', prompt: 'Hello', options, stream: true }));
  assert.equal(parts.map((part) => part.response).join(''), plain.text);
  assert.equal((await ollama.generate({ model: 'tiny', prompt: '' })).done_reason, 'load');
});

test('format: an answer has the form that it must have', async () => {
  const schema = { type: 'object', properties: { n: { type: 'integer', minimum: 0, maximum: 9 } }, required: ['n'], additionalProperties: false };
  const answer = await ollama.chat({ model: 'tiny', messages, format: schema, options: { ...options, num_predict: 200 } });
  const parsed = JSON.parse(answer.message.content);
  assert.deepEqual(Object.keys(parsed), ['n']);
  assert.ok(Number.isInteger(parsed.n));
});

test('what is wrong is one text', async () => {
  await assert.rejects(ollama.chat({ model: 'huge', messages }), { status_code: 404 });
  await assert.rejects(ollama.chat({ model: 'tiny', messages, format: 'xml' }), /format/);
  await assert.rejects(ollama.chat({ model: 'tiny', messages: [{ role: 'tool', content: 'x' }] }), /waits/);
  const bad = await server.post('/api/chat', '{');
  assert.equal(bad.status, 400);
  assert.deepEqual(Object.keys(bad.json), ['error']);
  assert.equal((await server.get('/api/chat')).status, 405);
  assert.ok(await server.idle());
});
