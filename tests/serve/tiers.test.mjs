// What one server computed is there for the next: after a restart through a directory, elsewhere through Redis or a
// directory that both have.
import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { assistant, eventually, exact, inFolder, kinds, run, serve, system, test, user } from './support.mjs';

const rules = system('You are a careful assistant who answers in short sentences and never guesses. '.repeat(4));
// A busy machine is not a late tier.
const flags = [...exact, '--context', '4096', '--tier-wait-ms', '20000'];

// A turn, and the next one of the same conversation.
const first = [rules, user('Hello, who are you?')];
const next = (said) => [...first, assistant(said), user('And what can you do?')];

// Everything that the server has computed so far is in the tier.
async function allStored(server, tier) {
  assert.equal((await server.post('/cache/save', {})).status, 200);
  assert.ok(await eventually(async () => (await server.metric(`stemma_tier_waiting{tier="${tier}"}`)) === 0));
}

for (const kind of kinds) {
  test(`${kind}: a server that was restarted goes on where it was`, async () => {
    const disk = ['--disk', inFolder(`disk-${kind}`), '--disk-bytes', '256MiB'];
    const before = await serve(kind, [...flags, ...disk]);
    const said = await before.chat(first);
    assert.equal(await before.stop(), 0);
    const [after, plain] = await Promise.all([
      serve(kind, [...flags, ...disk]),
      serve(kind, [...flags, '--reuse', 'disabled']),
    ]);
    const answer = await after.chat(next(said.text));
    assert.equal(answer.stemma.tier?.name, 'disk', JSON.stringify(answer.stemma));
    assert.ok(answer.cached >= rules.content.length, JSON.stringify(answer.stemma));
    assert.ok(answer.stemma.tier.tokens >= answer.cached);
    assert.equal(answer.text, (await plain.chat(next(said.text))).text);
    // Another tenant finds nothing there.
    const other = await after.chat(next(said.text), { cache_salt: 'somebody else' });
    assert.equal(other.cached, 0, JSON.stringify(other.stemma));
    // It is here now: nobody asks for it again.
    const again = await after.chat(next(said.text));
    assert.equal(again.stemma.tier, undefined);
    assert.ok(again.cached > answer.cached);
    assert.ok((await after.metric('stemma_tier_hits_total{tier="disk"}')) > 0);
    assert.equal(await after.metric('stemma_tier_corrupt_total{tier="disk"}'), 0);
    await Promise.all([after.stop(), plain.stop()]);
  });
}

