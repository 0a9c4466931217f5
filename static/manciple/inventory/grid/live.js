// Live: fetches the lines that changed, and puts each in its place.
import { note, signs } from "./changes.js";
import { enter } from "./keyboard.js";
import { $$, PARTS, answerTo, ask, frame, grid, here, judge, main, merge, mergeHeads, mergePart, owe, panel, parse } from "./page.js";
import { fill, mark, tileOf } from "./panel.js";

const collator = new Intl.Collator("en", { numeric: true });
const attributes = (tile) => `${tile.dataset.s} ${tile.getAttribute("aria-label")} ${tile.className} ${tile.dataset.c} ${tile.getAttribute("style")} ${"j" in tile.dataset} ${"k" in tile.dataset}`;
const within = (one, other) => one.childNodes.length === other.childNodes.length && [...one.childNodes].every((node, index) => node.isEqualNode(other.childNodes[index]));
// Only tiles that look different are exchanged: the others keep focus, hover and their place in the layout.
const place = (old, fresh) => {
  const before = old.getElementsByClassName("tile"), after = fresh.getElementsByClassName("tile");
  if (before.length !== after.length || [...before].some((tile, index) => tile.dataset.at !== after[index].dataset.at)) return replace(old, fresh);
  for (const [index, tile] of [...before].entries()) {
    const now = after[index];
    const same = within(tile, now);
    if (same && attributes(tile) === attributes(now)) continue;
    for (const { name, value } of [...now.attributes]) if (name !== "tabindex" && name !== "aria-current" && tile.getAttribute(name) !== value) tile.setAttribute(name, value);
    for (const { name } of [...tile.attributes]) if (!now.hasAttribute(name) && name !== "aria-current") tile.removeAttribute(name);
    if (!same) tile.innerHTML = now.innerHTML;
  }
  old.className = fresh.className;
  old.dataset.topics = fresh.dataset.topics;
  const name = old.querySelector(".name"), fresher = fresh.querySelector(".name");
  // Its title counts what is free; the name itself stays, with focus and layout, until it reads differently.
  if (name.title !== fresher.title) name.title = fresher.title;
  if (name.innerHTML.replace('tabindex="0"', 'tabindex="-1"') !== fresher.innerHTML) name.innerHTML = fresher.innerHTML;
};
const replace = (old, fresh) => {
  const focused = old.contains(document.activeElement) ? document.activeElement.dataset.at : null;
  old.replaceWith(fresh);
  const tile = focused && fresh.querySelector(`[data-at="${CSS.escape(focused)}"]`);
  tile?.focus({ preventScroll: true });
};
const insert = (list, line) => {
  const after = [...list.children].find((one) => collator.compare(one.dataset.name, line.dataset.name) > 0);
  list.insertBefore(line, after ?? null);
};
const SLICE = 2; // milliseconds that lines are put in for before a frame is drawn
const swap = async (got, topics) => {
  let since = performance.now();
  const fresh = $$(".node", got), kept = new Set(fresh.map((line) => line.id));
  const listOf = (line) => document.getElementById(line.parentElement.dataset.group)?.querySelector(".nodes");
  if (!fresh.every((line) => document.getElementById(line.id) ?? listOf(line))) return false; // a heading that is new: draw all
  const touched = $$(".node", grid).filter((line) => line.dataset.topics.split(" ").some((topic) => topics.has(topic)));
  const before = signs(touched);
  for (const line of touched) if (!kept.has(line.id)) line.remove();
  const placed = fresh.map((line) => line.id);
  for (const line of fresh) {
    if (performance.now() - since > SLICE) { await frame(); since = performance.now(); }
    const old = document.getElementById(line.id);
    if (old) place(old, line); else insert(listOf(line), line);
  }
  for (const group of $$("section.group", grid)) if (!group.querySelector(".node")) group.remove();
  // What stands beside the grid goes in over two frames: one has no time for all of it.
  await frame();
  for (const id of PARTS) if (id !== "facets") mergePart(got, id);
  mergeHeads(got);
  await frame();
  mergePart(got, "facets");
  judge();
  await frame();
  note(before, signs(placed.map((id) => document.getElementById(id)).filter(Boolean)));
  return true;
};
const redraw = async () => {
  const answer = await answerTo(here());
  if (!answer.ok) return false;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const before = signs([grid]), focused = document.activeElement.closest?.("#grid .tile")?.dataset.at;
  grid.replaceChildren(...fresh.getElementById("grid").childNodes);
  note(before, signs([grid]));
  if (focused) tileOf(focused)?.focus({ preventScroll: true });
  for (const id of PARTS) merge(document.getElementById(id), fresh.getElementById(id));
  return true;
};
const fetchLines = async (topics) => {
  const url = ask(main.dataset.lines);
  topics.forEach((topic) => url.searchParams.append("topic", topic));
  const answer = await answerTo(url);
  if (!answer.ok) return false;
  const got = parse(await answer.text()).firstElementChild;
  await frame(); // to read it took a part of this one
  return swap(got, topics);
};

const MANY = 32; // topics of one request: more wait for the next, so that no frame has too much to do
const AGAIN = 2000; // milliseconds after a question that got no answer
let waiting = new Set(), whole = false, busy = false;
const update = async () => {
  if (busy) return;
  busy = true;
  try {
    while (waiting.size || whole) {
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
