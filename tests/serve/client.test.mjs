// The server as OpenAI's own client sees it: answers, streams, errors, and what each parameter does.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { before } from 'node:test';
import OpenAI from 'openai';
import { client, collect, joined, refused, text } from './openai.mjs';
import { endless, eventually, exact, inFolder, roomForEndless, serve, test, user } from './support.mjs';

// The made model is seldom in doubt, so what nudges it is tried on several prompts.
const prompts = ['Hello', 'Once upon a time', 'One two three', 'xyz', 'Why?', 'Describe the sea'];
const hello = [user('Hello')];

let server;
let openai;
before(async () => {
  server = await serve('llama', [...exact, '--alias', 'tiny', '--context', '2048']);
  openai = client(server);
});

const chat = (more = {}, options = {}) =>
  openai.chat.completions.create({ model: 'tiny', messages: hello, max_tokens: 40, temperature: 0, ...more }, options);
const complete = (more = {}) =>
  openai.completions.create({ model: 'tiny', prompt: 'Once upon', max_tokens: 20, temperature: 0, ...more });
const texts = (more) =>
  Promise.all(prompts.map(async (each) => text(await chat({ messages: [user(each)], ...more }))));
const cached = (answer) => answer.usage.prompt_tokens_details.cached_tokens;

// ---- Answers ---------------------------------------------------------------------------------------------

test('a chat completion has all that clients read', async () => {
  const answer = await chat({ max_tokens: 10 });
  assert.match(answer.id, /^chatcmpl-[0-9A-Za-z]{22}$/);
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.model, 'tiny');
  assert.ok(Math.abs(answer.created - Date.now() / 1000) < 60);
  assert.equal(answer.choices.length, 1);
  assert.equal(answer.choices[0].index, 0);
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.equal(answer.choices[0].message.refusal, null);
  assert.equal(answer.choices[0].logprobs, null);
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(text(answer).length, 10);
  const { usage } = answer;
  // <|bos|><|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n: a token each byte and each special.
  assert.equal(usage.prompt_tokens, 25);
  assert.equal(usage.completion_tokens, 10);
  assert.equal(usage.total_tokens, 35);
});

test('a stream says what the whole answer says', async () => {
  const whole = await chat();
  const events = await collect(await chat({ stream: true }));
  assert.equal(joined(events), text(whole));
  assert.equal(events[0].object, 'chat.completion.chunk');
  assert.equal(events[0].choices[0].delta.role, 'assistant');
  assert.equal(new Set(events.map((event) => event.id)).size, 1);
  assert.equal(events.at(-1).choices[0].finish_reason, whole.choices[0].finish_reason);
  assert.ok(events.slice(0, -1).every((event) => event.choices[0].finish_reason === null));
  assert.ok(events.every((event) => !('usage' in event)));
  assert.ok(events.length > text(whole).length, 'it comes a token at a time');
});

test('stream_options.include_usage adds one event, the last, with no choices', async () => {
  const whole = await chat();
  const events = await collect(await chat({ stream: true, stream_options: { include_usage: true } }));
  const last = events.pop();
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.prompt_tokens, whole.usage.prompt_tokens);
  assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(typeof last.usage.prompt_tokens_details.cached_tokens, 'number');
  assert.ok(events.every((event) => event.usage === null));
  await refused(chat({ stream_options: { include_usage: true } }), 400, { param: 'stream_options' });
});

test("the client's own helper for streams is content", async () => {
  const stream = openai.chat.completions.stream({ model: 'tiny', messages: hello, max_tokens: 12, temperature: 0 });
  let heard = '';
  stream.on('content', (piece) => (heard += piece));
  const whole = await stream.finalChatCompletion();
  assert.equal(heard, text(whole));
  assert.equal(heard, text(await chat({ max_tokens: 12 })));
});

