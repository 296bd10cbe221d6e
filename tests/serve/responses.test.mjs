// The Responses API as OpenAI's own client, the AI SDK and LangChain see it.
import assert from 'node:assert/strict';
import { before } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';
import { exact, patience, serve, test } from './support.mjs';

let server;
let openai;
before(async () => {
  server = await serve('llama', [...exact, '--alias', 'tiny', '--context', '4096']);
  openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 30_000 * patience });
});

const respond = (more = {}) =>
  openai.responses.create({ model: 'tiny', input: 'Hello', max_output_tokens: 20, temperature: 0, ...more });
const reused = (response) => response.usage.input_tokens_details.cached_tokens;

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

// Numbered from 0, items inside the response, deltas inside their items, and what is done says what its deltas said.
function check(events) {
  assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i));
  assert.deepEqual(events.slice(0, 2).map((event) => event.type), ['response.created', 'response.in_progress']);
  assert.match(events.at(-1).type, /^response\.(completed|incomplete)$/);
  const items = [];
  const texts = new Map();
  for (const event of events.slice(2, -1)) {
    if (event.type === 'response.output_item.added') {
      assert.equal(event.output_index, items.length);
      items.push({ id: event.item.id, open: true });
      continue;
    }
    const item = items[event.output_index];
    assert.ok(item?.open, `${event.type} outside of its item`);
    if (event.item_id !== undefined) assert.equal(event.item_id, item.id);
    if (event.type.endsWith('.delta')) texts.set(item.id, (texts.get(item.id) ?? '') + event.delta);
    if (event.type === 'response.output_text.done') assert.equal(event.text, texts.get(item.id) ?? '');
    if (event.type === 'response.output_item.done') {
      item.open = false;
      assert.deepEqual(event.item, events.at(-1).response.output[event.output_index]);
    }
  }
  assert.ok(items.every((item) => !item.open));
  return events.at(-1).response;
}

test('a response has all that clients read', async () => {
  const response = await respond();
  assert.match(response.id, /^resp_[0-9A-Za-z]{22}$/);
  assert.equal(response.object, 'response');
  assert.equal(response.output[0].type, 'message');
  assert.equal(response.output_text, response.output[0].content[0].text);
  assert.equal(response.output_text.length > 0, true);
  const { usage } = response;
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
  assert.equal(usage.output_tokens, 20);
  assert.equal(response.status, 'incomplete');
  assert.equal(response.incomplete_details.reason, 'max_output_tokens');
});

test('a stream says what the whole says, each event in its place', async () => {
  const whole = await respond();
  const last = check(await collect(await respond({ stream: true })));
  assert.equal(last.output[0].content[0].text, whole.output_text);
  assert.equal(last.status, whole.status);
  assert.equal(last.usage.output_tokens, whole.usage.output_tokens);
  const helper = openai.responses.stream({ model: 'tiny', input: 'Hello', max_output_tokens: 20, temperature: 0 });
  let heard = '';
  helper.on('response.output_text.delta', (event) => (heard += event.delta));
  assert.equal((await helper.finalResponse()).output_text, whole.output_text);
  assert.equal(heard, whole.output_text);
});

test('previous_response_id goes on with a stored conversation, and only what is new is computed', async () => {
  const first = await respond({ input: 'Tell me about the sea, and about ships, and about harbours.' });
  const next = await respond({ input: 'And then?', previous_response_id: first.id });
  assert.ok(next.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens);
  assert.ok(reused(next) >= first.usage.input_tokens + first.usage.output_tokens - 8, `reused ${reused(next)}`);
  // The same as sending everything.
  const all = await respond({
    input: [{ role: 'user', content: 'Tell me about the sea, and about ships, and about harbours.' }, ...first.output,
      { role: 'user', content: 'And then?' }],
  });
  assert.equal(all.output_text, next.output_text);
  // Fetched, deleted, and then not known any more.
  assert.equal((await openai.responses.retrieve(first.id)).output[0].content[0].text, first.output_text);
  await openai.responses.delete(first.id);
  await assert.rejects(openai.responses.retrieve(first.id), { status: 404 });
  await assert.rejects(respond({ previous_response_id: first.id }), { status: 404, code: 'previous_response_not_found' });
  // Neither is one that was not to be stored, nor another salt's, nor one that was forgotten.
  const unstored = await respond({ store: false });
  await assert.rejects(respond({ previous_response_id: unstored.id }), { status: 404 });
  const salted = await respond({ cache_salt: 'alice' });
  await assert.rejects(respond({ previous_response_id: salted.id }), { status: 404 });
  await assert.rejects(openai.responses.retrieve(salted.id), { status: 404 });
  assert.equal((await openai.responses.retrieve(salted.id, {}, { query: { cache_salt: 'alice' } })).id, salted.id);
  await server.post('/cache/purge', { cache_salt: 'alice' });
  assert.equal((await server.get(`/v1/responses/${salted.id}?cache_salt=alice`)).status, 404);
});

