// The panel: floats beside the device that it describes, and opens from tiles, links and the address.
import { stop } from "./keyboard.js";
import { $$, answerTo, cel, grid, here, main, merge, panel, parse, plain, remember, said } from "./page.js";
import { pointAt } from "./tip.js";
import { sightOf } from "./windows.js";

export const tileOf = (at) => grid.querySelector(`.tile[data-at="${CSS.escape(at)}"]`) ?? grid.querySelector(`[data-at="${CSS.escape(at)}"]`)?.closest(".tile");
export const mark = (at) => {
  for (const one of $$('[aria-current="true"]', grid)) one.removeAttribute("aria-current");
  if (at) tileOf(at)?.setAttribute("aria-current", "true");
};
// Somebody may close it, or open another, until all of the answer is here: then it is the answer to nothing.
let asked = 0;
export const fill = async (at) => {
  const mine = ++asked;
  const url = new URL(main.dataset.panel, location.href);
  url.searchParams.set("at", at);
  const answer = await answerTo(url);
  const html = answer.ok ? await answer.text() : "";
  if (mine !== asked || here().searchParams.get("at") !== at) return false;
  if (!answer.ok) { said.textContent = `The device could not be read (status ${answer.status}). Try again.`; return false; }
  if (panel.dataset.at === at) merge(panel, parse(`<div>${html}</div>`).firstElementChild);
  else { panel.innerHTML = html; panel.scrollTop = 0; }
  panel.dataset.at = at;
  panel.hidden = !html.trim();
  main.classList.toggle("no-panel", panel.hidden);
  return !panel.hidden;
};
// On which side the panel floats: it stays where it is unless it would hide `tile`. A phone has it below.
const clear = (tile) => {
  if (panel.hidden) return;
  const { width } = panel.getBoundingClientRect(), box = tile.getBoundingClientRect(), all = main.clientWidth;
  if (width >= all) return;
  const hidden = { left: width - box.left, right: box.right - (all - width) };
  const now = panel.dataset.side ?? "right", other = now === "left" ? "right" : "left";
  if (hidden[now] > 0 && hidden[other] < hidden[now]) panel.dataset.side = other;
};
export const show = (tile, block = "nearest") => {
  tile.scrollIntoView({ block, inline: "nearest" });
  clear(tile);
  if (tile.matches(":focus-visible")) pointAt(tile);
};
const open = async (at) => {
  remember((params) => params.set("at", at), panel.hidden ? { panel: true } : null);
  await draw(at);
};
const draw = async (at) => {
  mark(at);
  pointAt(null);
  if (!await fill(at)) return;
  panel.focus({ preventScroll: true });
  if (!tileOf(at)) await sightOf(at);
  const tile = here().searchParams.get("at") === at && tileOf(at);
  if (tile) show(tile);
};
const close = () => {
  hide(here().searchParams.get("at"));
  if (history.state?.panel) history.back(); else remember((params) => params.delete("at"));
};
const hide = (at) => {
  const within = panel.contains(document.activeElement);
  mark(null);
  panel.hidden = true; main.classList.add("no-panel");
  delete panel.dataset.side;
  const tile = at && tileOf(at);
  if (tile) { tile.focus({ preventScroll: true }); show(tile); } else if (within) grid.querySelector('[tabindex="0"]')?.focus();
};
document.addEventListener("grid:stepped", ({ detail }) => {
  const at = detail.now.get("at"), before = detail.before.get("at");
  if (at && (panel.hidden || before !== at)) draw(at); else if (!at && !panel.hidden) hide(before);
});
const openFrom = (event) => {
  const link = event.target.closest(".tile, #panel a[data-at]");
  if (!link || !plain(event)) return;
  event.preventDefault();
  open(event.target.closest("[data-at]")?.dataset.at ?? link.dataset.at);
};
grid.addEventListener("click", openFrom);
panel.addEventListener("click", (event) => { if (event.target.closest(".x")) close(); else openFrom(event); });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !panel.hidden && !event.defaultPrevented && event.target !== cel) close();
});
// A link to a device shows it, wherever it stands. Groups that come into sight get their height then, and those above move
// the tile: it is looked for until it stays.
const LOOKS = 10;
const find = (left = LOOKS) => {
  const at = here().searchParams.get("at"), tile = at && tileOf(at);
  if (!tile || !left) return;
  stop(tile);
  const { top, bottom } = tile.getBoundingClientRect();
  const margin = getComputedStyle(tile), above = parseFloat(margin.scrollMarginTop), below = parseFloat(margin.scrollMarginBottom);
  if (top < above - 1 || bottom > innerHeight - below + 1) show(tile, "center"); else clear(tile);
  requestAnimationFrame(() => find(left - 1));
};
if (!panel.hidden) {
  panel.dataset.at = here().searchParams.get("at");
  // What was done is told above the grid, with Undo: whoever comes from doing it reads that, and is not taken away from it.
  if (!document.activeElement.matches(".says")) sightOf(panel.dataset.at).then(() => find());
}