test('a stream that is given up ends on the server, and nothing stays leased', async () => {
  const server = await serve('llama', [...exact, '--alias', 'tiny', ...roomForEndless]);
  const chat = (more, options) =>
    client(server).chat.completions.create({ model: 'tiny', messages: hello, ...endless, ...more }, options);
  const cancelled = async () =>
    Number((await server.get('/metrics')).text.match(/ended_total\{how="cancelled"\} (\d+)/)[1]);
  const stream = await chat({ stream: true });
  let seen = 0;
  for await (const event of stream) {
    if (event.choices[0].delta.content && ++seen === 3) break; // The client aborts its request.
  }
  assert.ok(await server.idle(), 'a sequence is still leased');
  assert.ok(await eventually(async () => (await cancelled()) === 1));
  assert.equal(await server.metric('stemma_requests_running'), 0);
  assert.equal((await server.get('/cache')).json.leased_sequences, 0);
  // And so does one that is aborted before it has answered anything.
  const abort = new AbortController();
  const asked = chat({}, { signal: abort.signal });
  setTimeout(() => abort.abort(), 50);
  await assert.rejects(asked, OpenAI.APIUserAbortError);
  assert.ok(await server.idle(), 'a sequence is still leased');
  await server.stop();
});

test('many at once are all answered, each its own', async () => {
  const alone = await texts();
  const together = await Promise.all([1, 2, 3].map(() => texts()));
  for (const answers of together) assert.deepEqual(answers, alone);
  assert.ok(await server.idle());
});

test('models: the list, the card of one, none of another', async () => {
  const list = await collect(openai.models.list());
  assert.deepEqual(list.map((each) => each.id), ['tiny']);
  assert.equal(list[0].meta.n_ctx, 2048);
  assert.equal((await openai.models.retrieve('tiny')).object, 'model');
  await refused(openai.models.retrieve('gpt-4o'), 404, { code: 'model_not_found' });
});

// ---- Errors ----------------------------------------------------------------------------------------------

test('model: another one than there is, is refused', async () => {
  const error = await refused(chat({ model: 'gpt-4o' }), 404, { param: 'model', code: 'model_not_found' });
  assert.ok(error instanceof OpenAI.NotFoundError);
  await refused(complete({ model: 'gpt-4o' }), 404, { param: 'model' });
  assert.equal((await chat({ model: 'tiny', max_tokens: 1 })).model, 'tiny');
});

test('a prompt that does not fit is refused with both numbers', async () => {
  const long = [user('x'.repeat(3000))];
  await refused(chat({ messages: long }), 400, { code: 'context_length_exceeded', says: /3020.*2047/ });
  const error = await refused(complete({ prompt: 'y'.repeat(2048) }), 400, { code: 'context_length_exceeded' });
  assert.ok(error instanceof OpenAI.BadRequestError);
  // The longest that fits has room for one token.
  assert.equal((await complete({ prompt: 'y'.repeat(2047) })).usage.completion_tokens, 1);
});

test('an answer ends where the context does', async () => {
  const messages = [user('y'.repeat(1900))];
  const answer = await chat({ messages, ignore_eos: true, max_tokens: undefined });
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(answer.usage.total_tokens, 2048);
});

test('what nobody knows is refused by name', async () => {
  await refused(complete({ tempreature: 1 }), 400, { param: 'tempreature', code: 'unknown_parameter' });
});

test('what a chat says and nobody knows is passed over and named', async () => {
  const { response } = await openai.chat.completions
    .create({ model: 'tiny', max_tokens: 2, frobnicate: 1, messages: [{ role: 'user', content: 'a', mood: 'good' }] })
    .withResponse();
  assert.equal(response.headers.get('x-stemma-ignored'), 'messages[0].mood, frobnicate');
  const hints = await openai.chat.completions
    .create({
      model: 'tiny', max_tokens: 2, messages: hello, stream: true, stream_options: { often: true },
      prediction: { type: 'content', content: 'a' }, web_search_options: {},
    })
    .withResponse();
  assert.equal(
    hints.response.headers.get('x-stemma-ignored'), 'stream_options.often, prediction, web_search_options');
  await collect(hints.data);
});

const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Tells the weather.',
    parameters: {
      type: 'object',
      properties: { days: { type: 'integer' }, unit: { type: 'string', enum: ['C', 'F'] } },
      required: ['days', 'unit'],
      additionalProperties: false,
    },
  },
};

