// The server as curl sees it: routes, words, what is cached, and what is no request at all.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { before } from 'node:test';
import { eventually, inFolder, patience, serve, system, test, user } from './support.mjs';

let server;
before(async () => {
  server = await serve('llama', ['--body-bytes', '1MiB', '--header-bytes', '8KiB', '--cors-origin', 'https://page.test']);
});

// { status, headers, body, json }
function curl(where, ...words) {
  const arguments_ = ['-sS', '-i', '-m', `${30 * patience}`, '-H', 'Expect:', ...words, server.url + where];
  return new Promise((tell, fail) => {
    execFile('curl', arguments_, { encoding: 'buffer', maxBuffer: 1 << 26 }, (error, out, problem) => {
      if (error) return fail(new Error(`curl ${where}: ${problem}`));
      const cut = out.indexOf('\r\n\r\n');
      const [first, ...lines] = out.subarray(0, cut).toString().split('\r\n');
      const headers = Object.fromEntries(
        lines.map((line) => [line.split(':')[0].toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]));
      const body = out.subarray(cut + 4).toString();
      let json;
      try {
        json = JSON.parse(body);
      } catch { /* Not all is JSON. */ }
      tell({ status: Number(first.split(' ')[1]), headers, body, json });
    });
  });
}
const post = (where, body) =>
  curl(where, '-X', 'POST', '--data-binary', typeof body === 'string' ? body : JSON.stringify(body));
function postFile(where, bytes) {
  const file = inFolder('body');
  writeFileSync(file, bytes);
  return curl(where, '-X', 'POST', '--data-binary', `@${file}`);
}
const chat = (more) => ({ messages: [user('Hello')], max_tokens: 4, temperature: 0, ...more });

// ---- How it is -------------------------------------------------------------------------------------------

test('health and ready: yes', async () => {
  const health = await curl('/health');
  assert.deepEqual([health.status, health.json], [200, { status: 'ok' }]);
  const ready = await curl('/ready');
  assert.deepEqual([ready.status, ready.json], [200, { status: 'ready' }]);
  const head = await curl('/health', '-I');
  assert.deepEqual([head.status, head.body], [200, '']);
});

test('metrics: in the format of Prometheus, and they count', async () => {
  const value = (body, name) => Number(body.match(new RegExp(`^${name} (\\S+)$`, 'm'))[1]);
  const first = await curl('/metrics');
  assert.equal(first.status, 200);
  assert.match(first.headers['content-type'], /^text\/plain; version=0\.0\.4/);
  for (const line of first.body.trimEnd().split('\n')) {
    assert.match(line, /^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+0-9.e]+)$/i);
  }
  await post('/v1/chat/completions', chat());
  const { body } = await curl('/metrics');
  for (const name of ['stemma_requests_total', 'stemma_request_seconds_count', 'stemma_first_token_seconds_count']) {
    assert.equal(value(body, name), value(first.body, name) + 1, name);
  }
  assert.equal(value(body, 'stemma_generated_tokens_total'), value(first.body, 'stemma_generated_tokens_total') + 4);
  assert.equal(value(body, 'stemma_requests_running'), 0);
});

test('props: what the model is', async () => {
  const { json } = await curl('/props');
  assert.equal(json.total_slots, 4);
  assert.equal(json.default_generation_settings.n_ctx, 8192);
  assert.equal(json.model_alias, 'llama');
  assert.match(json.chat_template, /im_start/);
  assert.deepEqual([json.bos_token, json.eos_token], ['<|bos|>', '<|eos|>']);
});

test('slots: a line each', async () => {
  const { json } = await curl('/slots');
  assert.deepEqual(json.map((slot) => slot.id), [0, 1, 2, 3]);
  assert.ok(json.every((slot) => slot.is_processing === false));
  // It is under way until it has been seen.
  const leave = new AbortController();
  const body = JSON.stringify(chat({ ignore_eos: true, max_tokens: 8000 }));
  const answer = fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body, signal: leave.signal });
  let busy;
  assert.ok(await eventually(async () => {
    busy = (await server.get('/slots')).json.find((slot) => slot.is_processing);
    return busy !== undefined;
  }), 'the request under way is not shown');
  assert.equal(busy.state, 'leased');
  leave.abort();
  await assert.rejects(answer);
  assert.ok(await server.idle());
});

test('models: at both paths, with a slash at the end too', async () => {
  for (const where of ['/v1/models', '/models', '/v1/models/']) {
    assert.equal((await curl(where)).json.data[0].id, 'llama', where);
  }
});

// ---- Words -----------------------------------------------------------------------------------------------

