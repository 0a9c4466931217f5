// What changed is said aloud.
import { $$, main, said } from "./page.js";
import { tileOf } from "./panel.js";

// Which device, where, and what it is now. Many are told in sum, and no more often than
// somebody can listen to; what is as it was when last told is not worth a word.
const FEW = 3, TELLING = 3000; // devices that are named; milliseconds between two announcements
const words = JSON.parse(main.dataset.words);
const signOf = (tile) => [tile.dataset.s, ...$$("i[data-at]", tile).map((part) => part.dataset.at + part.dataset.s)].join();
export const signs = (lines) => new Map(lines.flatMap((line) => $$(".tile", line)).map((tile) => [tile.dataset.at, [signOf(tile), tile]]));
const told = new Map(); // address -> how it was when last told, and its tile, of those that changed since
let telling = null, lastTold = -TELLING;
export const note = (before, after) => {
  for (const at of new Set([...before.keys(), ...after.keys()])) {
    const [old, was] = before.get(at) ?? [], [now, tile] = after.get(at) ?? [];
    if (old !== now) told.set(at, [told.has(at) ? told.get(at)[0] : old, tile ?? was]);
  }
  if (told.size) telling ??= setTimeout(tell, lastTold + TELLING - performance.now());
};
const tell = () => {
  telling = null;
  // Tiles stay in their places: to look for each among thousands would take long.
  const found = [...told].map(([at, [old, tile]]) => [tile?.isConnected ? tile : tileOf(at), old]).filter(([tile, old]) => tile ? signOf(tile) !== old : old);
  told.clear();
  if (!found.length) return;
  const now = found.map(([tile]) => tile).filter(Boolean), gone = found.length - now.length;
  const counts = Map.groupBy(now, (tile) => words[tile.dataset.s]);
  const sum = now.length <= FEW ? now.map((tile) => `${tile.getAttribute("aria-label")}.`)
    : [`${now.length} devices changed: ${[...counts].map(([word, all]) => `${all.length} ${word}`).join(", ")}.`];
  lastTold = performance.now();
  if (gone) sum.push(gone === 1 ? "1 device is gone." : `${gone} devices are gone.`);
  said.textContent = sum.join(" ");
};