function assertWeather(calls) {
  assert.ok(calls.length >= 1);
  for (const call of calls) {
    assert.equal(call.function.name, 'get_weather');
    const said = JSON.parse(call.function.arguments);
    assert.ok(Number.isInteger(said.days) && ['C', 'F'].includes(said.unit), call.function.arguments);
  }
}

test('a call that is required is made, whole and streamed, and its result is taken', async () => {
  const messages = [user('What is the weather?')];
  const ask = { messages, tools: [weather], tool_choice: 'required', parallel_tool_calls: false, max_tokens: 400 };
  const whole = await chat(ask);
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  assertWeather(whole.choices[0].message.tool_calls);
  const runner = openai.chat.completions.stream({ model: 'tiny', temperature: 0, ...ask });
  const streamed = await runner.finalChatCompletion();
  assertWeather(streamed.choices[0].message.tool_calls);
  const next = await chat({
    ...ask,
    tool_choice: 'auto',
    max_tokens: 3,
    messages: [
      ...messages,
      whole.choices[0].message,
      ...whole.choices[0].message.tool_calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: 'Rain.' })),
    ],
  });
  assert.ok(next.usage.prompt_tokens > whole.usage.prompt_tokens);
});

test('answers have the form that is asked for', async () => {
  const answer = await chat({
    max_tokens: 400,
    response_format: {
      type: 'json_schema',
      json_schema: { name: 'x', strict: true, schema: weather.function.parameters },
    },
  });
  assertWeather([{ function: { name: 'get_weather', arguments: answer.choices[0].message.content } }]);
  assert.match(text(await chat({ grammar: 'root ::= "yes" | "no"' })), /^(yes|no)$/);
  await refused(chat({ json_schema: { type: 'wizard' } }), 400, { code: 'unsupported_schema' });
});

for (const [name, value] of Object.entries({
  functions: [{ name: 'f', parameters: {} }],
  function_call: { name: 'f' },
  modalities: ['text', 'audio'],
  audio: { voice: 'alloy', format: 'wav' },
  mirostat: 2,
  typical_p: 0.5,
  samplers: ['top_k'],
  min_tokens: 5,
  stop_token_ids: [1],
  guided_json: {},
  n_probs: 3,
  echo: true,
})) {
  test(`${name}: is not supported on chats, and says so`, async () => {
    await refused(chat({ [name]: value }), 400, { param: name, code: 'unsupported_parameter' });
  });
}
for (const [name, value] of Object.entries({
  suffix: 'end', best_of: 3, grammar: 'root ::= "a"', tools: [{}], prompt_logprobs: 1,
})) {
  test(`${name}: is not supported on completions, and says so`, async () => {
    await refused(complete({ [name]: value }), 400, { param: name, code: 'unsupported_parameter' });
  });
}

test('values that ask for nothing are no reason to refuse', async () => {
  const plain = text(await chat());
  const nothing = {
    tools: [], tool_choice: 'none', response_format: { type: 'text' }, modalities: ['text'], mirostat: 0,
    min_tokens: 0, stop: null, seed: null, logit_bias: {}, user: null,
  };
  assert.equal(text(await chat(nothing)), plain);
  assert.equal(text(await complete({ suffix: '', best_of: 1 })), text(await complete()));
});

for (const [name, values] of Object.entries({
  temperature: [-0.1, 2.1, 'hot'], top_p: [-0.1, 1.1], top_k: [-2, 1.5], min_p: [-0.1, 1.1], n: [0, 129],
  max_tokens: [-2, 0, 1.5], max_completion_tokens: [0], top_logprobs: [21, -1], presence_penalty: [2.1, -2.1],
  frequency_penalty: [2.1, -2.1], repeat_penalty: [0, 11], logit_bias: [{ 1: 101 }, { x: 1 }, { 99999: 1 }],
  seed: ['one', 1.5], stop: ['', 5, Array(17).fill('x')], stream: ['yes'], cache_salt: ['', 7],
  cache_prompt: ['no'], prompt_cache_key: [7], messages: [[], 'Hello', [{}], [{ role: 'tool', content: 'x' }]],
  chat_template_kwargs: [[]], prompt_cache_retention: ['forever'],
})) {
  test(`${name}: values out of range are refused by name`, async () => {
    for (const value of values) {
      const error = await refused(chat({ [name]: value, ...(name === 'top_logprobs' && { logprobs: true }) }), 400);
      assert.ok(error.param?.startsWith(name), `${name}=${JSON.stringify(value)}: ${error.message}`);
    }
  });
}