test("another model's directory is told of, and nothing in it is used or lost", async () => {
  const disk = ['--disk', inFolder('disk-of-two'), '--disk-bytes', '256MiB'];
  const one = await serve('llama', [...flags, ...disk]);
  const said = await one.chat(first);
  assert.equal(await one.stop(), 0);
  const two = await serve('window', [...flags, ...disk]);
  assert.match(two.log, /disk: \d+ of these entries \(\d+ bytes\) are another model's/);
  assert.equal((await two.chat(first)).cached, 0);
  assert.equal(await two.stop(), 0);
  const again = await serve('llama', [...flags, ...disk]);
  assert.match(again.log, /disk: \d+ of these entries/);
  assert.equal((await again.chat(next(said.text))).stemma.tier?.name, 'disk');
  await again.stop();
});

// Memory for two or three conversations.
for (const kind of kinds) {
  test(`${kind}: a disk that is written back has what left memory, and all at the end`, async () => {
    const back = ['--disk', inFolder(`back-${kind}`), '--disk-bytes', '256MiB', '--disk-write', 'back'];
    const small = [...flags, ...back, '--sequences', '1', '--saved-bytes', kind === 'recurrent' ? '160KiB' : '400KiB'];
    const server = await serve(kind, small);
    const plain = await serve(kind, [...flags, '--reuse', 'disabled']);
    const said = await server.chat(first);
    const others = ['Alpha', 'Bravo', 'Charlie', 'Delta', 'Echo', 'Foxtrot'].map((word) => [
      system(`${word} is the word of the day, and nobody knows why. `.repeat(5)),
      user('Hello?'),
    ]);
    for (const other of others) await server.chat(other);
    assert.ok(await eventually(async () => (await server.metric('stemma_tier_written_back_total{tier="disk"}')) > 0));
    assert.ok(await eventually(async () => (await server.metric('stemma_tier_waiting{tier="disk"}')) === 0));
    const answer = await server.chat(next(said.text));
    assert.equal(answer.stemma.tier?.name, 'disk', JSON.stringify(answer.stemma));
    const expected = await plain.chat(next(said.text));
    assert.equal(answer.text, expected.text);
    const saved = await server.post('/cache/save', {});
    assert.equal(saved.json.in_tiers, true, JSON.stringify(saved.json));
    assert.ok(saved.json.written_back > 0, JSON.stringify(saved.json));
    const [disk] = saved.json.tiers;
    assert.deepEqual([disk.name, disk.stored > 0, disk.waiting, disk.lost], ['disk', true, 0, 0]);
    // What came after that is there too when it ended in order.
    const last = [system('One more rule, which no other conversation has. '.repeat(6)), user('Who is there?')];
    const lastSaid = await server.chat(last);
    assert.equal(await server.stop(), 0);
    assert.match(server.log, /written back parts=[1-9]/);
    const after = await serve(kind, small);
    const goOn = [...last, assistant(lastSaid.text), user('And who else?')];
    const resumed = await after.chat(goOn);
    assert.equal(resumed.stemma.tier?.name, 'disk', JSON.stringify(resumed.stemma));
    assert.equal(resumed.text, (await plain.chat(goOn)).text);
    await Promise.all([after.stop(), plain.stop()]);
  });
}

test('a disk of second use is spared prompts that never come back', async () => {
  const disk = ['--disk', inFolder('second-use'), '--disk-bytes', '64MiB', '--disk-write', 'second-use'];
  const server = await serve('llama', [...flags, ...disk]);
  const said = await server.chat(first);
  await allStored(server, 'disk');
  assert.equal(await server.metric('stemma_tier_stored_total{tier="disk"}'), 0);
  await server.chat(next(said.text));
  await allStored(server, 'disk');
  assert.ok((await server.metric('stemma_tier_stored_total{tier="disk"}')) > 0);
  await server.stop();
  const wrong = run(['serve', '--disk-write', 'never']);
  assert.equal(wrong.status, 2);
  assert.match(wrong.stderr, /--disk-write takes through, back or second-use, not 'never'/);
});

test('a directory belongs to one server at a time, and to nobody else', async () => {
  const folder = inFolder('one-at-a-time');
  const disk = ['--disk', folder, '--disk-bytes', '64MiB'];
  const server = await serve('llama', disk);
  assert.equal(statSync(folder).mode & 0o777, 0o700);
  for (const file of readdirSync(folder)) assert.equal(statSync(`${folder}/${file}`).mode & 0o077, 0, file);
  // A second one, as when a new version is started before the old one is stopped, runs without it and then takes it over.
  const said = await server.chat(first);
  const second = await serve('llama', disk);
  assert.match(second.log, /warning: --disk .*another process.*runs without it/);
  assert.equal(await second.metric('stemma_tier_up{tier="disk"}'), 0);
  assert.equal((await second.chat(first)).text, said.text);
  await allStored(server, 'disk');
  await server.stop();
  assert.ok(await eventually(async () => (await second.metric('stemma_tier_up{tier="disk"}')) === 1), second.log);
  // The line is written beside the answers, and may come a moment later.
  assert.ok(await eventually(() => /disk: opened, with [1-9]\d* entries/.test(second.log)), second.log);
  await second.stop();
});

test('a server whose directory cannot be opened starts without it, and uses it when it can', async () => {
  const folder = inFolder('somewhere');
  const server = await serve('llama', ['--disk', `${folder}/store`, '--disk-bytes', '64MiB']);
  assert.match(server.log, /warning: --disk .*somewhere.*runs without it/);
  assert.equal((await server.chat(first)).cached, 0);
  mkdirSync(folder);
  assert.ok(await eventually(async () => (await server.metric('stemma_tier_up{tier="disk"}')) === 1), server.log);
  await server.chat([system('Another rule. '.repeat(40)), user('Hello.')]);
  await server.post('/cache/save', {});
  assert.ok((await server.metric('stemma_tier_entries{tier="disk"}')) > 0);
  await server.stop();
});

test('a server of a small shared directory tells the others what it uses', async () => {
  const folder = inFolder('shared-small');
  const shared = [...flags, '--shared-dir', folder, '--shared-bytes', '64MiB'];
  const before = await serve('llama', shared);
  const said = await before.chat(first);
  await allStored(before, 'shared');
  await before.stop();
  const files = () =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((one) => one.isFile())
      .map((one) => `${one.parentPath ?? one.path}/${one.name}`);
  const now = Date.now() / 1000;
  const stored = files();
  for (const file of stored) utimesSync(file, now - 30, now - 30);
  const after = await serve('llama', shared);
  assert.equal((await after.chat(next(said.text))).stemma.tier?.name, 'shared');
  // The file's time is all that another server knows of a use.
  const used = () => stored.filter((file) => statSync(file).mtimeMs / 1000 > now - 15).length;
  const read = await after.metric('stemma_tier_hits_total{tier="shared"}');
  assert.ok(read > 0);
  assert.ok(await eventually(() => used() >= read), `${used()} of ${read}`);
  await after.stop();
});

test('a directory that was made for small entries takes large ones', async () => {
  const disk = ['--disk', inFolder('for-small-ones')];
  const small = await serve('llama', [...disk, '--disk-bytes', '16MiB', '--segment-tokens', '1', '--context', '256']);
  await small.stop();
  const large = await serve('llama', [...flags, ...disk, '--disk-bytes', '64MiB', '--segment-tokens', '256']);
  await large.chat(first);
  await allStored(large, 'disk');
  assert.ok((await large.metric('stemma_tier_entries{tier="disk"}')) > 0);
  assert.equal(await large.metric('stemma_tier_lost_total{tier="disk"}'), 0);
  await large.stop();
  await assert.rejects(serve('llama', [...disk, '--disk-bytes', '4096']), /--disk-bytes is 4096/);
});

test('a server whose Redis is away, or wrong, serves all the same', async () => {
  await assert.rejects(serve('llama', ['--redis', 'http://localhost']), /--redis/);
  const server = await serve('llama', [...flags, '--redis', 'redis://:secret@127.0.0.1:1']);
  assert.ok(!server.log.includes('secret'), server.log);
  const answer = await server.chat(first);
  assert.ok(answer.generated > 0);
  assert.ok((await server.chat(first)).cached > 0);
  await server.stop();
});

// A port that is none of those which the system gives to outgoing connections; some other server may have it.
function somePort() {
  const [low, high] = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s+/).map(Number);
  for (let tries = 0; ; ++tries) {
    const port = randomInt(10_000, 65_000);
    if (port < low || port > high || tries > 1000) return port;
  }
}

