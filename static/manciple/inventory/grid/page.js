// What the modules of the device grid share: the elements of the page, its address, and its parts beside the grid.
export const main = document.getElementById("main");
export const grid = document.getElementById("grid");
export const panel = document.getElementById("panel");
export const form = document.getElementById("asked");
export const cel = document.getElementById("cel");
export const said = document.getElementById("said");
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
// Parts that show the same filters and devices as the grid.
export const PARTS = ["sum", "legend", "facets", "filtered"];
// A server that was frozen may never answer on that connection.
const PATIENCE = 30000; // milliseconds
export const answerTo = (url) => fetch(url, { signal: AbortSignal.timeout(PATIENCE) });
// Of a click: it is meant for this page, not for another tab.
export const plain = (event) => !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0;
export const owe = () => document.dispatchEvent(new CustomEvent("manciple:owing"));
// After what was put in is drawn: what comes next is laid out with the next frame, not with this one.
export const frame = () => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));

// The address has the open panel, the size and the filters.
export const here = () => new URL(location.href);
let latest = location.href;
// step: state of a new entry of the history, from which the browser's Back leads here; without it the address of this
// entry changes.
export const remember = (change, step = null) => {
  const url = here();
  change(url.searchParams);
  if (String(url.searchParams) === String(here().searchParams)) return;
  if (step) history.pushState(step, "", url); else history.replaceState(history.state, "", url);
  latest = location.href;
};
// After a step back or forward in the history, panel and filters are those of its entry; tiles keep their size.
addEventListener("popstate", () => {
  const before = new URL(latest).searchParams, size = before.get("size");
  remember((params) => { if (size) params.set("size", size); else params.delete("size"); });
  latest = location.href;
  document.dispatchEvent(new CustomEvent("grid:stepped", { detail: { before, now: here().searchParams } }));
});
export const ask = (path) => {
  const url = new URL(path, location.href);
  url.search = here().search;
  return url;
};
export const parse = (html) => Object.assign(document.createElement("template"), { innerHTML: html }).content;

// Parts beside the grid are merged, so that focus and what is being typed stay.
export const merge = (old, fresh) => {
  const opened = new Set($$("details[open] > summary", old).map((one) => one.textContent));
  for (const one of $$("details", fresh)) one.open = opened.has(one.querySelector("summary").textContent);
  // Its children: an element itself would be put inside the old one.
  Idiomorph.morph(old, fresh.childNodes, { morphStyle: "innerHTML", ignoreActiveValue: true });
};
export const mergePart = (got, id) => {
  const fresh = got.querySelector(`[data-into="${id}"]`), old = document.getElementById(id);
  if (fresh && old.innerHTML.trim() !== fresh.innerHTML.trim()) merge(old, fresh);
};
export const mergeHeads = (got) => {
  for (const head of $$("header[id]", got)) {
    const old = document.getElementById(head.id);
    if (old) old.dataset.lines = head.dataset.lines;
    if (old && !old.isEqualNode(head)) merge(old, head);
  }
};
export const judge = () => {
  const asked = here().searchParams;
  for (const box of $$("input[type=checkbox]", form)) box.checked = asked.getAll(box.name).includes(box.value);
  cel.setAttribute("aria-invalid", Boolean(document.getElementById("cel-error")));
};
export const mergeParts = (got) => {
  for (const id of PARTS) mergePart(got, id);
  judge();
  mergeHeads(got);
};