test('a key is asked for where there is one', async () => {
  const locked = await serve('llama', ['--api-key', 'sesame', '--alias', 'tiny']);
  const ask = (key) =>
    client(locked, { apiKey: key }).chat.completions.create({ model: 'tiny', messages: hello, max_tokens: 1 });
  const error = await refused(ask('wrong'), 401, { code: 'invalid_api_key' });
  assert.ok(error instanceof OpenAI.AuthenticationError);
  await refused(ask('sesam'), 401);
  await refused(ask('sesame1'), 401);
  await refused(ask('sesamesesame'), 401);
  assert.equal((await ask('sesame')).usage.completion_tokens, 1);
  for (const open of ['/health', '/ready']) assert.equal((await locked.get(open)).status, 200);
  for (const shut of ['/metrics', '/slots', '/props', '/cache', '/cache/entries', '/v1/models']) {
    assert.equal((await locked.get(shut)).status, 401, shut);
  }
  assert.equal((await locked.get('/slots', { authorization: 'bearer sesame' })).status, 200);
  assert.equal((await locked.get('/slots', { 'x-api-key': 'sesame' })).status, 200);
  await locked.stop();
});

// ---- What each parameter does ------------------------------------------------------------------------------

test('seed: the same one gives the same answer, others give others', async () => {
  const hot = (seed) => texts({ temperature: 2, seed });
  const first = await hot(1);
  assert.deepEqual(await hot(1), first);
  assert.notDeepEqual(await hot(2), first);
  const any = await Promise.all([1, 2, 3].map(() => texts({ temperature: 2 })));
  assert.equal(new Set(any.map(String)).size, 3, 'without a seed every answer is drawn anew');
});

test('temperature: 0 takes the likeliest, more takes others too', async () => {
  const coldest = await texts({ seed: 1 });
  assert.deepEqual(await texts({ seed: 2 }), coldest);
  assert.notDeepEqual(await texts({ temperature: 2, seed: 1 }), coldest);
});

for (const [name, narrow] of [['top_p', 0.001], ['top_k', 1], ['min_p', 1]]) {
  test(`${name}: narrow enough, only the likeliest is left`, async () => {
    const hot = { temperature: 2, seed: 3 };
    const coldest = await texts();
    assert.deepEqual(await texts({ ...hot, [name]: narrow }), coldest);
    assert.notDeepEqual(await texts(hot), coldest);
  });
}

for (const name of ['presence_penalty', 'frequency_penalty']) {
  test(`${name}: changes what is said again`, async () => {
    const plain = await texts();
    assert.notDeepEqual(await texts({ [name]: 2 }), plain);
    assert.notDeepEqual(await texts({ [name]: -2 }), plain);
    assert.deepEqual(await texts({ [name]: 0 }), plain);
  });
}

test('repeat_penalty, repeat_last_n: change what is said again', async () => {
  const plain = await texts();
  const much = await texts({ repeat_penalty: 1.5 });
  assert.notDeepEqual(much, plain);
  assert.deepEqual(await texts({ repetition_penalty: 1.5 }), much);
  assert.deepEqual(await texts({ repeat_penalty: 1.5, repeat_last_n: 0 }), plain);
  await refused(chat({ repeat_penalty: 1.5, repetition_penalty: 2 }), 400, { param: 'repetition_penalty' });
});

test('logit_bias: -100 is never, 100 is nearly always', async () => {
  const [letter] = text(await chat());
  const token = letter.charCodeAt(0);
  const without = await chat({ logit_bias: { [token]: -100 } });
  assert.ok(!text(without).includes(letter), text(without));
  assert.ok(!text(await chat({ logit_bias: [[token, false]] })).includes(letter));
  const z = 'z'.charCodeAt(0);
  assert.ok(!text(await chat()).includes('z'));
  assert.match(text(await chat({ logit_bias: { [z]: 100 }, max_tokens: 5 })), /^z/);
});

