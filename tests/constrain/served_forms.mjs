// Usage: node served_forms.mjs STEMMA [SCHEMAS [ANSWERS [SEED]]]
//
// Random schemas against the server: as the form of an answer, as a tool that must be called, and as a tool that is
// named. ajv judges every answer that came to its end. Exits 1 with the schema, the way,
// the answer and the seed when one is not valid.
import { spawn } from "node:child_process";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { makeSchemas } from "./schemas.mjs";

const [program, schemaCount = "40", answerCount = "5", seed = "1"] = process.argv.slice(2);
const kAtOnce = 4;
// The small model that is shipped, at the highest temperature: models of random weights put so much on one letter that
// their texts never end.
const model = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../models/llama.gguf");
const server = spawn(program, ["serve", "--model", model, "--port", "0", "--threads", "1", "--sequences", "40", "--context", "131072", "--quiet", "on"],
  { stdio: ["ignore", "ignore", "pipe"], env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("STEMMA_"))) });
process.on("exit", () => server.kill("SIGKILL"));
let log = "";
const url = await new Promise((tell, fail) => {
  server.stderr.setEncoding("utf8").on("data", (text) => {
    log += text;
    const found = log.match(/ ready .* url=(\S+)\n/);
    if (found) tell(found[1]);
  });
  server.once("close", () => fail(new Error(`the server ended: ${log}`)));
});

// The token that ends a text. Brackets are left alone: made likelier, they fill the texts.
const { tokens: ends } = await (await fetch(`${url}/tokenize`, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ content: '"' }) })).json();

const sums = { judged: 0, cut: 0, impossible: 0, partly: 0 };
function wrong(what, schema, way, answer) {
  console.error(`${what}\nseed ${seed}\nway ${way}\nschema ${JSON.stringify(schema)}\nanswer ${answer}`);
  process.exit(1);
}

// Arguments are objects: other schemas become those of a member.
function wrapped(schema) {
  const { $defs, ...rest } = schema;
  return { type: "object", properties: { value: rest }, required: ["value"], additionalProperties: false, ...($defs ? { $defs } : {}) };
}
const tool = (name, parameters) => ({ type: "function", function: { name, parameters } });
const other = tool("other", { type: "object", properties: { a: { type: "boolean" } }, required: ["a"], additionalProperties: false });

// The arguments of all calls, which must be of this tool. `required` leaves the choice, but offers only one.
const called = (name) => ({ message }) => message.tool_calls.map((call) => {
  if (call.function.name !== name) throw new Error(`it called ${call.function.name}`);
  return call.function.arguments;
});

// What each way asks for, and where the judged texts are.
const ways = {
  "json_schema": (schema) => ({
    body: { response_format: { type: "json_schema", json_schema: { name: "form", schema } } },
    judged: schema, read: ({ message }) => [message.content],
  }),
  "required": (schema) => ({
    body: { tools: [tool("form", wrapped(schema))], tool_choice: "required", parallel_tool_calls: false },
    judged: wrapped(schema), read: called("form"),
  }),
  "named tool": (schema) => ({
    body: { tools: [other, tool("form", wrapped(schema))], tool_choice: { type: "function", function: { name: "form" } } },
    judged: wrapped(schema), read: called("form"),
  }),
};

async function ask(schema, i, way, answers) {
  const { body, judged, read } = ways[way](schema);
  const ajv = addFormats.default(new Ajv2020({ strict: false, allErrors: true }));
  const valid = ajv.compile(judged);
  // Quotes are made likelier, more so each time, so that answers end.
  for (let round = 0, left = answers; left > 0 && round < 5; ++round) {
    const bias = 10 + 5 * round;
    const reply = await fetch(`${url}/v1/chat/completions`, {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify({ messages: [{ role: "user", content: `Number ${i}` }], n: left, max_tokens: 150 + 150 * round,
        temperature: 2, seed: Number(seed) * 1_000_003 + i * 101 + round, logit_bias: Object.fromEntries(ends.map((token) => [token, bias])), ...body }),
    });
    const said = await reply.json();
    if (reply.status === 400 && /no text can be completed|allows nothing|nothing/.test(said.error.message)) return void ++sums.impossible;
    if (reply.status !== 200) wrong(`status ${reply.status}: ${JSON.stringify(said)}`, schema, way, "");
    const partly = reply.headers.get("x-stemma-unenforced");
    if (partly !== null) return void ++sums.partly;
    for (const choice of said.choices) {
      if (choice.finish_reason === "length") {
        ++sums.cut;
        continue;
      }
      for (const text of read(choice)) {
        let value;
        try { value = JSON.parse(text); } catch (error) { wrong(`no JSON: ${error.message}`, schema, way, text); }
        if (!valid(value)) wrong(`ajv: ${ajv.errorsText(valid.errors)}`, schema, way, text);
      }
      ++sums.judged;
      --left;
    }
    if (left > 0 && round === 4) console.log(`schema ${i} as ${way}: ${left} answers were always cut off: ${JSON.stringify(schema).slice(0, 200)}`);
  }
}

const schemas = makeSchemas(seed, Number(schemaCount)).map(({ $schema, ...plain }) => plain);
const each = Math.floor(Number(answerCount) / 3);
const shares = { "json_schema": Number(answerCount) - 2 * each, "required": each, "named tool": each };
let next = 0;
await Promise.all(Array.from({ length: kAtOnce }, async () => {
  while (next < schemas.length) {
    const i = next++;
    for (const [way, answers] of Object.entries(shares)) {
      if (answers > 0) await ask(schemas[i], i, way, answers);
    }
  }
}));
console.log(`ajv: ${sums.judged} answers of the server to ${schemas.length} schemas are valid, as the form of the answer, as a required ` +
  `and as a named tool; ${sums.cut} more were cut off by max_tokens; ${sums.impossible} requests asked for what no text can be, ` +
  `${sums.partly} have keywords that are not enforced; seed ${seed}`);
if (sums.judged < schemas.length) wrong("too few answers were judged", {}, "", "");
process.exit(0);
