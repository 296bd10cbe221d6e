// The server as OpenAI's own client sees it: completions of texts, and embeddings.
import assert from 'node:assert/strict';
import { before } from 'node:test';
import { client, collect, joined, refused, text } from './openai.mjs';
import { exact, serve, test, user } from './support.mjs';

let server;
let openai;
before(async () => {
  server = await serve('llama', [...exact, '--alias', 'tiny', '--context', '2048']);
  openai = client(server);
});

const complete = (more = {}) =>
  openai.completions.create({ model: 'tiny', prompt: 'Once upon', max_tokens: 20, temperature: 0, ...more });

// ---- Completions -------------------------------------------------------------------------------------------

test('a completion goes on from a text', async () => {
  const answer = await complete();
  assert.match(answer.id, /^cmpl-/);
  assert.equal(answer.object, 'text_completion');
  assert.equal(answer.usage.prompt_tokens, 'Once upon'.length);
  const ending = answer.choices[0].finish_reason === 'stop' ? 1 : 0; // A token, and no text.
  assert.equal(answer.usage.completion_tokens, text(answer).length + ending);
  const events = await collect(await complete({ stream: true }));
  assert.equal(joined(events), text(answer));
  assert.equal(text(await complete({ prompt: ['Once upon'] })), text(answer));
});

test('prompt: tokens are the text that they are', async () => {
  const tokens = [...Buffer.from('Once upon')];
  assert.deepEqual(await server.tokens('Once upon'), tokens);
  const answer = await complete({ prompt: tokens });
  assert.equal(text(answer), text(await complete()));
  assert.equal(text(await complete({ prompt: [tokens] })), text(answer));
  await refused(complete({ prompt: [1, 99999] }), 400, { param: 'prompt' });
  await refused(complete({ prompt: '' }), 400, { param: 'prompt' });
  await refused(complete({ prompt: [] }), 400, { param: 'prompt' });
});

test('echo: the prompt comes first, also in a stream and for tokens', async () => {
  const plain = text(await complete());
  assert.equal(text(await complete({ echo: true })), `Once upon${plain}`);
  assert.equal(joined(await collect(await complete({ echo: true, stream: true }))), `Once upon${plain}`);
  assert.equal(text(await complete({ echo: true, prompt: [...Buffer.from('Once upon')] })), `Once upon${plain}`);
  assert.equal(text(await complete({ echo: true, max_tokens: 0 })), 'Once upon');
});

test('logprobs: as completions have them', async () => {
  const answer = await complete({ logprobs: 3 });
  const { tokens, token_logprobs, top_logprobs, text_offset } = answer.choices[0].logprobs;
  assert.equal(tokens.join(''), text(answer));
  assert.equal(token_logprobs.length, tokens.length);
  assert.deepEqual(text_offset, tokens.map((_, i) => i));
  for (const [i, others] of top_logprobs.entries()) {
    assert.ok(Object.keys(others).length <= 3);
    assert.equal(others[tokens[i]], token_logprobs[i]);
  }
});

test('logprobs and echo: those of the prompt come first, and are those of the same text as an answer', async () => {
  const said = await complete({ logprobs: 2, max_tokens: 6 });
  const prompt = `Once upon${text(said)}`;
  const asked = { prompt, echo: true, logprobs: 2, max_tokens: 2 };
  for (const max_tokens of [0, 2]) {
    const answer = await complete({ ...asked, max_tokens });
    const { tokens, token_logprobs, top_logprobs, text_offset } = answer.choices[0].logprobs;
    assert.equal(tokens.join(''), text(answer));
    assert.equal(tokens.length, prompt.length + max_tokens);
    assert.deepEqual(text_offset, tokens.map((_, i) => i));
    assert.deepEqual([token_logprobs[0], top_logprobs[0]], [null, null]);
    for (const [i, logprob] of said.choices[0].logprobs.token_logprobs.entries()) {
      const again = token_logprobs['Once upon'.length + i];
      assert.ok(Math.abs(again - logprob) < 0.05, `${again} is not ${logprob}`);
    }
    assert.equal(answer.usage.prompt_tokens_details.cached_tokens, 0);
  }
  // In a stream they come with the prompt, for every choice.
  const events = await collect(await complete({ ...asked, n: 2, stream: true }));
  for (const index of [0, 1]) {
    const pieces = events.flatMap((event) => event.choices).filter((choice) => choice.index === index && choice.logprobs);
    assert.equal(pieces[0].text, prompt);
    assert.equal(pieces[0].logprobs.tokens.length, prompt.length);
    assert.deepEqual(pieces.flatMap((piece) => piece.logprobs.text_offset), [...Array(prompt.length + 2).keys()]);
  }
});

// ---- Embeddings ------------------------------------------------------------------------------------------

test('embeddings: as numbers and as bytes, of texts and of tokens, and refused where there are none', async () => {
  const guarded = await serve('llama', [...exact, '--alias', 'tiny', '--context', '2048', '--embeddings', 'mean']);
  const { embeddings } = client(guarded);
  const input = ['The sea is blue.', 'The sea is blue', 'Why?'];
  // The client asks for base64 unless it is told otherwise.
  const packed = await embeddings.create({ model: 'tiny', input });
  const plain = await embeddings.create({ model: 'tiny', input, encoding_format: 'float' });
  assert.deepEqual(packed.data.map((each) => each.index), [0, 1, 2]);
  assert.deepEqual(plain.data.map((each) => each.embedding.map(Math.fround)), packed.data.map((each) => each.embedding));
  assert.equal(packed.usage.total_tokens, packed.usage.prompt_tokens);
  const dot = (one, other) => one.reduce((sum, each, i) => sum + each * other[i], 0);
  const [sea, near, why] = plain.data.map((each) => each.embedding);
  assert.ok(Math.abs(dot(sea, sea) - 1) < 1e-5);
  assert.ok(dot(sea, near) > dot(sea, why), `${dot(sea, near)} ${dot(sea, why)}`);
  const tokens = await guarded.tokens(input[2], { add_special: true });
  const same = await embeddings.create({ model: 'tiny', input: tokens, encoding_format: 'float' });
  assert.deepEqual(same.data[0].embedding, why);
  // Answers are computed beside them.
  const [answer] = await Promise.all([
    guarded.chat([user('Hello')]), embeddings.create({ model: 'tiny', input: Array(20).fill('x '.repeat(300)) })]);
  assert.equal(answer.text, (await guarded.chat([user('Hello')], { cache_prompt: false })).text);
  await refused(embeddings.create({ model: 'tiny', input: 'x', dimensions: 8 }), 400, { param: 'dimensions' });
  await refused(embeddings.create({ model: 'tiny', input: 'x'.repeat(5000) }), 400, { code: 'context_length_exceeded' });
  await refused(openai.embeddings.create({ model: 'tiny', input: 'x' }), 400, { code: 'embeddings_disabled', says: /--embeddings/ });
  await guarded.stop();
});
