// Looks over a page that is shown: what is wrong with its contrast, names, headings, width, as lines. Empty when all is well.
// Contrast: WCAG 2.2, 1.4.3, for text of any size; what is disabled or decoration does not count.
const problems = [];
const canvas = document.createElement('canvas'); canvas.width = canvas.height = 1;
const pen = canvas.getContext('2d', {willReadFrequently: true});
const rgba = text => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = text; pen.fillRect(0, 0, 1, 1); const d = pen.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3])).concat(1);
const light = ([r, g, b]) => { const f = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
const ground = e => { let layers = []; for (let at = e; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor)); return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]); };
const seen = e => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) && !e.closest('[aria-hidden=true], .unseen, .skip, option');
for (const e of document.querySelectorAll('body *')) {
  if (!seen(e) || e.closest(':disabled')) continue;
  const words = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join('');
  if (!words) continue;
  const below = ground(e), ink = over(rgba(getComputedStyle(e).color), below);
  const [a, b] = [light(ink), light(below)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${words.slice(0, 40)}`);
}
for (const e of document.querySelectorAll('button, a[href], summary')) if (seen(e) && !(e.getAttribute('aria-label') || e.innerText || '').trim()) problems.push('no name: ' + e.outerHTML.slice(0, 80));
for (const e of document.querySelectorAll('input, select, textarea')) if (!e.getAttribute('aria-label') && !(e.labels && e.labels.length)) problems.push('no label: ' + e.outerHTML.slice(0, 80));
for (const e of document.querySelectorAll('[id]')) if (document.querySelectorAll('#' + CSS.escape(e.id)).length > 1) problems.push('twice: #' + e.id);
if (document.querySelectorAll('h1').length !== 1) problems.push('headings of the first rank: ' + document.querySelectorAll('h1').length);
const ranks = [...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1]);
ranks.forEach((r, i) => { if (i && r > ranks[i - 1] + 1) problems.push('a heading skips a rank'); });
if (document.documentElement.scrollWidth > innerWidth) problems.push(`wider than its window: ${document.documentElement.scrollWidth}`);
return problems;
