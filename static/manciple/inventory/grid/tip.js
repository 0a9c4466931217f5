// The tip: names the device under a mouse or the keyboard's focus, and marks the other devices of its claim.
import { $$, grid } from "./page.js";

const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
const ROOM = 7; // pixels between a tile and its tip
document.body.append(tip);
let kin = []; // what is marked: a page that scrolls does not look for it with each step
export const pointAt = (tile) => {
  for (const one of kin) one.classList.remove("kin");
  kin = [];
  tip.hidden = !tile;
  if (!tile) return;
  tip.textContent = tile.getAttribute("aria-label");
  const box = tile.getBoundingClientRect(), below = box.bottom + ROOM + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${below ? box.bottom + ROOM : box.top - ROOM - tip.offsetHeight}px`;
  if (tile.dataset.c) kin = $$(`[data-c="${CSS.escape(tile.dataset.c)}"]`, grid).filter((one) => one !== tile);
  for (const one of kin) one.classList.add("kin");
};
// A finger has no hover, and what it opens says more than a tip.
grid.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") pointAt(event.target.closest(".tile")); });
grid.addEventListener("pointerleave", () => pointAt(null));
grid.addEventListener("focusin", ({ target }) => pointAt(target.matches(".tile:focus-visible") ? target : null));
grid.addEventListener("focusout", () => pointAt(null));
addEventListener("scroll", () => pointAt(null), { passive: true });
