// What the tests share that talk to a server through OpenAI's own client.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { patience } from './support.mjs';

export const client = (of, options = {}) =>
  new OpenAI({ baseURL: `${of.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 30_000 * patience, ...options });

// What the first choice says.
export const text = (answer) => answer.choices[0].message?.content ?? answer.choices[0].text;

export async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}
export const joined = (events, choice = 0) =>
  events.flatMap((event) => event.choices.filter((each) => each.index === choice))
    .map((each) => each.delta?.content ?? each.text ?? '').join('');

export async function refused(asked, status, { param, code, says } = {}) {
  const error = await asked.then(
    () => assert.fail('it was not refused'),
    (problem) => problem,
  );
  assert.ok(error instanceof OpenAI.APIError, String(error));
  assert.equal(error.status, status, error.message);
  if (param !== undefined) assert.equal(error.param, param, error.message);
  if (code !== undefined) assert.equal(error.code, code, error.message);
  if (says !== undefined) assert.match(error.message, says);
  return error;
}