// In a cluster it has a port for the other nodes, too.
async function redis({ inCluster = false } = {}) {
  let said = '';
  // One that finds its ports taken ends, and another is started.
  for (let tries = 0; tries < 10; ++tries) {
    const port = somePort();
    const folder = inFolder(`redis-${port}`);
    mkdirSync(folder, { recursive: true });
    const words = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--appendonly', 'no'];
    // A handshake of nodes that takes longer than the timeout is given up for good.
    if (inCluster) words.push('--cluster-enabled', 'yes', '--cluster-port', `${somePort()}`, '--cluster-node-timeout', '30000');
    const child = spawn('redis-server', words, { stdio: ['ignore', 'pipe', 'ignore'] });
    said = '';
    child.stdout.setEncoding('utf8').on('data', (text) => (said += text));
    const ready = () => said.includes('Ready to accept connections');
    await eventually(() => ready() || child.exitCode !== null);
    const address = `127.0.0.1:${port}`;
    if (ready()) return { port, address, url: `redis://${address}`, stop: () => child.kill('SIGKILL') };
    child.kill('SIGKILL');
  }
  assert.fail(`no Redis comes up: ${said}`);
}

// Three nodes that share the slots.
async function cluster() {
  const nodes = [];
  while (nodes.length < 3) nodes.push(await redis({ inCluster: true }));
  const cli = (...words) => promisify(execFile)('redis-cli', words);
  const addresses = nodes.map((node) => node.address);
  await cli('--cluster', 'create', ...addresses, '--cluster-yes');
  for (const node of nodes) {
    const formed = async () => (await cli('-p', `${node.port}`, 'cluster', 'info')).stdout.includes('cluster_state:ok');
    assert.ok(await eventually(formed));
  }
  return { nodes, url: `redis://${addresses.join(',')}`, stop: () => nodes.forEach((node) => node.stop()) };
}

