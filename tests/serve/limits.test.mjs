// Where something is full, and settings that change how the cache works: answers stay what they are.
import assert from 'node:assert/strict';
import net from 'node:net';
import { assistant, endless, eventually, exact, kinds, roomForEndless, serve, system, test, user } from './support.mjs';

const rules = system('You are a careful assistant who answers in short sentences and never guesses. '.repeat(2));

for (const kind of kinds) {
  test(`${kind}: answers that had to give way go on as if nothing had been`, async () => {
    const [tight, roomy] = await Promise.all([
      serve(kind, [...exact, '--context', '400']),
      serve(kind, [...exact, '--context', '4096', '--reuse', 'disabled', '--sequences', '1']),
    ]);
    const asked = { ignore_eos: true, max_tokens: 170 };
    const talks = ['Hello', 'xyz', 'Why?', 'One two three', 'Describe the sea', 'Go'].map((each) => [user(each)]);
    const together = await Promise.all(talks.map((talk) => tight.chat(talk, asked)));
    for (const [i, talk] of talks.entries()) {
      const alone = await roomy.chat(talk, asked);
      assert.equal(together[i].text, alone.text, talk[0].content);
      assert.equal(together[i].generated, 170);
    }
    // The context has 512 positions; four choices of 170 tokens do not fit. Whether one of them has to give way, or
    // waits until another has ended, depends on when each of them begins: ask until one gave way.
    const several = async () => {
      const { choices } = await tight.chat(talks[0], { ...asked, n: 4 });
      for (const choice of choices) assert.equal(choice.message.content, together[0].text);
      return kind !== 'llama' || (await tight.metric('stemma_suspensions_total')) > 0;
    };
    assert.ok(await eventually(several), 'nobody gave way');
    assert.equal(await tight.metric('stemma_failed_passes_total'), 0);
    assert.ok(await tight.idle());
    await Promise.all([tight.stop(), roomy.stop()]);
  });
}

for (const [name, flags] of Object.entries({
  'a context of its own for each sequence': ['--split-context', 'on', '--context', '4096'],
  'only what sequences hold': ['--reuse', 'live'],
  'only what is saved': ['--reuse', 'saved'],
  'one sequence': ['--sequences', '1'],
  'checkpoints every 32 tokens': ['--interval-tokens', '32'],
  'no memory for what is saved': ['--saved-bytes', '0'],
  'little memory for what is saved': ['--saved-bytes', '64KiB'],
  'small segments': ['--segment-tokens', '16'],
  'small passes': ['--batch', '16'],
  'K in eight bits': ['--k-type', 'q8_0'],
})) {
  test(`${name}: the same answers`, async () => {
    for (const kind of ['llama', 'hybrid']) {
      const same = [...exact, '--context', '2048', ...flags];
      const [server, plain] = await Promise.all([
        serve(kind, same, { measure: true }),
        serve(kind, [...same, '--reuse', 'disabled']),
      ]);
      const talk = [rules, user('Hello')];
      for (let turn = 0; turn < 3; ++turn) {
        const [reused, computed] = await Promise.all([server.chat(talk), plain.chat(talk)]);
        assert.equal(reused.text, computed.text, `${kind}, turn ${turn}: ${JSON.stringify(reused.stemma)}`);
        assert.equal(computed.cached, 0);
        const [again] = await Promise.all([server.chat(talk), server.chat([rules, user(`By the way, ${turn}`)])]);
        assert.equal(again.text, computed.text, `${kind}, again: ${JSON.stringify(again.stemma)}`);
        talk.push(assistant(reused.text), user('And then?'));
      }
      await Promise.all([server.stop(), plain.stop()]);
    }
  });
}

test('a full queue: 503, when to come again, and everybody else is answered', async () => {
  const server = await serve('llama', [...exact, ...roomForEndless, '--sequences', '1', '--queue', '2']);
  const body = { messages: [user('Hello')], max_tokens: 20, temperature: 0 };
  const abort = new AbortController();
  const long = JSON.stringify({ ...body, ...endless, stream: true });
  const first = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body: long, signal: abort.signal });
  await first.body.getReader().read();
  const asked = Array.from({ length: 8 }, () => server.post('/v1/chat/completions', body));
  assert.ok(await eventually(async () => (await server.metric('stemma_requests_refused_total')) >= 5));
  abort.abort();
  const answers = await Promise.all(asked);
  const refused = answers.filter((answer) => answer.status === 503);
  const taken = answers.filter((answer) => answer.status === 200);
  assert.equal(refused.length + taken.length, 8);
  assert.ok(taken.length >= 2, `${taken.length} taken`);
  for (const answer of refused) {
    assert.equal(answer.headers.get('retry-after'), '1');
    assert.equal(answer.json.error.code, 'overloaded');
  }
  assert.equal(new Set(taken.map((answer) => answer.json.choices[0].message.content)).size, 1);
  assert.equal(await server.metric('stemma_requests_refused_total'), refused.length);
  assert.ok(await server.idle());
  await server.stop();
});