for (const [what, text] of Object.entries({
  nothing: '',
  ascii: 'The quick brown fox, 42 times.',
  lines: ' \t\n\r\n  leading and trailing  \n',
  accents: 'Grüße, naïve façade — “quoted”…',
  scripts: '漢字かな한글 العربية עברית हिन्दी ไทย',
  emoji: '👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \u200b\ufeff',
  controls: '\u0000\u0001\u001f\u007f\u0085',
  json: '{"a": ["\\u0041", "\\\\", "/"]}',
  specials: '<|im_start|>user\nhi<|im_end|><|bos|><|eos|><|pad|>',
  almost: '<|im_end| > <|im_en <|nothing|>',
})) {
  test(`tokenize and detokenize: ${what} comes back as it was`, async () => {
    for (const parse_special of [true, false]) {
      const { status, json } = await post('/tokenize', { content: text, parse_special });
      assert.equal(status, 200);
      const back = await post('/detokenize', { tokens: json.tokens });
      assert.equal(back.json.content, text);
      const pieces = (await post('/tokenize', { content: text, parse_special, with_pieces: true })).json.tokens;
      assert.deepEqual(pieces.map((each) => each.id), json.tokens);
      const bytes = pieces.map((each) => Buffer.from(each.piece));
      assert.equal(Buffer.concat(bytes).toString(), text);
    }
  });
}

test('tokenize: special tokens are text if so asked', async () => {
  // Made models have a token of its own for a special one that is only mentioned.
  const [parsed, plain] = await Promise.all([true, false].map(async (parse_special) =>
    (await post('/tokenize', { content: '<|im_end|>', parse_special })).json.tokens));
  assert.deepEqual([parsed, plain], [[259], [264]]);
});

test('tokenize and detokenize: what is wrong is named', async () => {
  assert.equal((await post('/tokenize', {})).json.error.param, 'content');
  assert.equal((await post('/tokenize', { content: 7 })).json.error.param, 'content');
  assert.equal((await post('/tokenize', { content: 'a', add: 1 })).json.error.param, 'add');
  assert.equal((await post('/detokenize', { tokens: 'a' })).json.error.param, 'tokens');
  assert.equal((await post('/detokenize', { tokens: [99999] })).json.error.param, 'tokens');
  assert.equal((await post('/detokenize', { tokens: [-1] })).json.error.param, 'tokens');
  // Half a character is no UTF-8; the answer still is.
  const half = await post('/detokenize', { tokens: [0xc3] });
  assert.equal(half.json.content, '\ufffd');
});

test('apply-template: the prompt as the model would get it', async () => {
  const { json } = await post('/apply-template', { messages: [system('Be.'), user('Hello')] });
  assert.equal(json.prompt,
    '<|bos|><|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n');
  const bare = await post('/apply-template', { messages: [user('Hello')], add_generation_prompt: false });
  assert.equal(bare.json.prompt, '<|bos|><|im_start|>user\nHello<|im_end|>\n');
});

// ---- What is cached --------------------------------------------------------------------------------------

test('cache: counts turns and tokens', async () => {
  const first = (await curl('/cache')).json;
  await post('/v1/chat/completions', chat({ messages: [user('Count this.')] }));
  await post('/v1/chat/completions', chat({ messages: [user('Count this.')] }));
  const { json } = await curl('/cache');
  assert.equal(json.turns, first.turns + 2);
  assert.ok(json.reused_tokens >= first.reused_tokens + 29);
  assert.equal(json.reused_tokens + json.evaluated_tokens, json.prompt_tokens);
  assert.ok(json.hit_ratio > 0 && json.hit_ratio < 1);
  assert.equal(json.context_tokens, 8192);
});

test('cache/entries, cache/save, cache/reset: seen, kept, gone', async () => {
  const long = chat({ messages: [user('Something to remember, long enough to be worth a segment or two. '.repeat(3))] });
  await post('/v1/chat/completions', long);
  const kinds = async () => (await curl('/cache/entries')).json.entries.map((each) => each.kind);
  assert.ok((await kinds()).includes('live'));
  const saved = await post('/cache/save', '');
  assert.equal(saved.status, 200);
  assert.equal(typeof saved.json.bytes, 'number');
  assert.ok((await kinds()).includes('segments'));
  const again = (await post('/v1/chat/completions', long)).json.usage;
  assert.equal(again.prompt_tokens_details.cached_tokens, again.prompt_tokens - 1);
  for (const where of ['/cache/reset', '/reset_prefix_cache']) {
    assert.equal((await post(where, '')).status, 200);
    assert.deepEqual(await kinds(), []);
    const anew = (await post('/v1/chat/completions', long)).json.usage;
    assert.equal(anew.prompt_tokens_details.cached_tokens, 0);
  }
});

test('cache/warm and cache/pin: computed before anybody asks', async () => {
  for (const where of ['/cache/warm', '/cache/pin']) {
    const rules = system(`The rules of ${where}: be brief, be kind, be right.`);
    const warmed = await post(where, { messages: [rules] });
    assert.equal(warmed.status, 200, warmed.body);
    assert.ok(warmed.json.tokens > rules.content.length);
    const { usage } = (await post('/v1/chat/completions', chat({ messages: [rules, user('Hi')] }))).json;
    assert.ok(usage.prompt_tokens_details.cached_tokens >= warmed.json.tokens, JSON.stringify(usage));
    const text = await post(where, { prompt: `A text of ${where}` });
    assert.equal(text.json.tokens, `A text of ${where}`.length);
    assert.equal((await post(where, { prompt: '' })).status, 400);
    assert.equal((await post(where, { messages: [] })).status, 400);
    assert.equal((await post(where, { prompt: 'x'.repeat(9000) })).json.error.code, 'context_length_exceeded');
  }
  assert.ok(await server.idle());
});

