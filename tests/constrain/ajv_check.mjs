// Usage: node ajv_check.mjs WALKER [SCHEMAS [ANSWERS [SEED]]]
//
// Makes random schemas (and takes those of real tools), has WALKER (walk_schemas.cc) make random answers for each,
// and lets ajv judge every answer. Exits 1 with the schema, the answer and the seed when one is not valid.
import { spawnSync } from "node:child_process";
import process from "node:process";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { makeSchemas } from "./schemas.mjs";

const [walker, schemaCount = "60", answerCount = "5", seedText = "1"] = process.argv.slice(2);

const schemas = makeSchemas(seedText, Number(schemaCount));
const ran = spawnSync(walker, [seedText, answerCount], {
  input: schemas.map((schema) => JSON.stringify(schema) + "\n").join(""), maxBuffer: 1 << 30, encoding: "utf8",
});
if (ran.status !== 0) {
  console.error(`the walker ended with ${ran.status ?? ran.signal}: ${ran.stderr}`);
  process.exit(1);
}
const lines = ran.stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
let judged = 0;
let refused = 0;
let partly = 0;
const wrong = (what, schema, answer) => {
  console.error(`${what}\nseed ${seedText}\nschema ${JSON.stringify(schema)}\nanswer ${answer}`);
  process.exit(1);
};
schemas.forEach((schema, i) => {
  // draft-07 only names itself here; what it shares with 2020-12 is judged as that.
  const { $schema, ...plain } = schema;
  const ajv = addFormats.default(new Ajv2020({ strict: false, allErrors: true }));
  const valid = ajv.compile(plain);
  if (lines[i].problem !== undefined) {
    // Alone those that allow nothing may be refused.
    if (!/no text can be completed/.test(lines[i].problem)) wrong(lines[i].problem, schema, "");
    ++refused;
    return;
  }
  if (lines[i].unenforced.length > 0) { ++partly; return; }
  for (const answer of lines[i].answers) {
    if (answer === null) wrong("a walk came to no end", schema, "");
    let value;
    try { value = JSON.parse(answer); } catch (error) { wrong(`no JSON: ${error.message}`, schema, answer); }
    if (!valid(value)) wrong(`ajv: ${ajv.errorsText(valid.errors)}`, schema, answer);
    ++judged;
  }
});
console.log(`ajv: ${judged} answers to ${schemas.length - refused - partly} schemas are valid; ${refused} schemas allow ` +
  `nothing, ${partly} have keywords that are not enforced; seed ${seedText}`);
if (judged < schemas.length) wrong("too few answers were judged", {}, "");