test('stop: the answer ends before the text, also in a stream', async () => {
  const plain = text(await chat());
  const stop = plain.slice(5, 8);
  const cut = await chat({ stop });
  assert.equal(text(cut), plain.slice(0, plain.indexOf(stop)));
  assert.equal(cut.choices[0].finish_reason, 'stop');
  assert.equal(cut.choices[0].stop_reason, stop);
  assert.equal(text(await chat({ stop: ['@@', stop] })), text(cut));
  assert.equal(joined(await collect(await chat({ stop: ['@@', stop], stream: true }))), text(cut));
  assert.equal(text(await chat({ stop: '@@' })), plain);
});

test('max_tokens, max_completion_tokens, n_predict: so many and no more', async () => {
  for (const name of ['max_tokens', 'max_completion_tokens', 'n_predict']) {
    const answer = await chat({ max_tokens: undefined, [name]: 7 });
    assert.equal(answer.usage.completion_tokens, 7, name);
    assert.equal(answer.choices[0].finish_reason, 'length');
  }
  await refused(chat({ max_tokens: 7, max_completion_tokens: 8 }), 400, { param: 'max_tokens' });
});

test('n: so many choices, of seeds that follow each other', async () => {
  const hot = { temperature: 2, messages: [user('xyz')] };
  const answer = await chat({ ...hot, seed: 10, n: 6 });
  assert.deepEqual(answer.choices.map((each) => each.index), [0, 1, 2, 3, 4, 5]);
  const said = answer.choices.map((each) => each.message.content);
  assert.ok(new Set(said).size > 1, 'they differ');
  assert.equal(said[2], text(await chat({ ...hot, seed: 12 })));
  const single = await chat({ ...hot, seed: 10 });
  assert.equal(answer.usage.prompt_tokens, single.usage.prompt_tokens);
  assert.ok(answer.usage.completion_tokens > single.usage.completion_tokens);
  const events = await collect(await chat({ ...hot, seed: 10, n: 6, stream: true }));
  for (let i = 0; i < 6; ++i) assert.equal(joined(events, i), said[i]);
  assert.equal(events.filter((event) => event.choices[0].finish_reason !== null).length, 6);
  assert.ok(await server.idle());
});

test('logprobs, top_logprobs: a token each, likeliest first', async () => {
  const answer = await chat({ logprobs: true, top_logprobs: 4, max_tokens: 12 });
  const { content } = answer.choices[0].logprobs;
  assert.equal(content.length, answer.usage.completion_tokens);
  assert.equal(content.map((each) => each.token).join(''), text(answer));
  for (const each of content) {
    assert.ok(each.logprob <= 0);
    assert.deepEqual(each.bytes, [...Buffer.from(each.token)]);
    assert.equal(each.top_logprobs.length, 4);
    const chances = each.top_logprobs.map((other) => other.logprob);
    assert.deepEqual(chances, [...chances].sort((a, b) => b - a));
    assert.equal(each.top_logprobs[0].token, each.token, 'greedy takes the first');
    assert.ok(chances.map(Math.exp).reduce((a, b) => a + b) <= 1.0001);
  }
  assert.deepEqual((await chat({ logprobs: true, max_tokens: 2 })).choices[0].logprobs.content[0].top_logprobs, []);
  const events = await collect(await chat({ logprobs: true, top_logprobs: 4, max_tokens: 12, stream: true }));
  assert.deepEqual(events.flatMap((event) => event.choices[0].logprobs?.content ?? []), content);
  await refused(chat({ top_logprobs: 2 }), 400, { param: 'top_logprobs' });
});

test('ignore_eos: goes on where the model would end', async () => {
  const plain = await chat({ max_tokens: 200 });
  assert.equal(plain.choices[0].finish_reason, 'stop');
  const on = await chat({ max_tokens: 200, ignore_eos: true });
  assert.equal(on.choices[0].finish_reason, 'length');
  assert.equal(on.usage.completion_tokens, 200);
  assert.ok(text(on).startsWith(text(plain)));
});

