// The device grid: one tab stop with arrow keys, tips, filters that dim and never reflow, the panel, and live lines.
// Without this file the page still reads and filters: tiles, sizes and groups are links, the filters are a form.
(() => {
  const main = document.getElementById("main");
  const grid = document.getElementById("grid");
  const panel = document.getElementById("panel");
  const form = document.getElementById("asked");
  const cel = document.getElementById("cel");
  const legend = document.getElementById("legend");
  const said = document.getElementById("said");
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const PARTS = ["sum", "legend", "facets", "filtered"];
  const FILTERS = ["state", "class", "model", "ns", "driver", "attr", "cel"];
  const TYPING = 180; // milliseconds after the last key before an expression is judged
  main.classList.add("scripted");

  // ---- what is in the URL: the open panel, the size, the filters ----
  const here = () => new URL(location.href);
  const remember = (change) => {
    const url = here();
    change(url.searchParams);
    history.replaceState(null, "", url);
  };
  const ask = (path) => {
    const url = new URL(path, location.href);
    url.search = here().search;
    return url;
  };
  const parse = (html) => Object.assign(document.createElement("template"), { innerHTML: html }).content;

  // ---- parts beside the grid: merged, so that focus and what is being typed stay ----
  const merge = (old, fresh) => {
    const opened = new Set($$("details[open] > summary", old).map((one) => one.textContent));
    for (const one of $$("details", fresh)) one.open = opened.has(one.querySelector("summary").textContent);
    // Its children: an element itself would be put inside the old one.
    Idiomorph.morph(old, fresh.childNodes, { morphStyle: "innerHTML", ignoreActiveValue: true });
  };
  const mergeParts = (got) => {
    for (const id of PARTS) {
      const fresh = got.querySelector(`[data-into="${id}"]`), old = document.getElementById(id);
      if (fresh && old.innerHTML.trim() !== fresh.innerHTML.trim()) merge(old, fresh);
    }
    for (const box of $$("input[type=checkbox]", form)) box.checked = here().searchParams.getAll(box.name).includes(box.value);
    cel.setAttribute("aria-invalid", Boolean(document.getElementById("cel-error")));
    for (const head of $$("header[id]", got)) document.getElementById(head.id)?.replaceWith(head);
  };

  // ---- filters: judged by the server, which says what to dim ----
  let asking = null;
  const filter = async () => {
    asking?.abort();
    const mine = asking = new AbortController();
    try {
      const answer = await fetch(ask(main.dataset.matches), { signal: mine.signal });
      if (!answer.ok) return;
      const got = parse(await answer.text()).firstElementChild;
      mergeParts(got);
      for (const [id, dims] of Object.entries(JSON.parse(got.dataset.dims || "{}"))) {
        const tiles = document.getElementById(id)?.getElementsByClassName("tile") ?? [];
        if (tiles.length !== dims.length) continue; // the line is newer than the answer, and on its way
        for (let index = 0; index < dims.length; index++) tiles[index].classList.toggle("dim", dims[index] === "1");
      }
      const words = document.querySelector("#filtered p, #cel-error");
      said.textContent = words ? words.textContent.replace("Show all", "").trim() : "All devices are shown.";
    } catch (error) { if (error.name !== "AbortError") throw error; }
  };
  const fromForm = () => {
    const data = new FormData(form);
    remember((params) => FILTERS.forEach((name) => {
      params.delete(name);
      data.getAll(name).filter(Boolean).forEach((value) => params.append(name, value));
    }));
    return filter();
  };
  let typing = null;
  form.addEventListener("change", (event) => { if (event.target !== cel) fromForm(); });
  form.addEventListener("submit", (event) => { event.preventDefault(); fromForm(); });
  cel.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(fromForm, TYPING); });
  cel.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && cel.value) { event.stopPropagation(); cel.value = ""; fromForm(); }
  });
  const plain = (event) => !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0;
  legend.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-state]");
    if (!link || !plain(event)) return;
    event.preventDefault();
    const { state } = link.dataset;
    remember((params) => {
      const on = params.getAll("state");
      params.delete("state");
      (on.includes(state) ? on.filter((one) => one !== state) : [...on, state]).forEach((one) => params.append("state", one));
    });
    filter();
  });
  document.getElementById("filtered").addEventListener("click", (event) => {
    if (!event.target.closest("[data-clear]") || !plain(event)) return;
    event.preventDefault();
    cel.value = "";
    remember((params) => FILTERS.forEach((name) => params.delete(name)));
    filter();
  });
  document.getElementById("filters")?.addEventListener("click", (event) => {
    const open = form.classList.toggle("open");
    event.currentTarget.setAttribute("aria-expanded", open);
  });

  // ---- tile size, and what keeps its place in the URL when another way of grouping is chosen ----
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

  // ---- tip: names the device under pointer or focus, and marks the other devices of its claim ----
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  document.body.append(tip);
  const pointAt = (tile) => {
    $$(".kin", grid).forEach((kin) => kin.classList.remove("kin"));
    tip.hidden = !tile;
    if (!tile) return;
    tip.textContent = `${tile.closest(".node").dataset.name} / ${tile.getAttribute("aria-label")}`;
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
  const tiles = () => grid.getElementsByClassName("tile");
  const enter = () => {
    if (!grid.querySelector('.tile[tabindex="0"]')) (grid.querySelector('[aria-current="true"]') || tiles()[0])?.setAttribute("tabindex", "0");
  };
  const move = (from, to) => { from.tabIndex = -1; to.tabIndex = 0; to.focus(); };
  // Up and down look for the nearest tile among the lines that are near, not among all five thousand.
  const nearest = (tile, up) => {
    const a = tile.getBoundingClientRect(), lines = $$(".node", grid), at = lines.indexOf(tile.closest(".node"));
    const reach = lines.slice(Math.max(0, at - 40), at + 41);
    const distance = (box) => Math.abs(box.top - a.top) * 4 + Math.abs(box.left - a.left);
    let best = null, least = Infinity;
    for (const other of reach.flatMap((line) => $$(".tile", line))) {
      const box = other.getBoundingClientRect();
      if ((up ? box.top < a.top - 2 : box.top > a.top + 2) && distance(box) < least) { best = other; least = distance(box); }
    }
    return best;
  };
  const beside = (tile, step) => {
    const all = [...tiles()];
    return all[all.indexOf(tile) + step];
  };
  grid.addEventListener("keydown", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = {
      ArrowRight: () => beside(tile, 1), ArrowLeft: () => beside(tile, -1),
      Home: () => tiles()[0], End: () => tiles()[tiles().length - 1],
      ArrowDown: () => nearest(tile, false), ArrowUp: () => nearest(tile, true),
    }[event.key]?.();
    if (!next) return;
    event.preventDefault();
    move(tile, next);
  });

  // ---- panel ----
  const tileOf = (at) => grid.querySelector(`.tile[data-at="${CSS.escape(at)}"]`) ?? grid.querySelector(`[data-at="${CSS.escape(at)}"]`)?.closest(".tile");
  const mark = (at) => {
    for (const one of $$('[aria-current="true"]', grid)) one.removeAttribute("aria-current");
    if (at) tileOf(at)?.setAttribute("aria-current", "true");
  };
  // Somebody may close it, or open another, until all of the answer is here: then it is the answer to nothing.
  let asked = 0;
  const fill = async (at) => {
    const mine = ++asked;
    const url = new URL(main.dataset.panel, location.href);
    url.searchParams.set("at", at);
    const answer = await fetch(url);
    const html = answer.ok ? await answer.text() : "";
    if (!answer.ok || mine !== asked || here().searchParams.get("at") !== at) return;
    if (panel.dataset.at === at) merge(panel, parse(`<div>${html}</div>`).firstElementChild);
    else { panel.innerHTML = html; panel.scrollTop = 0; }
    panel.dataset.at = at;
    panel.hidden = !html.trim();
    main.classList.toggle("no-panel", panel.hidden);
  };
  const open = (at) => { remember((params) => params.set("at", at)); mark(at); return fill(at); };
  const close = () => {
    const at = here().searchParams.get("at");
    remember((params) => params.delete("at"));
    mark(null);
    panel.hidden = true; main.classList.add("no-panel");
    const tile = at && tileOf(at);
    if (tile) { const first = grid.querySelector('.tile[tabindex="0"]'); first ? move(first, tile) : tile.focus(); }
  };
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
  if (!panel.hidden) panel.dataset.at = here().searchParams.get("at");

  // ---- live: fetch the lines that changed and put each in its place ----
  const collator = new Intl.Collator("en", { numeric: true });
  const attributes = (tile) => `${tile.dataset.s} ${tile.getAttribute("aria-label")} ${tile.className} ${tile.dataset.c} ${tile.getAttribute("style")} ${"j" in tile.dataset}`;
  // Only tiles that look different are exchanged: the others keep focus, hover and their place in the layout.
  const place = (old, fresh) => {
    const before = old.getElementsByClassName("tile"), after = fresh.getElementsByClassName("tile");
    if (before.length !== after.length || [...before].some((tile, index) => tile.dataset.at !== after[index].dataset.at)) return replace(old, fresh);
    for (const [index, tile] of [...before].entries()) {
      const now = after[index];
      if (attributes(tile) === attributes(now) && tile.innerHTML === now.innerHTML) continue;
      for (const { name, value } of [...now.attributes]) if (name !== "tabindex" && name !== "aria-current" && tile.getAttribute(name) !== value) tile.setAttribute(name, value);
      for (const { name } of [...tile.attributes]) if (!now.hasAttribute(name) && name !== "aria-current") tile.removeAttribute(name);
      if (tile.innerHTML !== now.innerHTML) tile.innerHTML = now.innerHTML;
    }
    old.className = fresh.className;
    old.dataset.topics = fresh.dataset.topics;
    const name = old.querySelector(".name"), fresher = fresh.querySelector(".name");
    if (name.title !== fresher.title) { name.title = fresher.title; name.innerHTML = fresher.innerHTML; }
  };
  const replace = (old, fresh) => {
    const focused = old.contains(document.activeElement) ? document.activeElement.dataset.at : null;
    old.replaceWith(fresh);
    const tile = focused && fresh.querySelector(`[data-at="${CSS.escape(focused)}"]`);
    if (tile) { tile.tabIndex = 0; tile.focus({ preventScroll: true }); }
  };
  const insert = (list, line) => {
    const after = [...list.children].find((one) => collator.compare(one.dataset.name, line.dataset.name) > 0);
    list.insertBefore(line, after ?? null);
  };
  const swap = (got, topics) => {
    const fresh = $$("li.node", got), kept = new Set(fresh.map((line) => line.id));
    for (const line of $$("li.node", grid)) {
      if (!kept.has(line.id) && line.dataset.topics.split(" ").some((topic) => topics.has(topic))) line.remove();
    }
    for (const line of fresh) {
      const old = document.getElementById(line.id);
      const list = document.getElementById(line.parentElement.dataset.group)?.querySelector("ul");
      if (old) place(old, line);
      else if (list) insert(list, line);
      else return false; // a heading that this page does not have yet: draw the whole grid
    }
    for (const group of $$("section.group", grid)) if (!group.querySelector("li")) group.remove();
    mergeParts(got);
    return true;
  };
  const redraw = async () => {
    const answer = await fetch(here());
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    grid.replaceChildren(...fresh.getElementById("grid").childNodes);
    for (const id of PARTS) merge(document.getElementById(id), fresh.getElementById(id));
  };
  const fetchLines = async (topics) => {
    const url = ask(main.dataset.lines);
    topics.forEach((topic) => url.searchParams.append("topic", topic));
    const answer = await fetch(url);
    return answer.ok && swap(parse(await answer.text()).firstElementChild, topics);
  };
  const announce = (gained) => {
    const many = Math.abs(gained);
    if (many) said.textContent = `${many} device${many === 1 ? "" : "s"} ${gained > 0 ? "became free" : "taken"}`;
  };
  const free = () => Number((legend.querySelector('[data-count="free"]')?.textContent ?? "0").replaceAll(",", ""));
  const MANY = 100; // topics of one request: more wait for the next, so that no frame has too much to do
  let waiting = new Set(), whole = false, busy = false;
  const update = async () => {
    if (busy) return;
    busy = true;
    try {
      while (waiting.size || whole) {
        const all = whole, before = free();
        const topics = new Set([...waiting].slice(0, MANY));
        waiting = all ? new Set() : new Set([...waiting].slice(MANY));
        whole = false;
        if (all || !(await fetchLines(topics))) await redraw();
        enter();
        announce(free() - before);
        const at = here().searchParams.get("at");
        if (at) {
          const [driver, ...rest] = at.split("/");
          mark(at);
          if (all || topics.has(`pool:${driver}/${rest.slice(0, -1).join("/")}`)) await fill(at);
        }
        await new Promise(requestAnimationFrame); // what was put in is painted before the next comes
      }
    } catch { /* no network: live.js says so, and tells everything when it is back */ } finally { busy = false; }
  };
  document.addEventListener("manciple:changed", ({ detail }) => {
    whole ||= detail.everything;
    for (const topic of detail.topics) if (/^(pool|node):/.test(topic)) waiting.add(topic);
    if (waiting.size || whole) update();
  });

  enter();
})();
