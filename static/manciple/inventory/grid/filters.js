// Filters and tile size: kept in the address, judged by the server, which says which tiles to dim. Nothing reflows.
import { partly } from "./lines.js";
import { $$, ask, cel, form, grid, here, judge, main, mergeParts, parse, plain, remember, said } from "./page.js";
import { doubt } from "./windows.js";

const FILTERS = ["state", "class", "model", "ns", "driver", "attr", "cel"];
const TYPING = 180; // milliseconds after the last key before an expression is judged
const legend = document.getElementById("legend");

let asking = null;
const filter = async () => {
  asking?.abort();
  const mine = asking = new AbortController();
  document.dispatchEvent(new CustomEvent("grid:filtered"));
  if (partly()) doubt(); // its tiles come anew
  try {
    const answer = await fetch(ask(main.dataset.matches), { signal: mine.signal });
    if (!answer.ok) return;
    const got = parse(await answer.text()).firstElementChild;
    mergeParts(got);
    if (!partly()) for (const [id, dims] of Object.entries(JSON.parse(got.dataset.dims || "{}"))) {
      const tiles = document.getElementById(id)?.getElementsByClassName("tile") ?? [];
      if (tiles.length !== dims.length) continue; // the line is newer than the answer, and on its way
      for (let index = 0; index < dims.length; index++) tiles[index].classList.toggle("dim", dims[index] === "1");
    }
    const words = document.querySelector("#filtered p, #cel-error");
    said.textContent = words ? words.textContent.replace("Show all", "").trim() : "All devices are shown.";
  } catch (error) { if (error.name !== "AbortError") throw error; }
};
// Back leads to the filters before: a choice is a new entry of the history, and so is an expression, but not each letter.
const fromForm = (typed = "") => {
  const data = new FormData(form);
  const step = typed && history.state?.typed === typed ? null : { typed };
  remember((params) => FILTERS.forEach((name) => {
    params.delete(name);
    data.getAll(name).filter(Boolean).forEach((value) => params.append(name, value));
  }), step);
  return filter();
};
document.addEventListener("grid:stepped", ({ detail: { before, now } }) => {
  if (FILTERS.every((name) => String(before.getAll(name)) === String(now.getAll(name)))) return;
  cel.value = now.get("cel") ?? "";
  judge();
  filter();
});
let typing = null;
form.addEventListener("change", (event) => { if (event.target !== cel) fromForm(); });
form.addEventListener("submit", (event) => { event.preventDefault(); fromForm(document.activeElement === cel ? cel.id : ""); });
cel.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(fromForm, TYPING, cel.id); });
cel.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && cel.value) { event.stopPropagation(); cel.value = ""; fromForm(cel.id); }
});
legend.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-state]");
  if (!link || !plain(event)) return;
  event.preventDefault();
  const { state } = link.dataset;
  remember((params) => {
    const on = params.getAll("state");
    params.delete("state");
    (on.includes(state) ? on.filter((one) => one !== state) : [...on, state]).forEach((one) => params.append("state", one));
  }, {});
  filter();
});
document.getElementById("filtered").addEventListener("click", (event) => {
  if (!event.target.closest("[data-clear]") || !plain(event)) return;
  event.preventDefault();
  cel.value = "";
  remember((params) => FILTERS.forEach((name) => params.delete(name)), {});
  filter();
});
// On a phone they are a sheet over the page, which ends at its foot or with Escape.
const sheet = document.getElementById("filters");
const showFilters = (open) => {
  form.classList.toggle("open", open);
  sheet.setAttribute("aria-expanded", open);
  (open ? form.querySelector("a, input:not([type=hidden])") : sheet).focus();
};
sheet.addEventListener("click", () => showFilters(!form.classList.contains("open")));
document.getElementById("filters-done").addEventListener("click", () => showFilters(false));
form.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !form.classList.contains("open")) return;
  event.preventDefault();
  showFilters(false);
});

// Tile size, and what keeps its place in the address when another way of grouping is chosen.
const sizes = document.getElementById("density");
sizes.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || !plain(event)) return;
  event.preventDefault();
  remember((params) => params.set("size", link.dataset.d));
  grid.dataset.density = link.dataset.d;
  for (const one of $$("a", sizes)) one === link ? one.setAttribute("aria-current", "true") : one.removeAttribute("aria-current");
});
for (const link of $$("[data-group]")) link.addEventListener("click", () => {
  const url = here();
  url.searchParams.set("group", link.dataset.group);
  link.href = url.search;
});