test('cache_prompt: false computes all of it, and says so', async () => {
  const long = { messages: [user('This one has been seen before.')], max_tokens: 4 };
  const first = await chat(long);
  const again = await chat(long);
  assert.equal(cached(again), again.usage.prompt_tokens - 1);
  const anew = await chat({ ...long, cache_prompt: false });
  assert.equal(cached(anew), 0);
  assert.equal(anew.stemma.miss, 'bypassed');
  assert.deepEqual([text(again), text(anew)], [text(first), text(first)]);
});

test('cache_salt: nothing is shared across', async () => {
  const salted = (salt) => chat({ messages: [user('This one is a secret.')], cache_salt: salt, max_tokens: 4 });
  assert.equal(cached(await salted('alice')), 0);
  assert.ok(cached(await salted('alice')) > 20);
  assert.equal(cached(await salted('bob')), 0);
  assert.ok(cached(await salted(undefined)) < 20);
});

test('prompt_cache_key: names a session', async () => {
  const before = (await server.get('/cache')).json.sessions;
  await chat({ prompt_cache_key: 'conversation 1', max_tokens: 2 });
  await chat({ prompt_cache_key: 'conversation 1', max_tokens: 2 });
  await chat({ prompt_cache_key: 'conversation 2', max_tokens: 2 });
  assert.equal((await server.get('/cache')).json.sessions, before + 2);
});

test('cache_control: is understood where it may stand, and passed over elsewhere', async () => {
  const control = { type: 'ephemeral', ttl: '1h' };
  const plain = await chat();
  const marked = [{ role: 'user', content: [{ type: 'text', text: 'Hello', cache_control: control }] }];
  assert.equal(text(await chat({ messages: marked })), text(plain));
  assert.equal(text(await chat({ messages: [{ ...hello[0], cache_control: control }] })), text(plain));
  const wrong = [{ ...hello[0], cache_control: { type: 'eternal' } }];
  await refused(chat({ messages: wrong }), 400, { says: /cache_control/ });
  // Of a whole request it is a hint, which is passed over.
  assert.equal(text(await chat({ cache_control: control })), text(plain));
});

test('continue_final_message, add_generation_prompt: where the prompt ends', async () => {
  const whole = await chat();
  const half = text(whole).slice(0, 6);
  const messages = [...hello, { role: 'assistant', content: half }];
  const rest = await chat({ messages, continue_final_message: true });
  assert.ok((half + text(rest)).startsWith(text(whole)), 'it goes on where it was');
  const next = await chat({ messages });
  assert.notEqual(text(next), text(rest));
  // <|im_start|>assistant\n
  const bare = await chat({ add_generation_prompt: false });
  assert.equal(bare.usage.prompt_tokens, whole.usage.prompt_tokens - 11);
  await refused(chat({ continue_final_message: true }), 400, { param: 'continue_final_message' });
});

test('chat_template_kwargs: reach the template', async () => {
  const file = inFolder('mood.jinja');
  writeFileSync(file, "{% if mood is defined %}[{{ mood }}]{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}");
  const own = await serve('llama', ['--chat-template', file, '--alias', 'tiny']);
  const ask = (kwargs) =>
    client(own).chat.completions.create(
      { model: 'tiny', messages: hello, max_tokens: 20, temperature: 0, chat_template_kwargs: kwargs });
  const plain = await ask(undefined);
  const glad = await ask({ mood: 'glad' });
  assert.equal(plain.usage.prompt_tokens, 5);
  assert.equal(glad.usage.prompt_tokens, 11);
  assert.notEqual(text(glad), text(plain));
  await own.stop();
});

test('content: parts are one text', async () => {
  const parts = [{ role: 'user', content: [{ type: 'text', text: 'Hel' }, { type: 'text', text: 'lo' }] }];
  const answer = await chat({ messages: parts });
  assert.equal(text(answer), text(await chat()));
  const image = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:,' } }] }];
  await refused(chat({ messages: image }), 400, { says: /image_url/ });
});

test('user, metadata, store, service_tier: are accepted and change nothing', async () => {
  const notes = { user: 'me', metadata: { a: 'b' }, store: false, service_tier: 'auto', safety_identifier: 'x' };
  assert.equal(text(await chat(notes)), text(await chat()));
  await refused(chat({ user: 7 }), 400, { param: 'user' });
});
