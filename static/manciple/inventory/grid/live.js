// Live: fetches the lines that changed, and those that are looked at and lack their tiles, and puts each in its place.
// One request at a time: what an answer says is newer than what is on the page.
import { note, signs } from "./changes.js";
import { enter } from "./keyboard.js";
import { drawn, headingOf, idOf, insert, partly, place } from "./lines.js";
import { $$, PARTS, answerTo, ask, frame, grid, here, judge, main, merge, mergeHeads, mergePart, owe, panel, parse } from "./page.js";
import { fill, mark, tileOf } from "./panel.js";
import { uppermost, wanted } from "./windows.js";

const SLICE = 2, LONG_SLICE = 12; // milliseconds that lines are put in for before a frame is drawn: of changes; of a window
const listUnder = (heading) => document.getElementById(heading)?.querySelector(".nodes");
const inFrames = async (fresh, slice) => {
  let since = performance.now();
  for (const line of fresh) {
    if (performance.now() - since > slice) { await frame(); since = performance.now(); }
    const old = document.getElementById(line.id), under = headingOf(line);
    if (old) place(old, line); else if (listUnder(under)) insert(listUnder(under), line, under);
  }
};
const swap = async (got, topics) => {
  const fresh = $$(".node", got), kept = new Set(fresh.map((line) => line.id));
  if (!fresh.every((line) => document.getElementById(line.id) ?? listUnder(headingOf(line)))) return false; // a heading that is new: draw all
  const touched = $$(".node[data-topics]", grid).filter((line) => line.dataset.topics.split(" ").some((topic) => topics.has(topic)));
  const before = signs(touched);
  const shown = fresh.filter((line) => { const old = document.getElementById(line.id); return drawn(line) && (!old || drawn(old)); }).map((line) => line.id);
  for (const line of touched) if (!kept.has(line.id)) line.remove();
  if (partly()) dropNames(fresh, kept, topics);
  await inFrames(fresh, SLICE);
  for (const group of $$("section.group", grid)) if (!group.querySelector(".node")) group.remove();
  // What stands beside the grid goes in over two frames: one has no time for all of it.
  await frame();
  for (const id of PARTS) if (id !== "facets") mergePart(got, id);
  mergeHeads(got);
  await frame();
  mergePart(got, "facets");
  judge();
  await frame();
  note(before, signs(shown.map((id) => document.getElementById(id)).filter(Boolean)));
  return !isOff(got);
};
// Of a line without tiles only the name says which topics touch it.
const dropNames = (fresh, kept, topics) => {
  const names = fresh.map((line) => line.id.slice(headingOf(line).length));
  for (const topic of topics) if (topic.startsWith("node:")) names.push(topic.slice("node:".length));
  for (const group of $$("section.group", grid)) for (const name of names) {
    const line = document.getElementById(idOf(name, group.id));
    if (line && !kept.has(line.id) && !drawn(line)) line.remove();
  }
};
// Whether other lines stand here than the server counts. What it counts may be newer than what this page has heard of: once
// means little.
let off = 0;
const isOff = (got) => {
  if (!partly()) return false;
  const counted = new Map($$("header[data-lines]", got).map((head) => [head.id, Number(head.dataset.lines)]));
  const same = (group) => group.querySelector(".nodes").children.length === counted.get(group.firstElementChild.id);
  const groups = $$("section.group", grid);
  off = groups.length === counted.size && groups.every(same) ? 0 : off + 1;
  return off > 1 && !waiting.size;
};
const redraw = async () => {
  const url = here();
  if (partly()) url.searchParams.set("from", uppermost() ?? "");
  const answer = await answerTo(url);
  if (!answer.ok) return false;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("grid");
  const olds = new Map($$(".node[data-topics]", grid).map((line) => [line.id, line]));
  grid.classList.toggle("partly", fresh.classList.contains("partly"));
  const told = $$(".node[data-topics]", fresh).filter((line) => !partly() || olds.has(line.id));
  const before = signs(partly() ? told.map((line) => olds.get(line.id)) : [grid]), focused = document.activeElement.closest?.("#grid .tile")?.dataset.at;
  for (const line of $$(".node:not([data-topics])", fresh)) { // what is on the screen stays until there is something newer
    const old = olds.get(line.id);
    if (!old) continue;
    old.dataset.stale = "";
    line.replaceWith(old);
  }
  grid.replaceChildren(...fresh.childNodes);
  note(before, signs(told));
  if (focused) tileOf(focused)?.focus({ preventScroll: true });
  for (const id of PARTS) merge(document.getElementById(id), fresh.ownerDocument.getElementById(id));
  off = 0;
  return true;
};
const fetchLines = async (topics) => {
  const url = ask(main.dataset.lines);
  const heard = new Set($$(".node[data-topics]", grid).flatMap((line) => line.dataset.topics.split(" ")));
  topics.forEach((topic) => url.searchParams.append(heard.has(topic) ? "topic" : "other", topic));
  const filters = here().search, answer = await answerTo(url);
  if (!answer.ok) return false;
  const got = parse(await answer.text()).firstElementChild;
  await frame(); // to read it took a part of this one
  if (here().search === filters) return swap(got, topics);
  for (const topic of topics) waiting.add(topic); // it is asked for again, as the filters are now
  return true;
};
const fetchWindow = async ({ lines, query }) => {
  const url = ask(main.dataset.window);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  const filters = here().search, answer = await answerTo(url);
  if (answer.status === 404) return false;
  if (!answer.ok) throw new Error("no answer");
  const got = parse(await answer.text()).firstElementChild;
  await frame();
  if (here().search !== filters) return true;
  const fresh = $$(".node", got), kept = new Set(fresh.map((line) => line.id));
  // It has as many lines as a window has. Between these there is nothing else.
  const last = lines.findLastIndex((line) => kept.has(line.id));
  for (const line of lines.slice(0, last + 1)) if (!kept.has(line.id)) line.remove();
  await inFrames(fresh, LONG_SLICE);
  return fresh.length > 0;
};