// A conversation that is begun at one server goes on at another, and one behind the same system prompt at a third.
async function goesOnElsewhere(kind, url) {
  const more = ['--redis', url];
  const [here, there, elsewhere, plain] = await Promise.all([
    serve(kind, [...flags, ...more]),
    serve(kind, [...flags, ...more]),
    serve(kind, [...flags, ...more]),
    serve(kind, [...flags, '--reuse', 'disabled']),
  ]);
  const said = await here.chat(first);
  await allStored(here, 'redis');
  const answer = await there.chat(next(said.text));
  assert.equal(answer.stemma.tier?.name, 'redis', JSON.stringify(answer.stemma));
  assert.ok(answer.cached >= rules.content.length, JSON.stringify(answer.stemma));
  assert.equal(answer.text, (await plain.chat(next(said.text))).text);
  const other = [rules, user('Good evening. Which day is it?')];
  const theirs = await elsewhere.chat(other);
  assert.equal(theirs.stemma.tier?.name, 'redis', JSON.stringify(theirs.stemma));
  // (Memory that can go back anywhere finds whole segments of 64 tokens.)
  assert.ok(theirs.cached >= rules.content.length - 64, JSON.stringify(theirs.stemma));
  assert.equal(theirs.text, (await plain.chat(other)).text);
  return { servers: [here, there, elsewhere, plain], text: answer.text };
}

for (const kind of kinds) {
  test(`${kind}: a conversation goes on at another server of the same Redis`, async () => {
    const shared = await redis();
    try {
      const { servers } = await goesOnElsewhere(kind, shared.url);
      await Promise.all(servers.map((server) => server.stop()));
    } finally {
      shared.stop();
    }
  });
}

test('a conversation goes on at another server of the same cluster, and without it', async () => {
  const shared = await cluster();
  try {
    const { servers, text } = await goesOnElsewhere('hybrid', shared.url);
    const [here, there, elsewhere] = servers;
    // Other prompts, whose entries were on all nodes: with one node gone, and with all.
    for (const [index, node] of shared.nodes.entries()) {
      node.stop();
      const asked = [rules, user(`Which number comes after ${index}?`)];
      const [first, second] = [await here.chat(asked), await there.chat(asked)];
      assert.equal(first.text, second.text);
    }
    assert.ok((await elsewhere.chat([rules, assistant(text), user('And then?')])).generated > 0);
    await Promise.all(servers.map((server) => server.stop()));
  } finally {
    shared.stop();
  }
});

// ---- A disk that goes away -------------------------------------------------------------------------------

// Many different prompts, so that there is something to be written.
async function talkMuch(server, rounds) {
  for (let round = 0; round < rounds; ++round) {
    const about = system(`You are assistant number ${round}. `.repeat(40));
    assert.equal((await server.chat([about, user('Hello.')], { max_tokens: 1 })).generated, 1);
  }
  await server.post('/cache/save', {});
}

test('a server whose directory is removed serves all the same', async () => {
  const folder = inFolder('goes-away');
  const server = await serve('llama', [...flags, '--disk', folder, '--disk-bytes', '64MiB']);
  const said = await server.chat(first);
  rmSync(folder, { recursive: true });
  await talkMuch(server, 8);
  assert.ok(await eventually(() => server.log.includes('its files were removed')), server.log);
  assert.ok((await server.chat(next(said.text))).cached > 0);
  assert.equal((await server.get('/health')).status, 200);
  assert.equal(await server.stop(), 0);
});

