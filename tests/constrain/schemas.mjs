// Random JSON schemas, and some like those of real tools: what ajv_check.mjs and served_forms.mjs ask for.

// A small generator of our own, so that a seed means the same everywhere.
let state = 0n;
function next() {
  state = (state + 0x9E3779B97F4A7C15n) & 0xFFFFFFFFFFFFFFFFn;
  let z = state;
  z = ((z ^ (z >> 30n)) * 0xBF58476D1CE4E5B9n) & 0xFFFFFFFFFFFFFFFFn;
  z = ((z ^ (z >> 27n)) * 0x94D049BB133111EBn) & 0xFFFFFFFFFFFFFFFFn;
  return Number((z ^ (z >> 31n)) >> 11n);
}
const below = (n) => next() % n;
const pick = (list) => list[below(list.length)];
const chance = (percent) => below(100) < percent;

const words = ["name", "id", "file_path", "old string", "é", "a\"b", "command", "x", "", "content", "naïve", "😀"];
const patterns = ["^[a-z]+$", "^\\d{3}-\\d{4}$", "foo|ba[rz]", "^(ab|c)*$", "^[^\\s@]{1,5}@[a-z]+\\.(org|com)$",
  "^.{2,20}$", "\\w", "^([A-Z][a-z]*\\s?){1,3}$", "^[\\u00e0-\\u00ff]+$"];
const formats = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "uri", "hostname", "duration",
  "json-pointer", "uri-reference"];

function stringSchema() {
  const schema = { type: "string" };
  const kind = below(5);
  if (kind === 0) schema.pattern = pick(patterns);
  if (kind === 1) schema.format = pick(formats);
  if (kind >= 3) {
    if (chance(50)) schema.minLength = below(5);
    if (chance(50)) schema.maxLength = (schema.minLength ?? 0) + below(10);
  }
  if (kind === 2) { schema.pattern = "^[a-f]*$"; schema.minLength = below(3); schema.maxLength = 3 + below(9); }
  return schema;
}

function numberSchema() {
  const schema = { type: pick(["integer", "number"]) };
  const bound = () => (below(2001) - 1000) / pick([1, 1, 10, 100]);
  if (chance(50)) schema[pick(["minimum", "exclusiveMinimum"])] = bound();
  if (chance(50)) {
    const low = schema.minimum ?? schema.exclusiveMinimum ?? -1000;
    schema[pick(["maximum", "exclusiveMaximum"])] = low + 1 + below(300);
  }
  if (schema.type === "integer" && chance(30)) schema.multipleOf = pick([1, 2, 5, 7]);
  return schema;
}

function objectSchema(depth) {
  const schema = { type: "object", properties: {} };
  for (let i = below(6); i > 0; --i) schema.properties[pick(words)] = randomSchema(depth - 1);
  const names = Object.keys(schema.properties);
  const required = names.filter(() => chance(50));
  if (required.length > 0 || chance(30)) schema.required = required;
  if (chance(15)) schema.required = [...required, "beyond"];
  if (chance(60)) schema.additionalProperties = chance(50) ? false : chance(50) ? true : randomSchema(depth - 1);
  if (schema.additionalProperties === false && schema.required?.includes("beyond")) delete schema.required;
  if (names.length === 0 && chance(40)) {
    delete schema.additionalProperties;
    delete schema.required;
    if (chance(50)) schema.patternProperties = { "^k[0-9]{1,2}$": randomSchema(depth - 1) };
    else schema.propertyNames = pick([{ type: "string" }, { pattern: "^[a-z]{1,4}$" }, { enum: ["p", "q"] }]);
  }
  if (!schema.additionalProperties && chance(15)) {
    schema.minProperties = Math.min(names.length, below(3));
    schema.maxProperties = Math.max(schema.required?.length ?? 0, schema.minProperties, 1 + below(4));
  }
  return schema;
}

