// The search box: every word that is typed must occur in a section. Sections whose heading has the words come first.
const box = document.querySelector('input[type="search"]');
const found = document.getElementById('found');
const contents = document.getElementById('contents');

function rank(section, words) {
  const heading = section.heading.toLowerCase();
  const text = section.text.toLowerCase();
  let points = 0;
  for (const word of words) {
    if (heading.includes(word)) points += 10;
    else if (text.includes(word)) points += Math.min(5, text.split(word).length - 1);
    else return 0;
  }
  return points;
}

function around(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 40);
  return (at > 0 ? '… ' : '') + text.slice(at, at + 140);
}

box.addEventListener('input', () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  contents.hidden = words.length > 0;
  found.replaceChildren();
  if (words.length === 0) return;
  const ranked = sections.map((section) => [rank(section, words), section]).filter(([points]) => points > 0);
  ranked.sort((a, b) => b[0] - a[0]);
  for (const [, section] of ranked.slice(0, 30)) {
    const item = document.createElement('li');
    const link = document.createElement('a');
    link.href = base + section.url;
    link.textContent = section.heading;
    const where = document.createElement('small');
    where.textContent = `${section.page}: ${around(section.text, words[0])}`;
    item.append(link, where);
    found.append(item);
  }
  if (ranked.length === 0) found.append(Object.assign(document.createElement('li'), { textContent: 'Nothing found.' }));
});