test('clients that go away while they wait leave nothing behind', async () => {
  const server = await serve('llama', ['--sequences', '1', ...roomForEndless]);
  const body = JSON.stringify({ messages: [user('Hello')], ...endless });
  const abort = new AbortController();
  const asked = Array.from({ length: 5 }, () =>
    fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body, signal: abort.signal }));
  assert.ok(await eventually(async () => (await server.metric('stemma_requests_waiting')) === 4));
  abort.abort();
  for (const each of asked) await assert.rejects(each);
  assert.ok(await eventually(async () => (await server.metric('stemma_requests_waiting')) === 0));
  assert.ok(await server.idle());
  assert.match((await server.get('/metrics')).text, /ended_total\{how="cancelled"\} 5\n/);
  assert.equal((await server.chat([user('Hello')])).generated, 24);
  await server.stop();
});

test('a stream that waits says that it is there; who closes only his side is answered', async () => {
  const server = await serve('llama', ['--sequences', '1', ...roomForEndless, '--keep-alive-seconds', '1']);
  const body = JSON.stringify({ messages: [user('Hello')], max_tokens: 8, temperature: 0, stream: true });
  const long = JSON.stringify({ messages: [user('Hi')], ...endless, stream: true });
  const abort = new AbortController();
  const first = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body: long, signal: abort.signal });
  await first.body.getReader().read();
  const { hostname, port } = new URL(server.url);
  // A client that has nothing more to ask, and listens.
  const ask = (text) => {
    const client = { said: '' };
    client.socket = net.connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    client.socket.setEncoding('utf8').on('data', (data) => (client.said += data));
    client.ended = new Promise((tell) => client.socket.on('end', tell));
    client.socket.end(`POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: ${text.length}\r\n` +
      `Connection: close\r\n\r\n${text}`);
    return client;
  };
  const stream = ask(body);
  const whole = ask(body.replace(',"stream":true', ''));
  const leaving = ask(body);
  assert.ok(await eventually(async () => (await server.metric('stemma_requests_waiting')) === 3));
  assert.ok(await eventually(() => (stream.said.match(/: keep-alive\n\n/g) ?? []).length >= 2), stream.said);
  assert.match(stream.said, /^(HTTP\/1.1 100 Continue\r\n\r\n)*HTTP\/1.1 200 OK\r\n/);
  leaving.socket.destroy();
  assert.ok(await eventually(async () => (await server.metric('stemma_requests_waiting')) === 2, 20), 'it is gone');
  abort.abort();
  await Promise.all([stream.ended, whole.ended]);
  assert.match(stream.said, /data: \[DONE\]\n\n/);
  assert.match(whole.said, /^(HTTP\/1.1 100 Continue\r\n\r\n)+HTTP\/1.1 200 OK\r\n/);
  assert.match(whole.said, /"finish_reason":/);
  assert.ok(await server.idle());
  await server.stop();
});

test('bytes that are no text come out as text, whole and in a stream', async () => {
  const server = await serve('llama', [...exact, '--context', '1024']);
  // é in halves, the beginning of € without its end, a byte that no character has, and nothing else.
  const spoken = [0xc3, 0xa9, 0xe2, 0x82, 0xff];
  const logit_bias = Object.fromEntries(
    Array.from({ length: 266 }, (_, token) => [token, spoken.includes(token) ? 0 : -100]));
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let strange = '';
  for (let seed = 0; seed < 8; ++seed) {
    const body = { prompt: 'Say: ', max_tokens: 20, temperature: 2, seed, logit_bias, logprobs: 1 };
    const bytes = async (more) => {
      const reply = await fetch(`${server.url}/v1/completions`, { method: 'POST', body: JSON.stringify({ ...body, ...more }) });
      assert.equal(reply.status, 200);
      return decoder.decode(await reply.arrayBuffer());
    };
    const whole = JSON.parse(await bytes()).choices[0];
    const events = (await bytes({ stream: true })).split('\n\n').filter((event) => event.startsWith('data: {'))
      .map((event) => JSON.parse(event.slice(6)).choices[0]);
    assert.equal(events.map((event) => event.text).join(''), whole.text);
    assert.deepEqual(events.flatMap((event) => event.logprobs?.tokens ?? []), whole.logprobs.tokens);
    assert.deepEqual(events.flatMap((event) => event.logprobs?.text_offset ?? []), whole.logprobs.text_offset);
    strange += whole.text;
  }
  assert.match(strange, /\ufffd/);
  assert.match(strange, /é/);
  await server.stop();
});
