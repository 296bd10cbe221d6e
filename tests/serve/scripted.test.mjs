// Tools and thinking through clients of each API, over a model that says what a script says (scripted_server.cc):
// the template, the parser of answers and the cache are real.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { after, before } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool as langchainTool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, Output, stepCountIs, streamText, tool } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { ended, eventually, inFolder, patience, test } from './support.mjs';

const call = (name, args) => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`;
const task = 'How warm is it in Oslo and Rome?';
const rules = [
  { user: task, offers: 'weather', results: 0,
    say: `<think>\nTwo cities.\n</think>\n\nLet me look.\n${call('weather', { city: 'Oslo', unit: 'C' })}\n${call('weather', { city: 'Rome', unit: 'C' })}` },
  { user: task, offers: 'weather', results: 2, say: 'Oslo has 4 and Rome 18 degrees.' },
  { user: 'Patch it', offers: 'patch', results: 0, say: call('patch', { input: '*** Begin\n+ "x"\n' }) },
  { user: 'Think', say: '<think>\nHm, "so".\n</think>\n\nDone.' },
  { user: 'Describe Ada', say: '{"name":"Ada","age":36}' },
  { say: 'No rule fits.' },
];
const person = z.object({ name: z.string(), age: z.number().int() });
const ada = { name: 'Ada', age: 36 };
const degrees = { Oslo: 4, Rome: 18 };
const parameters = { type: 'object', properties: { city: { type: 'string' }, unit: { type: 'string' } }, required: ['city', 'unit'] };

let child;
let url;
let log = '';
before(async () => {
  const file = inFolder('rules.json');
  writeFileSync(file, JSON.stringify(rules));
  child = spawn(process.env.STEMMA_PROGRAM, [file], { stdio: ['pipe', 'pipe', 'pipe'] });
  child.stderr.setEncoding('utf8').on('data', (text) => (log += text));
  url = await new Promise((tell, fail) => {
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (text) => {
      out += text;
      const found = out.match(/url=(\S+)\n/);
      if (found) tell(found[1]);
    });
    child.once('close', () => fail(new Error(`the server did not start: ${log}`)));
  });
});
after(async () => {
  child.stdin.end();
  await ended(child);
});
const client = () => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 30_000 * patience });
// The last request had to compute little. The line that says so is written beside the answer, and may come later.
async function computedLittle() {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const requests = Number(metrics.match(/^stemma_requests_total (\d+)$/m)[1]);
  const lines = () => [...log.matchAll(/ evaluated=(\d+) /g)];
  assert.ok(await eventually(() => lines().length === requests), `${lines().length} lines of ${requests} requests`);
  const tokens = Number(lines().at(-1)[1]);
  assert.ok(tokens <= mostNew, `computed ${tokens}`);
}
const mostNew = 80; // Results of two calls, and what stands around them.

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

test('chat completions: thinking, text and parallel calls, whole and streamed, and the results of the calls', async () => {
  const openai = client();
  const messages = [{ role: 'user', content: task }];
  const asked = { model: 'scripted', messages, tools: [{ type: 'function', function: { name: 'weather', parameters } }] };
  const whole = await openai.chat.completions.create(asked);
  const { message } = whole.choices[0];
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  assert.equal(message.reasoning_content.trim(), 'Two cities.');
  assert.equal(message.content.trim(), 'Let me look.');
  assert.deepEqual(message.tool_calls.map((each) => JSON.parse(each.function.arguments).city), ['Oslo', 'Rome']);
  assert.equal(new Set(message.tool_calls.map((each) => each.id)).size, 2);

  // Thinking before text before calls; each call is named once and then has its arguments; the reason comes last.
  const events = await collect(await openai.chat.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } }));
  const usage = events.pop();
  assert.deepEqual(usage.choices, []);
  assert.equal(usage.usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(usage.usage.total_tokens, usage.usage.prompt_tokens + usage.usage.completion_tokens);
  assert.equal(new Set(events.map((event) => event.id)).size, 1);
  assert.equal(events[0].choices[0].delta.role, 'assistant');
  const kinds = [];
  const heard = { reasoning_content: '', content: '', calls: [] };
  for (const { choices: [{ delta, finish_reason }] } of events) {
    for (const kind of ['reasoning_content', 'content']) {
      if (!delta[kind]) continue;
      kinds.push(kind);
      heard[kind] += delta[kind];
    }
    for (const each of delta.tool_calls ?? []) {
      kinds.push('calls');
      if (each.id !== undefined) {
        assert.equal(each.index, heard.calls.length);
        assert.equal(each.type, 'function');
        heard.calls.push({ name: each.function.name, arguments: '' });
      } else {
        assert.equal(each.index, heard.calls.length - 1);
        assert.equal(each.function.name, undefined);
      }
      heard.calls.at(-1).arguments += each.function.arguments ?? '';
    }
    assert.equal(finish_reason !== null, events.at(-1).choices[0].delta === delta);
  }
  assert.equal(events.at(-1).choices[0].finish_reason, 'tool_calls');
  assert.deepEqual([...new Set(kinds)], ['reasoning_content', 'content', 'calls']);
  assert.deepEqual(kinds, [...kinds].sort((one, other) => [...new Set(kinds)].indexOf(one) - [...new Set(kinds)].indexOf(other)));
  assert.equal(heard.reasoning_content, message.reasoning_content);
  assert.equal(heard.content, message.content);
  assert.deepEqual(heard.calls, message.tool_calls.map((each) => ({ name: 'weather', arguments: each.function.arguments })));

  const answer = await openai.chat.completions.create({ ...asked, messages: [...messages, message, ...message.tool_calls.map((each) => ({
    role: 'tool', tool_call_id: each.id, content: String(degrees[JSON.parse(each.function.arguments).city]) }))] });
  assert.equal(answer.choices[0].message.content, 'Oslo has 4 and Rome 18 degrees.');
  await computedLittle();
});

test("OpenAI's helpers parse answers and run tools, whole and streamed", async () => {
  const openai = client();
  const describe = { model: 'scripted', messages: [{ role: 'user', content: 'Describe Ada' }], response_format: zodResponseFormat(person, 'person') };
  assert.deepEqual((await openai.chat.completions.parse(describe)).choices[0].message.parsed, ada);
  assert.deepEqual((await openai.chat.completions.stream(describe).finalChatCompletion()).choices[0].message.parsed, ada);
  const place = z.object({ city: z.string(), unit: z.string() });
  const called = await openai.chat.completions.parse({
    model: 'scripted', messages: [{ role: 'user', content: task }], tools: [zodFunction({ name: 'weather', parameters: place })] });
  assert.deepEqual(called.choices[0].message.tool_calls[1].function.parsed_arguments, { city: 'Rome', unit: 'C' });
  for (const stream of [false, true]) {
    const asked = [];
    const runner = openai.chat.completions.runTools({
      model: 'scripted', stream, messages: [{ role: 'user', content: task }],
      tools: [{
        type: 'function',
        function: { name: 'weather', description: 'How warm it is.', parameters, parse: JSON.parse,
          function: ({ city }) => { asked.push(city); return String(degrees[city]); } },
      }],
    });
    assert.equal(await runner.finalContent(), 'Oslo has 4 and Rome 18 degrees.');
    assert.deepEqual(asked, ['Oslo', 'Rome']);
  }
  const responses = { model: 'scripted', input: 'Describe Ada', text: { format: zodTextFormat(person, 'person') } };
  assert.deepEqual((await openai.responses.parse(responses)).output_parsed, ada);
  assert.deepEqual((await openai.responses.stream(responses).finalResponse()).output_parsed, ada);
  const functions = await openai.responses.parse({ model: 'scripted', input: task, tools: [zodResponsesFunction({ name: 'weather', parameters: place })] });
  assert.deepEqual(functions.output.filter((item) => item.type === 'function_call').map((item) => item.parsed_arguments.city), ['Oslo', 'Rome']);
});

test('the AI SDK and LangChain get objects of a schema, over Responses and over chat completions', async () => {
  for (const model of [
    createOpenAI({ baseURL: `${url}/v1`, apiKey: 'none' }).responses('scripted'),
    createOpenAICompatible({ name: 'stemma', baseURL: `${url}/v1`, supportsStructuredOutputs: true })('scripted'),
  ]) {
    const asked = { model, prompt: 'Describe Ada', maxRetries: 0, output: Output.object({ schema: person }) };
    assert.deepEqual((await generateText(asked)).output, ada);
    const stream = streamText(asked);
    let last;
    for await (const part of stream.partialOutputStream) last = part;
    assert.deepEqual(last, ada);
  }
  for (const useResponsesApi of [true, false]) {
    const model = new ChatOpenAI({ model: 'scripted', apiKey: 'none', useResponsesApi, maxRetries: 0, configuration: { baseURL: `${url}/v1` } });
    assert.deepEqual(await model.withStructuredOutput(person, { method: 'jsonSchema', strict: true }).invoke('Describe Ada'), ada);
  }
});

test('Responses: thinking, text and parallel calls, whole and streamed, and the results of the calls', async () => {
  const openai = client();
  const asked = {
    model: 'scripted', input: [{ role: 'user', content: task }], include: ['reasoning.encrypted_content'],
    tools: [{ type: 'function', name: 'weather', parameters, strict: false }],
  };
  const whole = await openai.responses.create({ ...asked, store: false });
  assert.deepEqual(whole.output.map((item) => item.type), ['reasoning', 'message', 'function_call', 'function_call']);
  assert.equal(whole.output[0].content[0].text.trim(), 'Two cities.');
  assert.match(whole.output[0].encrypted_content, /^tr_/);
  assert.equal(whole.output_text.trim(), 'Let me look.');
  assert.deepEqual(JSON.parse(whole.output[3].arguments), { city: 'Rome', unit: 'C' });
  assert.equal(whole.status, 'completed');
  const { usage } = whole;
  assert.ok(usage.output_tokens_details.reasoning_tokens > 0);
  assert.ok(usage.output_tokens_details.reasoning_tokens < usage.output_tokens);
  const events = await collect(await openai.responses.create({ ...asked, stream: true }));
  assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i));
  const last = events.at(-1).response;
  const bare = (items) => items.map(({ id, call_id, encrypted_content, ...rest }) => rest);
  assert.deepEqual(bare(last.output), bare(whole.output));
  const names = new Set(events.map((event) => event.type));
  for (const name of ['output_item.added', 'content_part.added', 'reasoning_text.delta', 'reasoning_text.done', 'output_text.delta',
    'output_text.done', 'content_part.done', 'function_call_arguments.delta', 'function_call_arguments.done', 'output_item.done']) {
    assert.ok(names.has(`response.${name}`), name);
  }
  // The results, sent with everything, with the stored response, and with items written anew.
  const results = (response) => response.output.filter((item) => item.type === 'function_call').map((item) => ({
    type: 'function_call_output', call_id: item.call_id, output: String(degrees[JSON.parse(item.arguments).city]) }));
  const anew = whole.output.map((item) =>
    item.type === 'function_call' ? { ...item, id: undefined, arguments: JSON.stringify(JSON.parse(item.arguments), null, 2) } : item);
  const ways = [
    { input: [...asked.input, ...whole.output, ...results(whole)] },
    { input: [...asked.input, ...anew, ...results(whole)] },
    { input: results(last), previous_response_id: last.id },
  ];
  for (const way of ways) {
    const answer = await openai.responses.create({ ...asked, ...way });
    assert.equal(answer.output_text, 'Oslo has 4 and Rome 18 degrees.');
    await computedLittle();
  }
});

test('Responses: a summary where it is asked for, custom tools, helpers', async () => {
  const openai = client();
  const thought = await openai.responses.create({ model: 'scripted', input: 'Think', reasoning: { summary: 'auto' } });
  assert.equal(thought.output[0].summary[0].text.trim(), 'Hm, "so".');
  assert.equal(thought.output[0].content, undefined);
  const events = await collect(await openai.responses.create({ model: 'scripted', input: 'Think', reasoning: { summary: 'auto' }, stream: true }));
  const names = new Set(events.map((event) => event.type));
  for (const name of ['summary_part.added', 'summary_text.delta', 'summary_text.done', 'summary_part.done']) {
    assert.ok(names.has(`response.reasoning_${name}`), name);
  }
  const patch = { model: 'scripted', input: 'Patch it', tools: [{ type: 'custom', name: 'patch', description: 'Patches.' }] };
  const whole = await openai.responses.create(patch);
  assert.equal(whole.output[0].type, 'custom_tool_call');
  assert.equal(whole.output[0].input, '*** Begin\n+ "x"\n');
  const streamed = await collect(await openai.responses.create({ ...patch, stream: true }));
  const input = streamed.filter((event) => event.type === 'response.custom_tool_call_input.delta').map((event) => event.delta).join('');
  assert.equal(input, whole.output[0].input);
  const stream = openai.responses.stream({ model: 'scripted', input: 'Think' });
  assert.equal((await stream.finalResponse()).output_text, 'Done.');
});

test('the AI SDK runs tools to the end, over Responses and over chat completions', async () => {
  const models = [
    createOpenAI({ baseURL: `${url}/v1`, apiKey: 'none' }).responses('scripted'),
    createOpenAICompatible({ name: 'stemma', baseURL: `${url}/v1` })('scripted'),
  ];
  for (const model of models) {
    const asked = {
      model, prompt: task, maxRetries: 0, stopWhen: stepCountIs(4),
      tools: {
        weather: tool({
          description: 'How warm it is.',
          inputSchema: z.object({ city: z.string(), unit: z.string() }),
          execute: ({ city }) => ({ degrees: degrees[city] }),
        }),
      },
    };
    const whole = await generateText(asked);
    assert.equal(whole.text, 'Oslo has 4 and Rome 18 degrees.');
    assert.equal(whole.steps.length, 2);
    assert.equal(whole.steps[0].toolCalls.length, 2);
    assert.equal(whole.steps[0].finishReason, 'tool-calls');
    const stream = streamText(asked);
    let text = '';
    for await (const piece of stream.textStream) text += piece;
    assert.ok(text.endsWith('Oslo has 4 and Rome 18 degrees.'), text);
    assert.equal((await stream.steps).length, 2);
    await computedLittle();
  }
});

test('LangChain calls tools, over Responses and over chat completions', async () => {
  const weather = langchainTool(({ city }) => String(degrees[city]), {
    name: 'weather', description: 'How warm it is.', schema: z.object({ city: z.string(), unit: z.string() }) });
  for (const useResponsesApi of [true, false]) {
    const model = new ChatOpenAI({ model: 'scripted', apiKey: 'none', useResponsesApi, maxRetries: 0, configuration: { baseURL: `${url}/v1` } })
      .bindTools([weather]);
    const messages = [new HumanMessage(task)];
    const first = await model.invoke(messages);
    assert.equal(first.tool_calls.length, 2);
    messages.push(first);
    for (const each of first.tool_calls) {
      messages.push(new ToolMessage({ tool_call_id: each.id, content: await weather.invoke(each.args) }));
    }
    assert.equal((await model.invoke(messages)).text, 'Oslo has 4 and Rome 18 degrees.');
    let streamed;
    for await (const piece of await model.stream(messages.slice(0, 1))) streamed = streamed ? streamed.concat(piece) : piece;
    assert.deepEqual(streamed.tool_calls.map((each) => each.args), first.tool_calls.map((each) => each.args));
  }
});

test("Ollama's client calls tools and hears thinking", async () => {
  const ollama = new Ollama({ host: url });
  const asked = { model: 'scripted', tools: [{ type: 'function', function: { name: 'weather', description: 'How warm it is.', parameters } }] };
  const messages = [{ role: 'user', content: task }];
  const whole = await ollama.chat({ ...asked, messages });
  assert.deepEqual(whole.message.tool_calls.map((each) => each.function.arguments.city), ['Oslo', 'Rome']);
  assert.equal(whole.message.thinking.trim(), 'Two cities.');
  const parts = await collect(await ollama.chat({ ...asked, messages, stream: true }));
  const calls = parts.flatMap((part) => part.message.tool_calls ?? []).map((each) => each.function);
  assert.deepEqual(calls, whole.message.tool_calls.map((each) => each.function));
  messages.push(whole.message);
  for (const each of whole.message.tool_calls) {
    messages.push({ role: 'tool', tool_name: each.function.name, content: String(degrees[each.function.arguments.city]) });
  }
  const answer = await ollama.chat({ ...asked, messages });
  assert.equal(answer.message.content, 'Oslo has 4 and Rome 18 degrees.');
  await computedLittle();
});
