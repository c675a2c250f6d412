// What both pages share. Each says how it draws itself (draw, fit), what a choice shows (select), and what a search finds:
// matching(text) has the numbers of things, best first, and labelled(i, text) what one is called then.
const el = (id) => document.getElementById(id);
const canvas = el("canvas"), context = canvas.getContext("2d"), panel = el("panel"), search = el("search"), hits = el("hits");
const INK = "#1c2733", MUTED = "#55616d", EDGE = "#7b8794", BEFORE = "#0072b2", AFTER = "#d55e00";
let width = 0, height = 0, ratio = 1, due = false, selected = -1;

function soon() { if (!due) { due = true; requestAnimationFrame(draw); } }
function resize() {
  const r = canvas.parentElement.getBoundingClientRect();
  ratio = window.devicePixelRatio || 1; width = r.width; height = r.height;
  canvas.width = Math.max(1, Math.round(width * ratio)); canvas.height = Math.max(1, Math.round(height * ratio)); soon();
}
const place = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };

function add(tag, text, to, name) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (name) e.className = name;
  (to || panel).append(e); return e;
}
function table(list) {
  const t = add("table");
  for (const row of list) { const tr = add("tr", undefined, t); for (const text of row) add("td", text, tr); }
  return t;
}
function listed(title, list, put) {
  if (!list.length) return;
  add("h3", title + " (" + list.length + ")");
  const ul = add("ul");
  list.slice(0, 200).forEach((one) => put(one, add("li", undefined, ul)));
  if (list.length > 200) add("p", "and " + (list.length - 200) + " more", panel, "muted");
}

let turn = -1, found = [];
search.addEventListener("input", () => {
  const text = search.value.trim().toLowerCase();
  turn = -1; hits.replaceChildren();
  found = text ? matching(text) : [];
  found.slice(0, 50).forEach((i) => {
    add("button", labelled(i, text), hits).onclick = () => { hits.replaceChildren(); select(i, true); };
  });
  if (text && !found.length) add("button", "no node has this in its name", hits, "muted");
});
search.addEventListener("keydown", (e) => {
  if (e.key === "Enter" && found.length) { turn = (turn + 1) % found.length; hits.replaceChildren(); select(found[turn], true); }
});
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") { hits.replaceChildren(); search.blur(); select(-1); }
  else if (e.target !== search && e.key === "/") { e.preventDefault(); search.focus(); search.select(); }
  else if (e.target !== search && e.key === "f" && !e.ctrlKey && !e.metaKey) fit();
});