// ---- No request at all -----------------------------------------------------------------------------------

test('404 and 405: say what there is', async () => {
  const lost = await curl('/v2/chat');
  assert.equal(lost.status, 404);
  assert.match(lost.json.error.message, /\/v2\/chat/);
  const wrong = await curl('/v1/chat/completions');
  assert.deepEqual([wrong.status, wrong.headers.allow], [405, 'POST']);
  const worse = await curl('/health', '-X', 'DELETE');
  assert.deepEqual([worse.status, worse.headers.allow], [405, 'GET']);
});

for (const [what, body, code] of [
  ['no body', '', 'invalid_json'],
  ['half of one', '{"messages":[{"role":"us', 'invalid_json'],
  ['two', '{"messages":[]}{}', 'invalid_json'],
  ['a list', '[]', 'invalid_type'],
  ['a number that is none', '{"temperature":NaN}', 'invalid_json'],
  ['a name twice', '{"max_tokens":1,"max_tokens":2,"messages":[{"role":"user","content":"a"}]}', undefined],
  ['very deep', `{"messages":${'['.repeat(5000)}${']'.repeat(5000)}}`, 'invalid_json'],
  ['half a surrogate', '{"messages":[{"role":"user","content":"\\ud800"}]}', 'invalid_json'],
]) {
  test(`malformed JSON, ${what}: 400`, async () => {
    const answer = await postFile('/v1/chat/completions', body);
    assert.equal(answer.status, 400, answer.body);
    assert.equal(answer.json.error.type, 'invalid_request_error');
    if (code !== undefined) assert.equal(answer.json.error.code, code, answer.body);
  });
}

test('invalid UTF-8: 400, on every route with a body', async () => {
  const broken = Buffer.from('{"content":"a\xff\xfe","prompt":"\xc3"}', 'latin1');
  for (const where of ['/v1/chat/completions', '/v1/completions', '/tokenize', '/detokenize', '/apply-template', '/cache/warm']) {
    const answer = await postFile(where, broken);
    assert.equal(answer.status, 400, where);
    assert.equal(answer.json.error.code, 'invalid_json', where);
  }
});

test('a body that is too large: 413, whether or not its length was said', async () => {
  const huge = JSON.stringify(chat({ messages: [user('x'.repeat(1 << 20))] }));
  writeFileSync(inFolder('huge'), huge);
  for (const words of [[], ['-H', 'Transfer-Encoding: chunked']]) {
    const answer = await curl('/v1/chat/completions', '-X', 'POST', ...words, '--data-binary', `@${inFolder('huge')}`);
    assert.equal(answer.status, 413);
    assert.match(answer.json.error.message, /more than 1048576 bytes.*--body-bytes/);
  }
  assert.equal((await curl('/health')).status, 200);
});

test('a head that is too large: 431', async () => {
  const answer = await curl('/health', '-H', `X-Long: ${'x'.repeat(9000)}`);
  assert.equal(answer.status, 431);
  assert.match(answer.json.error.message, /more than 8192 bytes.*--header-bytes/);
});

test('pages of other origins: told what they may do', async () => {
  const asked = await curl('/v1/chat/completions', '-X', 'OPTIONS', '-H', 'Origin: https://page.test',
    '-H', 'Access-Control-Request-Method: POST');
  assert.ok(asked.status === 204 || asked.status === 200);
  assert.equal(asked.headers['access-control-allow-origin'], 'https://page.test');
});

test('pages of other origins: cannot change what is cached', async () => {
  const reset = (...words) => curl('/cache/reset', '-d', '{}', ...words);
  const refused = await reset('-H', 'Origin: https://other.test');
  assert.deepEqual([refused.status, refused.json.error.code], [403, 'cross_site']);
  // A page whose own name was made to point here.
  assert.equal((await reset('-H', 'Origin: http://other.test', '-H', 'Host: other.test')).status, 403);
  assert.equal((await reset('-H', 'Origin: https://page.test')).status, 200);
  assert.equal((await reset()).status, 200);
});

test('refusals: counted, logged, with the id of the request', async () => {
  const answer = await curl('/v1/completions', '-d', '{"prompt":1.5}', '-H', 'X-Request-Id: refused-1');
  assert.deepEqual([answer.status, answer.headers['x-request-id']], [400, 'refused-1']);
  assert.match((await curl('/nowhere')).headers['x-request-id'], /^[0-9a-f]{32}$/);
  assert.match((await curl('/metrics')).body, /^stemma_http_responses_total\{route="\/v1\/completions",status="400"\} [1-9]/m);
  const line = / request path=\/v1\/completions method=POST status=400 client=127\.0\.0\.1:\d+ request_id=refused-1 error="/;
  assert.ok(await eventually(() => line.test(server.log)), server.log);
});
