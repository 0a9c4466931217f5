// The device grid: one tab stop with arrow keys, tips, filters that dim and never reflow, the panel, and live lines.
// Without this file the page still reads: tiles are links to the page with that device's panel open.
(() => {
  const main = document.getElementById("main");
  const grid = document.getElementById("grid");
  const panel = document.getElementById("panel");
  const facets = document.querySelector(".facets");
  const legend = document.getElementById("legend");
  const said = document.getElementById("said");
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const tiles = () => $$(".tile", grid);

  // ---- what is in the URL: the open panel and the filters ----
  const here = () => new URL(location.href);
  const FILTERS = ["state", "model", "ns"];
  const remember = (change) => {
    const url = here();
    change(url.searchParams);
    history.replaceState(null, "", url);
  };

  // ---- filters ----
  const chosen = (name) => new Set(here().searchParams.getAll(name));
  const dim = (roots = [grid]) => {
    const [states, models, namespaces] = FILTERS.map(chosen);
    for (const tile of roots.flatMap((root) => $$(".tile", root))) {
      const shown = (!states.size || states.has(tile.dataset.s))
        && (!models.size || models.has(tile.closest(".node").dataset.model))
        && (!namespaces.size || namespaces.has(tile.dataset.ns));
      tile.classList.toggle("dim", !shown);
    }
    for (const button of $$("button", legend)) button.setAttribute("aria-pressed", states.has(button.dataset.state));
    for (const box of $$("input[type=checkbox]", facets)) box.checked = chosen(box.name).has(box.value);
  };
  facets.addEventListener("change", () => {
    const data = new FormData(facets);
    remember((params) => FILTERS.forEach((name) => {
      params.delete(name);
      data.getAll(name).forEach((value) => params.append(name, value));
    }));
    dim();
  });
  legend.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    remember((params) => {
      const on = params.getAll("state");
      const { state } = button.dataset;
      params.delete("state");
      (on.includes(state) ? on.filter((s) => s !== state) : [...on, state]).forEach((s) => params.append("state", s));
    });
    dim();
  });
  document.getElementById("filters")?.addEventListener("click", (event) => {
    const open = facets.classList.toggle("open");
    event.currentTarget.setAttribute("aria-expanded", open);
  });

  // ---- tile size: the reader's choice, else by the number of devices ----
  const sizes = document.getElementById("density");
  const resize = (size) => {
    grid.dataset.density = size;
    $$("button", sizes).forEach((button) => button.setAttribute("aria-pressed", button.dataset.d === size));
  };
  sizes.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    remember((params) => params.set("size", button.dataset.d));
    resize(button.dataset.d);
  });
  if (["s", "m", "l", "x"].includes(here().searchParams.get("size"))) resize(here().searchParams.get("size"));

  // ---- tip: names the device under pointer or focus, and marks the other devices of its claim ----
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  document.body.append(tip);
  const pointAt = (tile) => {
    $$(".kin", grid).forEach((kin) => kin.classList.remove("kin"));
    tip.hidden = !tile;
    if (!tile) return;
    tip.textContent = `${tile.closest(".node").querySelector(".name").textContent} / ${tile.getAttribute("aria-label")}`;
    const box = tile.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - 290))}px`;
    tip.style.top = `${box.bottom + 7}px`;
    if (tile.dataset.c) $$(`[data-c="${CSS.escape(tile.dataset.c)}"]`, grid).forEach((kin) => kin !== tile && kin.classList.add("kin"));
  };
  grid.addEventListener("pointerover", (event) => pointAt(event.target.closest(".tile")));
  grid.addEventListener("focusin", (event) => pointAt(event.target.closest(".tile")));
  grid.addEventListener("pointerleave", () => pointAt(null));
  grid.addEventListener("focusout", () => pointAt(null));

  // ---- keyboard: one tab stop, arrows walk ----
  const enter = () => {
    const all = tiles();
    if (all.length && !all.some((tile) => tile.tabIndex === 0)) (grid.querySelector("[aria-current]") || all[0]).tabIndex = 0;
  };
  const nearest = (all, from, up) => {
    const a = from.getBoundingClientRect();
    const distance = (box) => Math.abs(box.top - a.top) * 4 + Math.abs(box.left - a.left);
    let best = null, least = Infinity;
    for (const tile of all) {
      const box = tile.getBoundingClientRect();
      if ((up ? box.top < a.top - 2 : box.top > a.top + 2) && distance(box) < least) { best = tile; least = distance(box); }
    }
    return best;
  };
  grid.addEventListener("keydown", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const all = tiles(), at = all.indexOf(tile);
    const next = {
      ArrowRight: () => all[at + 1], ArrowLeft: () => all[at - 1], Home: () => all[0], End: () => all.at(-1),
      ArrowDown: () => nearest(all, tile, false), ArrowUp: () => nearest(all, tile, true),
    }[event.key]?.();
    if (!next) return;
    event.preventDefault();
    tile.tabIndex = -1; next.tabIndex = 0; next.focus();
  });

  // ---- panel ----
  const mark = (at) => {
    grid.querySelector('[aria-current="true"]')?.removeAttribute("aria-current");
    if (at) grid.querySelector(`[data-at="${CSS.escape(at)}"]`)?.setAttribute("aria-current", "true");
  };
  const fill = async (at) => {
    const url = new URL(main.dataset.panel, location.href);
    url.searchParams.set("at", at);
    const answer = await fetch(url);
    if (!answer.ok || here().searchParams.get("at") !== at) return;
    const html = await answer.text();
    panel.innerHTML = html;
    panel.hidden = !html.trim();
    main.classList.toggle("no-panel", panel.hidden);
  };
  const open = (at) => { remember((params) => params.set("at", at)); mark(at); return fill(at); };
  const close = () => {
    const at = here().searchParams.get("at");
    remember((params) => params.delete("at"));
    mark(null);
    panel.hidden = true; main.classList.add("no-panel");
    if (at) grid.querySelector(`[data-at="${CSS.escape(at)}"]`)?.focus();
  };
  grid.addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    open(tile.dataset.at);
  });
  panel.addEventListener("click", (event) => { if (event.target.closest(".x")) close(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !panel.hidden) close(); });

  // ---- live: fetch the lines that changed and put each in its place ----
  const freeNow = () => $$('.tile[data-s="free"]', grid).length;
  const place = (old, fresh) => {
    const focused = old.contains(document.activeElement) ? document.activeElement.dataset.at : null;
    old.replaceWith(fresh);
    if (focused) {
      const tile = fresh.querySelector(`[data-at="${CSS.escape(focused)}"]`);
      if (tile) { tile.tabIndex = 0; tile.focus({ preventScroll: true }); }
    }
  };
  const swap = (answer, topics) => {
    const got = answer.firstElementChild;
    const kept = new Set($$("li.node", got).map((line) => line.id));
    const touched = $$("li.node", grid).filter((line) => line.dataset.topics.split(" ").some((topic) => topics.has(topic)));
    if (touched.some((line) => !kept.has(line.id))) return false; // a line that is gone: draw the whole grid
    for (const line of $$("li.node", got)) {
      const old = document.getElementById(line.id);
      if (!old) return false; // a line that this page does not have yet: draw the whole grid
      place(old, line);
      dim([line]);
    }
    for (const head of $$("header[id]", got)) document.getElementById(head.id)?.replaceWith(head);
    legend.replaceChildren(...got.querySelector('[data-into="legend"]').children);
    facets.replaceChildren(...got.querySelector('[data-into="facets"]').children);
    const [free, total] = got.dataset.sum.split(" ");
    document.querySelector("#sum b").textContent = `${free} free`;
    document.querySelector("#sum span").textContent = `of ${total} device${total === "1" ? "" : "s"}`;
    return true;
  };
  const parse = (html) => Object.assign(document.createElement("template"), { innerHTML: html }).content;
  const redraw = async () => {
    const answer = await fetch(here());
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ["grid", "legend", "sum"]) document.getElementById(id).replaceChildren(...fresh.getElementById(id).childNodes);
    facets.replaceChildren(...fresh.querySelector(".facets").childNodes);
  };
  const fetchLines = async (topics) => {
    const url = new URL(main.dataset.lines, location.href);
    topics.forEach((topic) => url.searchParams.append("topic", topic));
    url.searchParams.set("at", here().searchParams.get("at") || "");
    const answer = await fetch(url);
    return answer.ok && swap(parse(await answer.text()), topics);
  };
  let waiting = new Set(), whole = false, busy = false;
  const update = async () => {
    if (busy) return;
    busy = true;
    try {
      while (waiting.size || whole) {
        const topics = waiting, all = whole, before = freeNow();
        waiting = new Set(); whole = false;
        // Many lines at once cost less as one page than one by one; so does a line that this page has not seen.
        if (all || topics.size > 40 || !(await fetchLines(topics))) await redraw();
        dim(); enter();
        const gained = freeNow() - before;
        if (gained) said.textContent = `${Math.abs(gained)} device${Math.abs(gained) === 1 ? "" : "s"} ${gained > 0 ? "became free" : "taken"}`;
        const at = here().searchParams.get("at");
        if (at) { mark(at); await fill(at); }
      }
    } finally { busy = false; }
  };
  document.addEventListener("manciple:changed", ({ detail }) => {
    whole ||= detail.everything;
    for (const topic of detail.topics) if (topic.startsWith("pool:")) waiting.add(topic);
    if (waiting.size || whole) update();
  });

  dim();
  enter();
})();
