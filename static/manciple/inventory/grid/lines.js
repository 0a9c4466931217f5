// The lines of the grid, and how what the server says of one is put in its place.
// Of a large grid (`partly`) it sends the names of all lines and the tiles of some: of a line without topics there is
// the name alone, and the tiles of one that is `stale` may be out of date. Both are fetched when they are looked at.
import { $$, grid } from "./page.js";

export const partly = () => grid.classList.contains("partly");
export const all = () => $$(".nodes", grid).flatMap((list) => [...list.children]);
export const drawn = (line) => "topics" in line.dataset;
export const lacks = (line) => !drawn(line) || "stale" in line.dataset;
// Without the heading's part of its id. `under`: the id of its section.
const nameOf = (line, under) => line.id.slice(under.length);
export const idOf = (name, under) => `line${under.slice("group".length)}-${name}`;
export const headingOf = (line) => line.parentElement.dataset.group ?? line.closest("section.group").id;

const collator = new Intl.Collator("en", { numeric: true });
const attributes = (tile) => `${tile.dataset.s} ${tile.getAttribute("aria-label")} ${tile.className} ${tile.dataset.c} ${tile.getAttribute("style")} ${"j" in tile.dataset} ${"k" in tile.dataset}`;
const within = (one, other) => one.childNodes.length === other.childNodes.length && [...one.childNodes].every((node, index) => node.isEqualNode(other.childNodes[index]));
// Only tiles that look different are exchanged: the others keep focus, hover and their place in the layout.
export const place = (old, fresh) => {
  if (!drawn(fresh)) { // its name alone
    if (drawn(old)) old.dataset.stale = "";
  } else if (drawn(old)) {
    const before = old.getElementsByClassName("tile"), after = fresh.getElementsByClassName("tile");
    if (before.length !== after.length || [...before].some((tile, index) => tile.dataset.at !== after[index].dataset.at)) return replace(old, fresh);
    for (const [index, tile] of [...before].entries()) exchange(tile, after[index]);
  } else fill(old, fresh);
  old.className = fresh.className;
  const name = old.querySelector(".name"), fresher = fresh.querySelector(".name");
  if (drawn(fresh)) {
    old.dataset.topics = fresh.dataset.topics;
    delete old.dataset.stale;
    // Its title counts what is free; the name itself stays, with focus and layout, until it reads differently.
    if (name.title !== fresher.title) name.title = fresher.title;
  }
  if (name.innerHTML.replace('tabindex="0"', 'tabindex="-1"') !== fresher.innerHTML) name.innerHTML = fresher.innerHTML;
};
const exchange = (tile, now) => {
  const same = within(tile, now);
  if (same && attributes(tile) === attributes(now)) return;
  for (const { name, value } of [...now.attributes]) if (name !== "tabindex" && name !== "aria-current" && tile.getAttribute(name) !== value) tile.setAttribute(name, value);
  for (const { name } of [...tile.attributes]) if (!now.hasAttribute(name) && name !== "aria-current") tile.removeAttribute(name);
  if (!same) tile.innerHTML = now.innerHTML;
};
const fill = (old, fresh) => {
  for (const room of $$(".room", old)) room.remove();
  old.firstElementChild.append(...[...fresh.firstElementChild.children].slice(1));
};
const replace = (old, fresh) => {
  const focused = old.contains(document.activeElement) ? document.activeElement.dataset.at : null;
  old.replaceWith(fresh);
  const tile = focused && fresh.querySelector(`[data-at="${CSS.escape(focused)}"]`);
  tile?.focus({ preventScroll: true });
};
export const insert = (list, line, under) => {
  const after = [...list.children].find((one) => collator.compare(nameOf(one, under), nameOf(line, under)) > 0);
  list.insertBefore(line, after ?? null);
};