const MANY = 32; // topics of one request: more wait for the next, so that no frame has too much to do
const AGAIN = 2000; // milliseconds after a question that got no answer
let waiting = new Set(), whole = false, busy = false;
const update = async () => {
  if (busy) return;
  busy = true;
  try {
    for (let next = wanted(); waiting.size || whole || next; next = wanted()) {
      if (next && !whole) {
        if (!await fetchWindow(next)) whole = true; // which it may have become meanwhile
        enter();
        mark(here().searchParams.get("at"));
        next.go?.();
        if (!waiting.size && !whole) continue;
      }
      const all = whole;
      const topics = new Set([...waiting].slice(0, MANY));
      waiting = all ? new Set() : new Set([...waiting].slice(MANY));
      whole = false;
      if ((all || !(await fetchLines(topics))) && !(await redraw())) throw new Error("no answer");
      enter();
      const at = here().searchParams.get("at");
      if (at) {
        const [driver, ...rest] = at.split("/");
        mark(at);
        if (all || topics.has(`pool:${driver}/${rest.slice(0, -1).join("/")}`)) await fill(at);
      }
      document.dispatchEvent(new CustomEvent("manciple:merged", { detail: { within: [panel] } })); // tiles have no ages
      if (waiting.size) owe();
      await frame(); // what was put in is painted before the next comes
    }
  } catch { // live.js says how old the page is by now; what was not heard of is asked for as a whole
    whole = true;
    setTimeout(update, AGAIN);
  } finally { busy = false; }
};
document.addEventListener("manciple:changed", ({ detail }) => {
  whole ||= detail.everything;
  for (const topic of detail.topics) if (/^(pool|node):/.test(topic)) waiting.add(topic);
  if (waiting.size || whole) { owe(); update(); }
});
const look = () => { if (!busy) update(); };
let looking = false;
const lookSoon = () => {
  if (looking || busy || !partly()) return;
  looking = true;
  requestAnimationFrame(() => { looking = false; look(); });
};
addEventListener("scroll", lookSoon, { passive: true });
new ResizeObserver(lookSoon).observe(grid); // other tiles, filters that open, a window of another size
document.addEventListener("grid:look", look);
