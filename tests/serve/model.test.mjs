// The model that is shipped, as an agent: it decides which tools to call, the tools do real things, and what is left on
// the disk is judged.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ToolLoopAgent, tool } from 'ai';
import { z } from 'zod';
import { inFolder, serve, test } from './support.mjs';

const models = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../models');

function toolsOver(place, calls) {
  const told = (name, run) => async (input) => {
    calls.push(name);
    return run(input);
  };
  const of = (description, fields, name, run) =>
    tool({ description, inputSchema: z.object(fields), execute: told(name, run) });
  const prices = { lantern: '34 euros', kettle: '18 euros' };
  return {
    read_file: of('Reads a file.', { path: z.string() }, 'read_file', (at) => readFileSync(path.join(place, at.path), 'utf8')),
    write_file: of('Writes a file.', { path: z.string(), content: z.string() }, 'write_file', (at) => {
      writeFileSync(path.join(place, at.path), at.content);
      return 'ok';
    }),
    get_price: of('Returns the price of an item.', { item: z.string() }, 'get_price', (at) => prices[at.item] ?? 'unknown'),
  };
}

for (const name of ['llama', 'window', 'hybrid']) {
  test(`${name}: an agent from npm looks something up and writes it to a file`, async () => {
    const server = await serve(null, ['--model', path.join(models, `${name}.gguf`), '--context', '4096', '--sequences', '1']);
    const place = inFolder(`work-${name}`);
    mkdirSync(place);
    writeFileSync(path.join(place, 'garden.txt'), 'Mobram green 204');
    const calls = [];
    const provider = createOpenAICompatible({ name: 'shipped', baseURL: `${server.url}/v1` });
    const agent = new ToolLoopAgent({ model: provider(name), tools: toolsOver(place, calls), temperature: 0 });

    const copied = await agent.generate({ prompt: 'Copy garden.txt to kesbrim.txt.' });
    assert.deepEqual(calls.splice(0), ['read_file', 'write_file']);
    assert.equal(readFileSync(path.join(place, 'kesbrim.txt'), 'utf8'), 'Mobram green 204');
    assert.equal(copied.text, 'I have written kesbrim.txt.');

    const priced = await agent.generate({ prompt: 'Look up the price of lantern and write it to lantern.txt.' });
    assert.deepEqual(calls.splice(0), ['get_price', 'write_file']);
    assert.equal(readFileSync(path.join(place, 'lantern.txt'), 'utf8'), '34 euros');
    assert.equal(priced.text, 'I have written lantern.txt.');

    // Each step computes what is new in it.
    const reused = priced.steps.map((step) => step.usage.cachedInputTokens ?? 0);
    const asked = priced.steps.map((step) => step.usage.inputTokens);
    for (let i = 1; i < asked.length; ++i) {
      assert.ok(reused[i] >= asked[i - 1] - 1, `step ${i} reused ${reused[i]} of ${asked[i]}, before ${asked[i - 1]}`);
    }
    await server.stop();
  });
}
