// Choosing devices in the grid, to act on them together: by "Choose", or with Ctrl and Shift as in a list of files; with
// the keyboard "x". What is chosen stays chosen while tiles are drawn anew, so it is marked by a stylesheet and not on them.
(() => {
  const grid = document.getElementById("grid"), bar = document.getElementById("chosen"), mode = document.getElementById("choose");
  if (!grid || !bar || !mode) return;
  const chosen = new Set(), style = new CSSStyleSheet(), said = document.getElementById("said");
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, style];
  let last = null;

  const tiles = () => [...grid.getElementsByClassName("tile")];
  const many = (count) => `${count.toLocaleString("en")} device${count === 1 ? "" : "s"}`;
  const draw = () => {
    const marked = [...chosen].map((at) => `[data-at="${CSS.escape(at)}"]`).join(",");
    style.replaceSync(marked ? `.tile:is(${marked}) { outline: 2.5px solid var(--brass-line); outline-offset: 1px; z-index: 4; }` : "");
    bar.hidden = !chosen.size && mode.getAttribute("aria-pressed") !== "true";
    bar.querySelector("[data-count]").textContent = chosen.size ? `${many(chosen.size)} chosen` : "Choose devices";
    bar.elements.tile.value = [...chosen].join("\n");
    bar.elements.back.value = location.pathname + location.search;
    for (const act of bar.querySelectorAll("[formaction]")) act.disabled = !chosen.size;
    document.body.classList.toggle("choosing", !bar.hidden);
  };
  const toggle = (tile, wanted = !chosen.has(tile.dataset.at)) => {
    wanted ? chosen.add(tile.dataset.at) : chosen.delete(tile.dataset.at);
    last = tile.dataset.at;
  };
  const upTo = (tile) => {
    const all = tiles(), from = all.findIndex((one) => one.dataset.at === last), to = all.indexOf(tile);
    const [first, end] = from < 0 ? [to, to] : [Math.min(from, to), Math.max(from, to)];
    for (const one of all.slice(first, end + 1)) if (!one.classList.contains("dim")) toggle(one, true);
  };
  const tell = (tile) => {
    draw();
    said.textContent = `${tile.getAttribute("aria-label").split(",")[0]} ${chosen.has(tile.dataset.at) ? "chosen" : "no longer chosen"}, ${many(chosen.size)} in all.`;
  };

  // Before the grid opens the device's panel.
  grid.addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    const choosing = mode.getAttribute("aria-pressed") === "true" || event.ctrlKey || event.metaKey || event.shiftKey;
    if (!tile || event.button || !choosing) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.shiftKey) upTo(tile); else toggle(tile);
    tell(tile);
  }, true);
  grid.addEventListener("keydown", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile || event.key.toLowerCase() !== "x" || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (event.shiftKey) upTo(tile); else toggle(tile);
    tell(tile);
  });
  const clear = () => { chosen.clear(); mode.setAttribute("aria-pressed", "false"); draw(); };
  mode.addEventListener("click", () => {
    if (mode.getAttribute("aria-pressed") === "true") { clear(); return; }
    mode.setAttribute("aria-pressed", "true");
    draw();
  });
  bar.querySelector("[data-clear-chosen]").addEventListener("click", () => { clear(); mode.focus(); });
  bar.querySelector("[data-choose-all]").addEventListener("click", () => {
    for (const tile of tiles()) if (!tile.classList.contains("dim")) chosen.add(tile.dataset.at);
    draw();
    said.textContent = `${many(chosen.size)} chosen.`;
  });
  draw();
})();
