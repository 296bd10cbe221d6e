// node agents.mjs SCRIPTED_SERVER [AGENT ...]: see run.
//
// Each agent has a home and a project of its own and speaks to nobody but the server on loopback. The model is asked
// for a poem of twenty lines and writes one line a turn, with the agent's own tools, sometimes with thinking or text
// before the call. At the end the file must have the twenty lines in their order, and the agent must have said so.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const modules = process.env.STEMMA_AGENTS_MODULES ?? path.join(here, 'node_modules');
const [server, ...wanted] = process.argv.slice(2);
const kTurns = 20;
const kTask = 'Write the poem of twenty lines into poem.txt, one line at a time.';
const kEnd = 'The poem has its twenty lines.';
const patience_ms = Number(process.env.STEMMA_AGENTS_PATIENCE ?? 300) * 1000;

const call = (name, args) => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`;
const add = "echo 'line {n}' >> poem.txt";

// What differs between agents: how a line is written, how they are started. Arguments stand in the order of the
// agent's schema, because answers are held to it.
const agents = {
  codex: {
    api: 'Responses',
    tool: 'exec_command',
    first: () => call('exec_command', { cmd: "echo 'line 1' > poem.txt" }),
    next: call('exec_command', { cmd: add }),
    prepare(home, url) {
      mkdirSync(path.join(home, '.codex'));
      writeFileSync(
        path.join(home, '.codex/config.toml'),
        `model = "scripted"\nmodel_provider = "stemma"\n[model_providers.stemma]\nname = "stemma"\nbase_url = "${url}/v1"\nwire_api = "responses"\n`);
    },
    command: () => [process.execPath, [path.join(modules, '@openai/codex/bin/codex.js'), 'exec', '--skip-git-repo-check',
      '--dangerously-bypass-approvals-and-sandbox', kTask]],
    env: () => ({}),
  },
  claude: {
    api: 'Messages',
    tool: 'Bash',
    first: (project) => call('Write', { file_path: path.join(project, 'poem.txt'), content: 'line 1\n' }),
    next: call('Bash', { command: add, description: 'Add a line' }),
    prepare() {},
    command: () => [path.join(modules, `@anthropic-ai/claude-code-${os.platform()}-${os.arch()}/claude`),
      ['-p', kTask, '--model', 'scripted', '--permission-mode', 'acceptEdits', '--allowedTools', 'Bash,Write']],
    env: (url) => ({
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_API_KEY: 'none',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    }),
  },
  opencode: {
    api: 'chat completions',
    tool: 'bash',
    first: (project) => call('write', { content: 'line 1\n', filePath: path.join(project, 'poem.txt') }),
    next: call('bash', { command: add }),
    prepare(home, url) {
      mkdirSync(path.join(home, '.config/opencode'), { recursive: true });
      writeFileSync(path.join(home, '.config/opencode/opencode.json'), JSON.stringify({
        autoupdate: false,
        share: 'disabled',
        model: 'stemma/scripted',
        provider: {
          stemma: {
            npm: '@ai-sdk/openai-compatible',
            name: 'Stemma',
            options: { baseURL: `${url}/v1`, apiKey: 'none' },
            models: { scripted: { name: 'scripted' } },
          },
        },
      }));
    },
    command: () => [path.join(modules, `opencode-${os.platform()}-${os.arch()}/bin/opencode`), ['run', kTask]],
    env: () => ({ OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1' }),
  },
  qwen: {
    api: 'chat completions',
    tool: 'run_shell_command',
    first: (project) => call('write_file', { file_path: path.join(project, 'poem.txt'), content: 'line 1\n' }),
    next: call('run_shell_command', { command: add, is_background: false }),
    prepare() {},
    command: () => [process.execPath, [path.join(modules, '@qwen-code/qwen-code/cli.js'), '-p', kTask, '--auth-type', 'openai', '--yolo']],
    env: (url) => ({ OPENAI_API_KEY: 'none', OPENAI_BASE_URL: `${url}/v1`, OPENAI_MODEL: 'scripted' }),
  },
};

function rules(agent, project) {
  const thinks = '<think>\nLine {n} comes next.\n</think>\n\n';
  const list = [
    // What agents ask beside the task: titles, memories.
    { user: 'Managed memory directory', say: 'Nothing is worth remembering.' },
    { user: kTask, offers: agent.tool, results: kTurns, say: kEnd },
    { user: kTask, offers: agent.tool, results: 0, say: thinks + agent.first(project) },
  ];
  for (let n = 1; n < kTurns; n += 3) {
    list.push({ user: kTask, offers: agent.tool, results: n, say: `Now line {n}.\n${agent.next}` });
    list.push({ user: kTask, offers: agent.tool, results: n + 1, say: thinks + agent.next });
  }
  list.push({ user: kTask, offers: agent.tool, say: agent.next });
  list.push({ say: 'A poem' });
  return list;
}

const ended = (child) => new Promise((tell) => child.once('close', (code, signal) => tell(code ?? signal)));

async function serve(file) {
  const child = spawn(server, [file], { stdio: ['pipe', 'pipe', 'pipe'] });
  const served = { child, log: '' };
  child.stderr.setEncoding('utf8').on('data', (text) => (served.log += text));
  served.url = await new Promise((tell, fail) => {
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (text) => {
      out += text;
      const url = out.match(/url=(\S+)\n/);
      if (url) tell(url[1]);
    });
    child.once('close', () => fail(new Error(`the server did not start: ${served.log}`)));
  });
  return served;
}

async function runAgent(name) {
  const agent = agents[name];
  const folder = mkdtempSync(path.join(os.tmpdir(), `stemma-${name}-`));
  const home = path.join(folder, 'home');
  const project = path.join(folder, 'project');
  for (const each of [home, project]) mkdirSync(each);
  const file = path.join(folder, 'rules.json');
  writeFileSync(file, JSON.stringify(rules(agent, project)));
  const served = await serve(file);
  try {
    agent.prepare(home, served.url);
    const [program, words] = agent.command();
    const began = Date.now();
    const child = spawn(program, words, {
      cwd: project,
      env: { PATH: process.env.PATH, HOME: home, TMPDIR: folder, TERM: 'dumb', ...agent.env(served.url) },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
    const timer = setTimeout(() => child.kill('SIGKILL'), patience_ms);
    const status = await ended(child);
    clearTimeout(timer);
    const seconds = (Date.now() - began) / 1000;
    const poem = path.join(project, 'poem.txt');
    const lines = existsSync(poem) ? readFileSync(poem, 'utf8') : '';
    const expected = Array.from({ length: kTurns }, (_, i) => `line ${i + 1}\n`).join('');
    const context = `${name} ended with ${status}\n${said.slice(-3000)}\n--- server\n${served.log.slice(-3000)}`;
    assert.equal(lines, expected, context);
    assert.equal(status, 0, context);
    assert.ok(said.includes(kEnd), context);
    return { name, agent, seconds, ...measure(served.log) };
  } finally {
    served.child.stdin.end();
    await ended(served.child);
    if (process.env.STEMMA_AGENTS_KEEP) writeFileSync(path.join(process.env.STEMMA_AGENTS_KEEP, `${name}.log`), served.log);
    rmSync(folder, { recursive: true, force: true });
  }
}

// Of the server's log: what its prompts had, and what was not computed. The first prompt of each kind (by its
// length: titles are short) has nothing to reuse.
function measure(log) {
  const requests = [...log.matchAll(/ status=200 prompt=(\d+) reused=(\d+) evaluated=(\d+) generated=(\d+)/g)].map((match) => {
    const [prompt, reused, evaluated, generated] = match.slice(1).map(Number);
    return { prompt, reused, evaluated, generated };
  });
  const errors = [...log.matchAll(/ status=(\d+) /g)].filter((match) => Number(match[1]) >= 400).length;
  // A turn can reuse at most what the turn before it had, prompt and answer.
  let repeated = 0;
  let reused = 0;
  let largest = { prompt: 0, generated: 0 };
  for (const each of requests) {
    if (each.prompt > largest.prompt) {
      repeated += Math.min(largest.prompt + largest.generated, each.prompt);
      reused += largest.prompt > 0 ? each.reused : 0;
      largest = each;
    }
  }
  const sum = (field) => requests.reduce((all, each) => all + each[field], 0);
  return { requests: requests.length, errors, prompt: sum('prompt'), evaluated: sum('evaluated'), repeated, reused };
}

const rows = [];
let failures = 0;
for (const name of wanted.length > 0 ? wanted : Object.keys(agents)) {
  try {
    rows.push(await runAgent(name));
    console.log(`ok   ${name}`);
  } catch (error) {
    ++failures;
    console.log(`FAIL ${name}: ${error.message}`);
  }
}
console.log('\n| agent | API | requests | tokens in prompts | computed | reused of what was repeated | seconds |');
console.log('| --- | --- | ---: | ---: | ---: | ---: | ---: |');
for (const row of rows) {
  const part = row.repeated > 0 ? `${((100 * row.reused) / row.repeated).toFixed(1)} %` : '';
  console.log(`| ${row.name} | ${row.agent.api} | ${row.requests} | ${row.prompt} | ${row.evaluated} | ${part} | ${row.seconds.toFixed(1)} |`);
}
process.exitCode = failures === 0 ? 0 : 1;