function arraySchema(depth) {
  const schema = { type: "array" };
  if (chance(80)) schema.items = randomSchema(depth - 1);
  if (chance(25)) {
    schema.prefixItems = Array.from({ length: 1 + below(3) }, () => randomSchema(depth - 1));
    if (chance(40)) schema.items = false;
  }
  if (chance(40)) schema.minItems = schema.items === false ? below(schema.prefixItems.length + 1) : below(3);
  if (chance(40)) schema.maxItems = (schema.minItems ?? 0) + below(4);
  return schema;
}

function randomSchema(depth) {
  const kind = below(depth > 0 ? 14 : 7);
  if (kind <= 1) return stringSchema();
  if (kind === 2) return numberSchema();
  if (kind === 3) return { type: pick(["boolean", "null", ["string", "null"], ["integer", "boolean"]]) };
  if (kind === 4) return pick([{ enum: ["a", "ab", "b", 1, null, { x: [1, 2] }] }, { const: "é\n\"" }, { const: 12.5 },
    { type: "string", enum: ["red", "green"] }]);
  if (kind === 5) return pick([{}, true, { description: "anything" }]);
  if (kind === 6) return { $ref: "#/$defs/" + pick(["tree", "short", "either"]) };
  if (kind <= 9) return objectSchema(depth);
  if (kind <= 11) return arraySchema(depth);
  if (kind === 12) return { [pick(["anyOf", "anyOf", "oneOf"])]: [objectSchema(depth - 1), { type: "null" }] };
  return { allOf: [{ type: "object", properties: { left: randomSchema(depth - 1) }, required: ["left"] },
    { properties: { right: randomSchema(depth - 1) } }] };
}

function randomRoot() {
  const schema = randomSchema(4);
  const root = typeof schema === "object" ? schema : {};
  root.$defs = {
    tree: { type: "object", properties: { v: { type: "integer" }, next: { $ref: "#/$defs/tree" } }, required: ["v"] },
    short: { type: "string", maxLength: 4 },
    either: { anyOf: [{ type: "array", items: { $ref: "#/$defs/either" } }, { $ref: "#/$defs/short" }] },
  };
  return root;
}

// In the manner of the tools that coding agents send.
export const tools = [
  { type: "object", properties: { command: { type: "string" }, timeout: { type: "number", description: "ms" },
    description: { type: "string" }, run_in_background: { type: "boolean" } }, required: ["command"],
    additionalProperties: false, $schema: "http://json-schema.org/draft-07/schema#" },
  { type: "object", properties: { file_path: { type: "string" }, edits: { type: "array", minItems: 1, items: {
    type: "object", properties: { old_string: { type: "string" }, new_string: { type: "string" },
      replace_all: { type: "boolean", default: false } }, required: ["old_string", "new_string"],
    additionalProperties: false } } }, required: ["file_path", "edits"], additionalProperties: false },
  { type: "object", properties: { url: { type: "string", format: "uri" }, prompt: { type: "string", minLength: 2 },
    domains: { type: "array", items: { type: "string" } } }, required: ["url", "prompt"], additionalProperties: false },
  { type: "object", properties: { questions: { type: "array", minItems: 1, maxItems: 4, items: { type: "object",
    properties: { header: { type: "string", maxLength: 65536 }, multi: { type: "boolean" }, options: { type: "array",
      minItems: 2, maxItems: 4, items: { type: "object", properties: { label: { type: "string" } },
        required: ["label"] } } }, required: ["header", "options", "multi"], additionalProperties: false } },
    answers: { type: "object", propertyNames: { type: "string" }, additionalProperties: { type: "string" } } },
    required: ["questions"], additionalProperties: false },
];

// `count` schemas of this seed; the first are those of the tools.
export function makeSchemas(seed, count) {
  state = BigInt(seed) + 0x9E3779B97F4A7C15n;
  const schemas = [...tools];
  while (schemas.length < count) schemas.push(randomRoot());
  return schemas;
}
