#include "replay/report_template.h"

namespace stemma::replay {

const char* const kReportTemplate = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>stemma replay</title>
<link rel="icon" href="data:,">
<style>@STYLE@</style>
</head>
<body>
<main>
<header>
  <p class="kicker">stemma replay &middot; <span id="trace"></span></p>
  <h1 id="sentence"></h1>
  <p class="about" id="about"></p>
</header>
<section class="cards" id="cards"></section>
<section class="wide">
  <h2>How much is found cached</h2>
  <p>Blocks found, in % of those asked for, by the size of the cache. Nobody can be above <b>min</b>, which knows the future.</p>
  <div class="legend" id="legend"></div>
  <figure id="curves"></figure>
</section>
<div class="pair">
<section>
  <h2>What is left to gain</h2>
  <p>Points below the clairvoyant bound at the same size. Lower is better.</p>
  <figure id="regret"></figure>
</section>
<section>
  <h2>Memory saved</h2>
  <p>How much less memory a policy needs to find as much as <b>lru</b> finds with the size below, in % of it.</p>
  <figure id="saved"></figure>
</section>
<section>
  <h2>By depth</h2>
  <p>Of the blocks that end this deep in their prompt, how many are found with <b class="view"></b>.</p>
  <figure id="depth"></figure>
</section>
<section>
  <h2>How long until it is used again</h2>
  <p>Block references by the time since the block was last asked for, in % of all references.</p>
  <figure id="gaps"></figure>
</section>
<section>
  <h2>By session</h2>
  <p>Sessions by how much of their prompts is found, after their first request; <b class="policy"></b> with <b class="view"></b>.</p>
  <figure id="sessions"></figure>
</section>
<section>
  <h2>Sessions that miss most</h2>
  <p>The ten with the most blocks computed again; <b class="policy"></b> with <b class="view"></b>.</p>
  <div id="worst"></div>
</section>
</div>
<section class="wide">
  <h2>The numbers</h2>
  <p>Hit ratio in %; in small print the same with deep blocks weighing more (1 + depth in tokens / 32768).</p>
  <div class="scroll" id="numbers"></div>
</section>
</main>
<div id="tip" hidden></div>
<script type="application/json" id="data">@DATA@</script>
<script>@SCRIPT@</script>
</body>
</html>
)html";

const char* const kReportStyle = R"css(
:root { --ink: #1c2430; --soft: #5c6675; --line: #d9dee5; --paper: #ffffff; --ground: #f3f5f8; --accent: #0b63c5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf2; --soft: #9aa5b4; --line: #39424f; --paper: #1b212a; --ground: #12161c; --accent: #6db3ff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 28px 20px 60px; }
.kicker { margin: 0; color: var(--soft); font-size: 13px; }
h1 { font-size: 30px; line-height: 1.2; margin: 6px 0 8px; max-width: 26em; }
h2 { font-size: 17px; margin: 0 0 2px; }
section p { margin: 0 0 10px; color: var(--soft); font-size: 13px; }
.about { color: var(--soft); margin: 0 0 18px; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; min-width: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; background: none; border: 0; padding: 0; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.card b { display: block; font-size: 24px; line-height: 1.2; }
.card span { color: var(--soft); font-size: 13px; }
.wide { margin-top: 14px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 14px; margin-top: 14px; }
@media (max-width: 500px) { .pair { grid-template-columns: 1fr; } h1 { font-size: 24px; } }
figure { margin: 0; }
svg { width: 100%; height: auto; display: block; font: 12px system-ui, sans-serif; overflow: visible; }
svg text { fill: var(--soft); }
svg .name { font-weight: 600; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .bar { fill: var(--accent); }
svg .value { fill: var(--ink); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 2px 0 8px; font-size: 13px; }
.legend i { display: inline-block; width: 22px; height: 0; border-top: 3px solid; margin-right: 6px; vertical-align: middle; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 8px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
td small { color: var(--soft); margin-left: 6px; }
td.best { font-weight: 700; }
.scroll { overflow-x: auto; }
.none { color: var(--soft); font-style: italic; }
#tip { position: fixed; pointer-events: none; background: var(--ink); color: var(--paper); border-radius: 6px; padding: 6px 9px; font-size: 12px; white-space: pre; z-index: 2; }
)css";

}  // namespace stemma::replay
