#include "replay/report_template.h"

namespace stemma::replay {

// Draws with SVG elements and text nodes only: nothing of the data is ever read as HTML.
const char* const kReportScript = R"js(
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const byId = id => document.getElementById(id);
const count = n => Math.round(n).toLocaleString('en-US');
const percent = (x, digits = 1) => (100 * x).toFixed(digits) + ' %';
const blockBytes = data.trace.block_bytes;
function size(blocks) {
  if (!blockBytes) return count(blocks) + ' blocks';
  let value = blocks * blockBytes, unit = 0;
  while (Math.abs(value) >= 999.5) { value /= 1000; ++unit; }
  return value.toFixed(Math.abs(value) >= 99.95 || unit === 0 ? 0 : 1) + ' ' + ['B', 'KB', 'MB', 'GB', 'TB', 'PB'][unit];
}
function shortSize(blocks) {
  if (blockBytes) return size(blocks);
  return blocks >= 1e6 ? (blocks / 1e6).toFixed(1) + 'M' : blocks >= 1e4 ? Math.round(blocks / 1e3) + 'k' : blocks >= 1e3 ? (blocks / 1e3).toFixed(1) + 'k' : String(blocks);
}

// ---- Colours: bounds are grey and dashed, lru is dark, adaptive stands out.
const hues = ['#d1730b', '#1b8a5a', '#8a4fbf', '#c23b6b', '#2b8fa8', '#7a6a12', '#5560d0', '#a0522d'];
const colours = {};
let hue = 0;
for (const p of data.policies) {
  colours[p.name] = p.name === 'adaptive' ? '#0b63c5' : p.name === 'lru' ? '#e0483e'
    : p.name === 'min' || p.name === 'infinite' ? '#8b95a3' : hues[hue++ % hues.length];
}
const dashes = name => name === 'min' ? '6 4' : name === 'infinite' ? '2 4' : null;

// ---- SVG, in small words.
function make(tag, attributes, parent, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}
function html(tag, parent, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  parent.appendChild(element);
  return element;
}
function canvas(id, width, height, title) {
  const svg = make('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title });
  byId(id).appendChild(svg);
  return svg;
}
const tip = byId('tip');
function hover(element, text) {
  element.addEventListener('mousemove', event => {
    tip.hidden = false;
    tip.textContent = typeof text === 'function' ? text(event) : text;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = event.clientY + 14 + 'px';
  });
  element.addEventListener('mouseleave', () => { tip.hidden = true; });
}
function none(id, text) { html('p', byId(id), text, 'none'); }

// Lines over the capacities, on a logarithmic scale.
function lines(id, series, options) {
  const wide = options.wide, width = wide ? 1060 : 500, height = wide ? 400 : 270;
  const left = 48, right = wide ? 96 : 84, top = 10, bottom = 34;
  const svg = canvas(id, width, height, options.title);
  const xs = data.capacities.map(Math.log), x0 = xs[0], x1 = xs.length > 1 ? xs[xs.length - 1] : xs[0] + 1;
  const all = series.flatMap(s => s.values.filter(v => v !== null));
  const high = Math.max(options.least || 0, ...all), low = Math.min(0, ...all);
  const rawStep = (high - low) / 5, magnitude = 10 ** Math.floor(Math.log10(rawStep || 1));
  const step = [1, 2, 2.5, 5, 10].map(m => m * magnitude).find(s => s >= rawStep) || 1;
  const y1 = Math.min(options.cap || Infinity, Math.ceil(high / step) * step || step);
  const y0 = Math.floor(low / step) * step;
  const x = i => left + (xs.length > 1 ? (xs[i] - x0) / (x1 - x0) : 0.5) * (width - left - right);
  const y = v => top + (y1 - v) / (y1 - y0) * (height - top - bottom);
  for (let v = y0; v <= y1 + step / 1e6; v += step) {
    make('line', { class: Math.abs(v) < step / 1e6 ? 'axis' : 'grid', x1: left, x2: width - right, y1: y(v), y2: y(v) }, svg);
    make('text', { x: left - 8, y: y(v) + 4, 'text-anchor': 'end' }, svg, options.tick(v));
  }
  let lastTick = -1e9;
  data.capacities.forEach((c, i) => {
    if (x(i) - lastTick < 54) return;
    lastTick = x(i);
    make('text', { x: x(i), y: height - bottom + 18, 'text-anchor': 'middle' }, svg, shortSize(c));
  });
  if (!blockBytes) make('text', { x: width - right, y: height - 1, 'text-anchor': 'end' }, svg, 'blocks');
  if (options.mark) {
    const i = data.capacities.indexOf(options.mark);
    if (i >= 0) {
      make('line', { x1: x(i), x2: x(i), y1: top, y2: height - bottom, stroke: 'var(--accent)', 'stroke-dasharray': '3 3' }, svg);
      make('text', { x: x(i) + (i > xs.length / 2 ? -6 : 6), y: height - bottom - 8, 'text-anchor': i > xs.length / 2 ? 'end' : 'start', class: 'name' }, svg, 'more buys nothing');
    }
  }
  const labels = [];
  for (const s of series) {
    const points = s.values.map((v, i) => v === null ? null : [x(i), y(v)]).filter(p => p);
    if (!points.length) continue;
    const colour = colours[s.name];
    make('polyline', { points: points.map(p => p.join(',')).join(' '), fill: 'none', stroke: colour, 'stroke-width': s.name === 'adaptive' ? 3.5 : 2.2, 'stroke-dasharray': dashes(s.name), 'stroke-linejoin': 'round' }, svg);
    for (const p of points) make('circle', { cx: p[0], cy: p[1], r: 2.6, fill: colour }, svg);
    labels.push({ name: s.name, at: points[points.length - 1][1], x: points[points.length - 1][0], colour });
  }
  // Names at the ends of the lines, kept apart.
  labels.sort((a, b) => a.at - b.at);
  const room = 13.5;
  for (let i = 1; i < labels.length; ++i) labels[i].at = Math.max(labels[i].at, labels[i - 1].at + room);
  const over = labels.length ? labels[labels.length - 1].at - (height - bottom - 8) : 0;
  if (over > 0) {
    labels[labels.length - 1].at -= over;
    for (let i = labels.length - 2; i >= 0; --i) labels[i].at = Math.min(labels[i].at, labels[i + 1].at - room);
  }
  for (const l of labels) make('text', { x: width - right + 8, y: l.at + 4, class: 'name', style: `fill:${l.colour}` }, svg, l.name);
  const cover = make('rect', { x: left, y: top, width: width - left - right, height: height - top - bottom, fill: 'transparent' }, svg);
  hover(cover, event => {
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * width;
    let best = 0;
    data.capacities.forEach((c, i) => { if (Math.abs(x(i) - at) < Math.abs(x(best) - at)) best = i; });
    const rows = series.filter(s => s.values[best] !== null && s.values[best] !== undefined)
      .sort((a, b) => b.values[best] - a.values[best])
      .map(s => s.name.padEnd(10) + options.say(s.values[best], s, best));
    return data.sizes[best] + '\n' + rows.join('\n');
  });
}

// Bars with a name below and a number above.
function bars(id, items, options) {
  const width = 500, height = 250, left = 6, right = 6, top = 22, bottom = 40;
  const svg = canvas(id, width, height, options.title);
  const high = Math.max(...items.map(b => b.value)) || 1, room = (width - left - right) / items.length;
  items.forEach((b, i) => {
    const tall = b.value / high * (height - top - bottom), x = left + i * room;
    const bar = make('rect', { class: 'bar', x: x + 3, width: room - 6, y: height - bottom - tall, height: Math.max(tall, 1), rx: 2 }, svg);
    if (b.faint) bar.style.fill = 'var(--line)';
    hover(bar, b.tip);
    make('text', { class: 'value', x: x + room / 2, y: height - bottom - tall - 5, 'text-anchor': 'middle' }, svg, b.label);
    b.name.split('\n').forEach((part, n) => make('text', { x: x + room / 2, y: height - bottom + 15 + 13 * n, 'text-anchor': 'middle', 'font-size': 11 }, svg, part));
  });
  make('line', { class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }, svg);
}

// ---- The page.
const trace = data.trace;
byId('trace').textContent = trace.name;
byId('sentence').textContent = data.sentence.replace(/(\d) (\S)/g, '$1\u00a0$2') || 'Bounds only: no policy was asked for.';
byId('about').textContent = `${count(trace.requests)} requests in ${trace.hours.toFixed(1)} hours, replayed through the cache ${trace.hints ? 'with' : 'without'} hints`
  + (data.policy ? `; the recommendation is for the policy ${data.policy}.` : '.');
for (const e of document.querySelectorAll('.view')) e.textContent = data.view.size;
for (const e of document.querySelectorAll('.policy')) e.textContent = data.policy;

const named = name => data.policies.find(p => p.name === name);
const chosen = named(data.policy), min = named('min'), lru = named('lru');
const viewIndex = data.capacities.indexOf(data.view.blocks);
function card(big, small) {
  const box = html('div', byId('cards'), undefined, 'card');
  html('b', box, big);
  html('span', box, small);
}
card(trace.footprint, 'all different blocks of the trace');
card(percent(data.unlimited, 0), 'would be found without a limit');
if (chosen) card(percent(chosen.ratio[viewIndex], 0), `${data.policy} finds with ${data.view.size}`);
if (chosen && min) card(((min.ratio[viewIndex] - chosen.ratio[viewIndex]) * 100).toFixed(1) + ' points', 'more if the future were known');
if (chosen && lru && chosen !== lru) card((100 * (chosen.ratio[viewIndex] - lru.ratio[viewIndex])).toFixed(1) + ' points', 'better than lru there');

for (const p of data.policies) {
  const entry = html('span', byId('legend'));
  const swatch = html('i', entry);
  swatch.style.borderTopColor = colours[p.name];
  if (dashes(p.name)) swatch.style.borderTopStyle = p.name === 'min' ? 'dashed' : 'dotted';
  entry.append(p.name);
}
lines('curves', data.policies.map(p => ({ name: p.name, values: p.ratio.map(r => 100 * r) })),
  { title: 'Hit ratio by capacity', wide: true, cap: 100, tick: v => v.toFixed(0) + ' %', say: v => v.toFixed(2) + ' %', mark: data.enough });
if (min) {
  lines('regret', data.policies.filter(p => p.name !== 'min' && p.name !== 'infinite')
    .map(p => ({ name: p.name, values: p.ratio.map((r, i) => 100 * (min.ratio[i] - r)) })),
    { title: 'Points below the bound', least: 1, tick: v => v.toFixed(v % 1 ? 1 : 0), say: v => v.toFixed(2) + ' points' });
} else none('regret', 'Needs --policy min.');
const others = data.policies.filter(p => p.name !== 'lru' && p.name !== 'infinite' && p.name !== 'min');
if (lru && (others.length || min)) {
  lines('saved', [...others, ...(min ? [min] : [])].map(p => ({ name: p.name, values: p.saved.map((s, i) => s === null ? null : Math.max(-100, 100 * s / data.capacities[i])), saved: p.saved })),
    { title: 'Memory saved against lru', least: 10, cap: 100, tick: v => v.toFixed(0) + ' %', say: (v, s, i) => v.toFixed(0) + ' %, ' + size(s.saved[i]) });
} else none('saved', 'Needs --policy lru and another one.');

// By depth: one line of dots per policy would be hard to read; groups of bars for up to four.
(function depth() {
  const d = data.depth, shown = [data.policy, 'lru', 'min'].filter((n, i, a) => n && d.hits[n] && a.indexOf(n) === i);
  if (!shown.length || !d.refs.length) return none('depth', 'Nothing was asked for.');
  const width = 500, height = 270, left = 44, right = 6, top = 26, bottom = 44;
  const svg = canvas('depth', width, height, 'Hit ratio by depth');
  const y = v => top + (1 - v) * (height - top - bottom);
  for (const v of [0, 0.25, 0.5, 0.75, 1]) {
    make('line', { class: v ? 'grid' : 'axis', x1: left, x2: width - right, y1: y(v), y2: y(v) }, svg);
    make('text', { x: left - 6, y: y(v) + 4, 'text-anchor': 'end' }, svg, percent(v, 0));
  }
  const room = (width - left - right) / d.refs.length, bar = (room - 8) / shown.length;
  d.refs.forEach((refs, i) => {
    const limit = d.limits[i], name = limit >= 1048576 ? limit / 1048576 + 'M' : limit / 1024 + 'k';
    make('text', { x: left + (i + 0.5) * room, y: height - bottom + 15, 'text-anchor': 'middle', 'font-size': 11 }, svg, name);
    shown.forEach((p, n) => {
      const ratio = refs ? d.hits[p][i] / refs : 0;
      const box = make('rect', { x: left + i * room + 4 + n * bar, width: Math.max(bar - 1, 1), y: y(ratio), height: Math.max(height - bottom - y(ratio), 0.5), fill: colours[p], rx: 1.5 }, svg);
      hover(box, `${p}, up to ${name} tokens\n${percent(ratio)} of ${count(refs)} blocks`);
    });
  });
  make('text', { x: width - right, y: height - 8, 'text-anchor': 'end' }, svg, 'tokens from the beginning, up to');
  shown.forEach((p, n) => {
    make('rect', { x: left + n * 90, y: 4, width: 11, height: 11, fill: colours[p], rx: 2 }, svg);
    make('text', { x: left + n * 90 + 16, y: 14 }, svg, p);
  });
})();

const refs = trace.refs || 1;
bars('gaps', [...data.gaps.labels.map((label, i) => ({ name: label.replace(' ', '\n'), value: data.gaps.refs[i], label: percent(data.gaps.refs[i] / refs, data.gaps.refs[i] / refs < 0.1 ? 1 : 0), tip: `${label}: ${count(data.gaps.refs[i])} block references` })),
  { name: 'first\nuse', value: data.gaps.first, label: percent(data.gaps.first / refs, 0), faint: true, tip: `${count(data.gaps.first)} blocks are asked for the first time: no cache has them` }],
  { title: 'Reuse gaps' });

if (data.sessions) {
  bars('sessions', data.sessions.tenths.map((n, i) => ({ name: `${10 * i}-\n${10 * i + 10} %`, value: n, label: count(n), tip: `${count(n)} sessions find ${10 * i} to ${10 * i + 10} % of what they ask for` })), { title: 'Sessions by hit ratio' });
  const table = html('table', byId('worst')), head = html('tr', html('thead', table)), body = html('tbody', table);
  for (const name of ['session', 'requests', 'blocks asked for', 'found', 'missed']) html('th', head, name);
  for (const [session, requests, asked, hits] of data.sessions.worst) {
    const row = html('tr', body);
    html('td', row, '#' + session);
    html('td', row, count(requests));
    html('td', row, count(asked));
    html('td', row, percent(hits / asked, 0));
    html('td', row, count(asked - hits));
  }
} else {
  none('sessions', 'The trace does not name sessions.');
  none('worst', 'The trace does not name sessions.');
}

(function numbers() {
  const table = html('table', byId('numbers')), head = html('tr', html('thead', table)), body = html('tbody', table);
  html('th', head, 'capacity');
  html('th', head, '% of all blocks');
  for (const p of data.policies) html('th', head, p.name);
  data.capacities.forEach((c, i) => {
    const row = html('tr', body);
    html('td', row, data.sizes[i]);
    html('td', row, (100 * c / Math.max(1, trace.unique)).toFixed(2));
    const real = data.policies.filter(p => p.name !== 'min' && p.name !== 'infinite').map(p => p.ratio[i]);
    for (const p of data.policies) {
      const cell = html('td', row, (100 * p.ratio[i]).toFixed(2), p.ratio[i] === Math.max(...real) && p.name !== 'min' && p.name !== 'infinite' ? 'best' : '');
      html('small', cell, (100 * p.weighted[i]).toFixed(2));
    }
  });
})();
document.documentElement.dataset.drawn = 'yes';
)js";

}  // namespace stemma::replay
