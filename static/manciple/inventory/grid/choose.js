// Choosing devices in the grid, to act on them together: by "Choose", or with Ctrl and Shift as in a list of files; with
// the keyboard "x". What is chosen stays chosen while tiles are drawn anew, so it is marked by a stylesheet and not on them.
// Of a large grid the page does not know all that match: the server finds them again, without those taken out of them.
import { all as allLines, partly } from "./lines.js";
import { $$, grid, said } from "./page.js";
import { filled } from "./windows.js";

const bar = document.getElementById("chosen"), mode = document.getElementById("choose");
const chosen = new Set(), style = new CSSStyleSheet();
document.adoptedStyleSheets = [...document.adoptedStyleSheets, style];
let matching = null; // the filters of which all that match are chosen
const but = new Set(); // of these, what is not
let last = null;

const tiles = () => [...grid.getElementsByClassName("tile")];
const many = (count) => `${count.toLocaleString("en")} device${count === 1 ? "" : "s"}`;
const matches = (tile) => matching !== null && !tile.classList.contains("dim");
const isChosen = (tile) => chosen.has(tile.dataset.at) || (matches(tile) && !but.has(tile.dataset.at));
const size = () => chosen.size + (matching === null ? 0 : Number(document.querySelector("#sum [data-matched]").dataset.matched) - but.size);
const named = (set) => [...set].map((at) => `[data-at="${CSS.escape(at)}"]`);
const send = (name, value) => { bar.elements[name].value = value ?? ""; bar.elements[name].disabled = !value && value !== ""; };
const draw = () => {
  const marked = matching === null ? named(chosen) : [`:not(${[".dim", ...named(but)].join()})`, ...named(chosen)];
  style.replaceSync(marked.length ? `.tile:is(${marked.join()}) { outline: 2.5px solid var(--brass-line); outline-offset: 1px; z-index: 4; }` : "");
  const count = size();
  bar.hidden = !count && mode.getAttribute("aria-pressed") !== "true";
  bar.querySelector("[data-count]").textContent = count ? `${many(count)} chosen` : "Choose devices";
  send("tile", [...chosen].join("\n"));
  send("matching", matching);
  send("except", but.size ? [...but].join("\n") : null);
  bar.elements.back.value = location.pathname + location.search;
  for (const act of $$("[formaction]", bar)) act.disabled = !count;
  document.body.classList.toggle("choosing", !bar.hidden);
};
const toggle = (tile, wanted = !isChosen(tile)) => {
  const { at } = tile.dataset;
  if (matches(tile)) { if (wanted) but.delete(at); else { but.add(at); chosen.delete(at); } }
  else if (wanted) chosen.add(at); else chosen.delete(at);
  last = at;
};
const upTo = async (tile) => {
  const start = grid.querySelector(`.tile[data-at="${CSS.escape(last ?? "")}"]`) ?? tile;
  const lines = allLines(), ends = [start, tile].map((one) => lines.indexOf(one.closest(".node"))).sort((one, other) => one - other);
  for (const line of lines.slice(ends[0], ends[1] + 1)) await filled(line);
  const every = tiles(), [first, end] = [start, tile].map((one) => every.indexOf(one)).sort((one, other) => one - other);
  for (const one of every.slice(first, end + 1)) if (!one.classList.contains("dim")) toggle(one, true);
  last = tile.dataset.at;
};
const choose = async (tile, range) => {
  if (range) await upTo(tile); else toggle(tile);
  draw();
  said.textContent = `${tile.getAttribute("aria-label").split(",")[0]} ${isChosen(tile) ? "chosen" : "no longer chosen"}, ${many(size())} in all.`;
};

// Before the grid opens the device's panel.
grid.addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  const choosing = mode.getAttribute("aria-pressed") === "true" || event.ctrlKey || event.metaKey || event.shiftKey;
  if (!tile || event.button || !choosing) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  choose(tile, event.shiftKey);
}, true);
grid.addEventListener("keydown", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile || event.key.toLowerCase() !== "x" || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  choose(tile, event.shiftKey);
});
const none = () => { chosen.clear(); but.clear(); matching = null; };
const clear = () => { none(); mode.setAttribute("aria-pressed", "false"); draw(); };
mode.addEventListener("click", () => {
  if (mode.getAttribute("aria-pressed") === "true") { clear(); return; }
  mode.setAttribute("aria-pressed", "true");
  draw();
});
bar.querySelector("[data-clear-chosen]").addEventListener("click", () => { clear(); mode.focus(); });
bar.querySelector("[data-choose-all]").addEventListener("click", () => {
  if (partly()) { none(); matching = location.search; }
  else for (const tile of tiles()) if (!tile.classList.contains("dim")) chosen.add(tile.dataset.at);
  draw();
  said.textContent = `${many(size())} chosen.`;
});
// Which of them match other filters is not known here.
document.addEventListener("grid:filtered", () => { if (matching !== null) { none(); draw(); } });
document.addEventListener("manciple:merged", () => { if (matching !== null) draw(); }); // there are more now, or fewer
draw();
