// The keyboard: the grid is one tab stop, and keys walk inside.
// Left and right go along a node, and on to the next where it ends; its name is its first cell. Up and down go to the
// nearest device of the node above or below, Home and End to the node's first and last device, with Ctrl to the grid's.
// A line whose tiles are not here yet gets them before the focus goes there.
import { $$, grid } from "./page.js";
import { all as allLines } from "./lines.js";
import { filled } from "./windows.js";

const STOPS = ".tile, .node .name a";
const tiles = () => grid.getElementsByClassName("tile");
export const stop = (one) => {
  for (const other of $$('[tabindex="0"]', grid)) if (other !== one) other.tabIndex = -1;
  one.tabIndex = 0;
};
export const enter = () => {
  if (!grid.querySelector('[tabindex="0"]')) (grid.querySelector('[aria-current="true"]') ?? tiles()[0])?.setAttribute("tabindex", "0");
};
const beside = async (from, step) => {
  const line = from.closest(".node");
  await filled(line);
  const stops = $$(STOPS, line), next = stops[stops.indexOf(from) + step];
  if (next) return next;
  const lines = allLines(), other = lines[lines.indexOf(line) + step];
  if (!other) return null;
  await filled(other);
  return $$(STOPS, other).at(step > 0 ? 0 : -1);
};
const edge = async (from, last, whole) => {
  const line = whole ? allLines().at(last ? -1 : 0) : from.closest(".node");
  await filled(line);
  return $$(".tile", line).at(last ? -1 : 0);
};
// The tile nearest to `from` as if that stood `by` pixels lower (higher where negative), first of lines, then in one.
const NEAR = 60; // lines before and after that are looked at, so that not all of five thousand devices are measured
const vertical = async (from, by) => {
  const own = from.getBoundingClientRect(), down = by > 0, top = own.top + by;
  const lies = (box) => (down ? box.bottom > own.bottom + 2 : box.top < own.top - 2);
  const apart = (box) => Math.max(0, box.top - top, top - box.bottom) * 4 + Math.max(0, box.left - own.left, own.left - box.right);
  const nearest = (all) => {
    let best = null, least = Infinity;
    for (const one of all) {
      const box = one.getBoundingClientRect();
      if (lies(box) && apart(box) < least) { best = one; least = apart(box); }
    }
    return best;
  };
  const lines = allLines(), at = lines.indexOf(from.closest(".node"));
  const line = nearest(Math.abs(by) > own.height * 2 ? lines : lines.slice(Math.max(0, at - NEAR), at + NEAR));
  if (!line) return null;
  await filled(line);
  return nearest($$(".tile", line));
};
const page = () => innerHeight * .8;
const STEPS = {
  ArrowRight: (from) => beside(from, 1), ArrowLeft: (from) => beside(from, -1),
  ArrowDown: (from) => vertical(from, from.offsetHeight), ArrowUp: (from) => vertical(from, -from.offsetHeight),
  PageDown: (from) => vertical(from, page()), PageUp: (from) => vertical(from, -page()),
  Home: (from, whole) => edge(from, false, whole), End: (from, whole) => edge(from, true, whole),
};

// show(tile) brings the tile that has the focus into sight.
let steps = 0; // of several in haste the last one counts
export const followKeys = (show) => {
  grid.addEventListener("focusin", ({ target }) => { if (target.matches(STOPS)) stop(target); });
  // Past fifty filters in one step.
  document.getElementById("to-grid").addEventListener("click", (event) => {
    event.preventDefault();
    const at = grid.querySelector('[tabindex="0"]');
    if (!at) return;
    at.focus({ preventScroll: true });
    show(at);
  });
  grid.addEventListener("keydown", async (event) => {
    const from = event.target.closest(STOPS), step = STEPS[event.key];
    const all = event.ctrlKey && (event.key === "Home" || event.key === "End");
    if (!from || !step || event.metaKey || event.altKey || (event.ctrlKey && !all)) return;
    event.preventDefault();
    const mine = ++steps, next = await step(from, all);
    if (!next || mine !== steps) return;
    next.focus({ preventScroll: true });
    show(next);
  });
};
