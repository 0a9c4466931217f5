// Windows: which lines of a large grid lack their tiles and are looked at. live.js fetches them, one window at a time, so
// that of what somebody scrolls past in haste only what stays in sight is asked for.
import { all, drawn, lacks, partly } from "./lines.js";

const NEAR = 1; // screens above and below this one whose lines are fetched, too
// Lines stand in rows, from top to bottom.
const top = (line) => line.getBoundingClientRect().top;
const firstFrom = (lines, y) => { // which begins there, or below
  let low = 0, high = lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (top(lines[middle]) >= y) high = middle; else low = middle + 1;
  }
  return low;
};
const firstReaching = (lines, y) => { // the row before begins above, and may go on below
  let at = firstFrom(lines, y);
  const row = at && top(lines[at - 1]);
  while (at && top(lines[at - 1]) === row) at -= 1;
  return at;
};

const demanded = []; // [line, what is called when it has its tiles, or is gone]
const sought = []; // [address of a device, what is called when its line has been looked for]
const mayGoOn = () => {
  for (const [line, go] of demanded.splice(0)) if (line.isConnected && lacks(line)) demanded.push([line, go]); else go();
};
const ask = () => document.dispatchEvent(new CustomEvent("grid:look"));
// For those who go on when the line has its tiles.
export const filled = (line) => new Promise((go) => {
  demanded.push([line, go]);
  mayGoOn();
  if (demanded.length) ask();
});
export const sightOf = (at) => new Promise((go) => { sought.push([at, go]); ask(); });
// What to fetch next: lines that stand side by side, or those around a device. null where all that is looked at has its
// tiles.
export const wanted = () => {
  mayGoOn();
  if (!partly()) { for (const [, go] of sought.splice(0)) go(); return null; }
  if (sought.length) { const [at, go] = sought.shift(); return { lines: [], query: { around: at }, go }; }
  const lines = all();
  const from = (start, end = lines.length) => {
    const first = lines.slice(start, end).findIndex(lacks);
    if (first < 0) return null;
    const rest = lines.slice(start + first, end), next = rest.findIndex((line) => !lacks(line));
    const found = next < 0 ? rest : rest.slice(0, next);
    return { lines: found, query: { first: found[0].id, last: found.at(-1).id } };
  };
  for (const [line] of demanded) return from(lines.indexOf(line));
  const screen = firstReaching(lines, 0), near = innerHeight * NEAR;
  return from(screen, firstFrom(lines, innerHeight + near)) ?? from(firstReaching(lines, -near), screen);
};
// What the tiles show is no longer what the address asks for.
export const doubt = () => {
  for (const line of all()) if (drawn(line)) line.dataset.stale = "";
  ask();
};
// The line that is uppermost on the screen, by its id.
export const uppermost = () => { const lines = all(); return lines[firstReaching(lines, 0)]?.id; };