test('a server whose file system is full serves all the same, and keeps what fits', async (t) => {
  const folder = inFolder('small');
  mkdirSync(folder);
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=6m', 'none', folder]).status === 0;
  if (!mounted) return t.skip('may not mount a small file system');
  try {
    const disk = ['--disk', `${folder}/store`, '--disk-bytes', '1GiB'];
    const server = await serve('llama', [...flags, ...disk]);
    const said = await server.chat(first);
    await talkMuch(server, 16);
    assert.ok((await server.chat(next(said.text))).cached > 0);
    await allStored(server, 'disk');
    const stored = await server.metric('stemma_tier_entries{tier="disk"}');
    assert.ok(stored > 0);
    assert.ok((await server.metric('stemma_tier_stored_bytes_total{tier="disk"}')) > 6 << 20, 'too little was written');
    assert.equal(await server.stop(), 0);
    const again = await serve('llama', [...flags, ...disk]);
    assert.ok((await again.metric('stemma_tier_entries{tier="disk"}')) > 0);
    assert.equal(await again.metric('stemma_tier_corrupt_total{tier="disk"}'), 0);
    await again.stop();
  } finally {
    spawnSync('umount', ['-l', folder]);
  }
});

// ---- A directory that servers share ------------------------------------------------------------------------

test('a conversation goes on at another server of the same directory', async () => {
  const folder = inFolder('shared');
  const shared = [...flags, '--shared-dir', folder, '--shared-bytes', '64MiB'];
  const [here, there, plain] = await Promise.all([
    serve('llama', shared),
    serve('llama', shared),
    serve('llama', [...flags, '--reuse', 'disabled']),
  ]);
  const said = await here.chat(first);
  await allStored(here, 'shared');
  const stored = await here.metric('stemma_tier_stored_total{tier="shared"}');
  const answer = await there.chat(next(said.text));
  assert.equal(answer.stemma.tier?.name, 'shared', JSON.stringify(answer.stemma));
  assert.ok(answer.cached >= rules.content.length, JSON.stringify(answer.stemma));
  assert.equal(answer.text, (await plain.chat(next(said.text))).text);
  const other = await there.chat(next(said.text), { cache_salt: 'somebody else' });
  assert.equal(other.cached, 0, JSON.stringify(other.stemma));
  assert.equal(await there.metric('stemma_tier_corrupt_total{tier="shared"}'), 0);
  // Whoever looks after it may look while it is in use.
  const listed = JSON.parse(run(['inspect', folder, 'verify', '--json']).stdout);
  assert.ok(listed.entries >= stored && listed.damaged === 0, JSON.stringify(listed));
  assert.ok(listed.list.every((one) => one.words === 0 && one.state === 'whole'));
  assert.equal(run(['inspect', folder, 'compact']).status, 2);
  assert.equal(statSync(folder).mode & 0o777, 0o700);
  await Promise.all([here.stop(), there.stop(), plain.stop()]);
});

test('a directory of something else is not taken for a shared one', async () => {
  mkdirSync(inFolder('letters'));
  writeFileSync(inFolder('letters/dear.txt'), 'Dear reader');
  await assert.rejects(serve('llama', ['--shared-dir', inFolder('letters')]), /--shared-dir .*other files/);
  // One that cannot be made yet is tried again.
  const server = await serve('llama', ['--shared-dir', inFolder('nowhere/deep/down')]);
  assert.match(server.log, /warning: --shared-dir .*nowhere.*runs without it/);
  await server.stop();
  assert.deepEqual(readdirSync(inFolder('letters')), ['dear.txt']);
});

test('a server whose shared directory is removed serves all the same', async () => {
  const folder = inFolder('removed');
  const server = await serve('llama', [...flags, '--shared-dir', folder]);
  await server.chat(first);
  await allStored(server, 'shared');
  rmSync(folder, { recursive: true, maxRetries: 10, retryDelay: 20 });
  assert.ok((await server.chat(first)).cached > 0);
  assert.ok((await server.chat([rules, user('Something new: tell me of the sea.')])).generated > 0);
  // It is made again, without a restart.
  assert.ok(await eventually(async () => (await server.metric('stemma_tier_up{tier="shared"}')) === 1 && existsSync(folder)));
  await server.stop();
});