test('an answer has the form that it must have', async () => {
  const schema = {
    type: 'object',
    properties: { name: { type: 'string', maxLength: 8 }, age: { type: 'integer', minimum: 0, maximum: 9 } },
    required: ['name', 'age'],
    additionalProperties: false,
  };
  const response = await openai.responses.parse({
    model: 'tiny', input: 'Who?', temperature: 0, max_output_tokens: 200,
    text: { format: { type: 'json_schema', name: 'person', strict: true, schema } },
  });
  const parsed = JSON.parse(response.output_text);
  assert.deepEqual(Object.keys(parsed).sort(), ['age', 'name']);
  assert.ok(Number.isInteger(parsed.age) && parsed.age <= 9 && parsed.name.length <= 8);
});

test('what is wrong is said in the shape of the API', async () => {
  const patch = { type: 'custom', name: 'p', format: { type: 'grammar', syntax: 'lark', definition: 'x' } };
  const wrong = [
    [{ input: [{ type: 'function_call_output', call_id: 'x', output: '1' }] }, 'input[0].call_id'],
    [{ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'data:,' }] }] }, 'input[0].content[0].type'],
    [{ background: true }, 'background'],
    [{ tools: [{ ...patch, strict: true }] }, 'tools[0].format.type'],
    [{ tool_choice: 'required' }, 'tool_choice'],
  ];
  for (const [more, param] of wrong) {
    await assert.rejects(respond(more), (error) => error instanceof OpenAI.APIError && error.status === 400 && error.param === param);
  }
  const odd = await openai.responses
    .create({ model: 'tiny', input: 'Hi', max_output_tokens: 2, brand_new: 1, tools: [{ type: 'web_search' }] })
    .withResponse();
  assert.equal(odd.response.headers.get('x-stemma-ignored'), 'tools[0] (web_search), brand_new');
  const free = await openai.responses
    .create({ model: 'tiny', input: 'Hi', max_output_tokens: 2, tools: [patch] })
    .withResponse();
  assert.match(free.response.headers.get('x-stemma-unenforced'), /tools\[0\]\.format/);
  assert.ok(await server.idle());
});

test('the AI SDK: text and streams, over Responses and over chat completions', async () => {
  const plain = (await respond()).output_text;
  const models = [
    createOpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none' }).responses('tiny'),
    createOpenAICompatible({ name: 'stemma', baseURL: `${server.url}/v1`, includeUsage: true })('tiny'),
  ];
  for (const model of models) {
    const asked = { model, prompt: 'Hello', temperature: 0, maxOutputTokens: 20, maxRetries: 0 };
    const whole = await generateText(asked);
    assert.equal(whole.text, plain);
    assert.equal(whole.finishReason, 'length');
    assert.equal(whole.usage.outputTokens, 20);
    const stream = streamText(asked);
    let heard = '';
    for await (const piece of stream.textStream) heard += piece;
    assert.equal(heard, plain);
    assert.equal((await stream.usage).inputTokens, whole.usage.inputTokens);
    // A second turn, in which the SDK refers to what was stored or sends it back.
    const turn = await generateText({
      model, temperature: 0, maxOutputTokens: 4, maxRetries: 0,
      messages: [{ role: 'user', content: 'Hello' }, ...whole.response.messages, { role: 'user', content: 'Go on' }],
    });
    assert.ok(turn.usage.inputTokens > whole.usage.inputTokens + 20);
  }
});

test('LangChain: invoke and stream, over Responses and over chat completions', async () => {
  const plain = (await respond()).output_text;
  for (const useResponsesApi of [true, false]) {
    const model = new ChatOpenAI({
      model: 'tiny', apiKey: 'none', temperature: 0, maxTokens: 20, useResponsesApi, maxRetries: 0,
      configuration: { baseURL: `${server.url}/v1` },
    });
    const whole = await model.invoke('Hello');
    assert.equal(whole.text, plain);
    assert.equal(whole.usage_metadata.output_tokens, 20);
    let heard = '';
    for await (const piece of await model.stream('Hello')) heard += piece.text;
    assert.equal(heard, plain);
  }
});
