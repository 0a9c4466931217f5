// The device grid: one tab stop with arrow keys, tips, filters that dim and never reflow, the panel that floats beside the
// device it tells of, and live lines. Listeners stand on the grid, none on a tile.
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
  const mergePart = (got, id) => {
    const fresh = got.querySelector(`[data-into="${id}"]`), old = document.getElementById(id);
    if (fresh && old.innerHTML.trim() !== fresh.innerHTML.trim()) merge(old, fresh);
  };
  const mergeHeads = (got) => {
    for (const head of $$("header[id]", got)) {
      const old = document.getElementById(head.id);
      if (old && !old.isEqualNode(head)) merge(old, head);
    }
  };
  const judge = () => {
    const asked = here().searchParams;
    for (const box of $$("input[type=checkbox]", form)) box.checked = asked.getAll(box.name).includes(box.value);
    cel.setAttribute("aria-invalid", Boolean(document.getElementById("cel-error")));
  };
  const mergeParts = (got) => {
    for (const id of PARTS) mergePart(got, id);
    judge();
    mergeHeads(got);
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

  // ---- tip: names the device under a mouse or the keyboard's focus, and marks the other devices of its claim ----
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  const ROOM = 7; // pixels between a tile and its tip
  document.body.append(tip);
  let kin = []; // what is marked: a page that scrolls does not look for it with each step
  const pointAt = (tile) => {
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
  grid.addEventListener("focusin", ({ target }) => {
    if (target.matches(STOPS)) stop(target);
    pointAt(target.matches(".tile:focus-visible") ? target : null);
  });
  grid.addEventListener("focusout", () => pointAt(null));
  addEventListener("scroll", () => pointAt(null), { passive: true });

  // ---- keyboard: the grid is one tab stop, keys walk inside ----
  // Left and right go along a node, and on to the next where it ends; its name is its first cell. Up and down go to the
  // nearest device of the node above or below, Home and End to the node's first and last device, with Ctrl to the grid's.
  const STOPS = ".tile, .node .name a";
  const tiles = () => grid.getElementsByClassName("tile");
  const stop = (one) => {
    for (const other of $$('[tabindex="0"]', grid)) if (other !== one) other.tabIndex = -1;
    one.tabIndex = 0;
  };
  const enter = () => {
    if (!grid.querySelector('[tabindex="0"]')) (grid.querySelector('[aria-current="true"]') ?? tiles()[0])?.setAttribute("tabindex", "0");
  };
  const beside = (from, step) => {
    const line = from.closest(".node"), stops = $$(STOPS, line), next = stops[stops.indexOf(from) + step];
    if (next) return next;
    const lines = $$(".node", grid), other = lines[lines.indexOf(line) + step];
    return other && $$(STOPS, other).at(step > 0 ? 0 : -1);
  };
  const edge = (from, last, all) => {
    const found = all ? tiles() : from.closest(".node").getElementsByClassName("tile");
    return found[last ? found.length - 1 : 0];
  };
  // The tile nearest to `from` as if that stood `by` pixels lower (higher where negative), first of lines, then in one.
  const NEAR = 60; // lines before and after that are looked at, so that not all of five thousand devices are measured
  const vertical = (from, by) => {
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
    const lines = $$(".node", grid), at = lines.indexOf(from.closest(".node"));
    const line = nearest(Math.abs(by) > own.height * 2 ? lines : lines.slice(Math.max(0, at - NEAR), at + NEAR));
    return line && nearest($$(".tile", line));
  };
  const page = () => innerHeight * .8;
  // Past fifty filters in one step.
  document.getElementById("to-grid").addEventListener("click", (event) => {
    event.preventDefault();
    const at = grid.querySelector('[tabindex="0"]');
    if (!at) return;
    at.focus({ preventScroll: true });
    show(at);
  });
  const STEPS = {
    ArrowRight: (from) => beside(from, 1), ArrowLeft: (from) => beside(from, -1),
    ArrowDown: (from) => vertical(from, from.offsetHeight), ArrowUp: (from) => vertical(from, -from.offsetHeight),
    PageDown: (from) => vertical(from, page()), PageUp: (from) => vertical(from, -page()),
    Home: (from, all) => edge(from, false, all), End: (from, all) => edge(from, true, all),
  };
  grid.addEventListener("keydown", (event) => {
    const from = event.target.closest(STOPS), step = STEPS[event.key];
    const all = event.ctrlKey && (event.key === "Home" || event.key === "End");
    if (!from || !step || event.metaKey || event.altKey || (event.ctrlKey && !all)) return;
    event.preventDefault();
    const next = step(from, all);
    if (!next) return;
    next.focus({ preventScroll: true });
    show(next);
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
  const show = (tile, block = "nearest") => {
    tile.scrollIntoView({ block, inline: "nearest" });
    clear(tile);
    if (tile.matches(":focus-visible")) pointAt(tile);
  };
  const open = async (at) => {
    remember((params) => params.set("at", at));
    mark(at);
    pointAt(null);
    if (!await fill(at)) return;
    const tile = tileOf(at);
    if (tile) show(tile);
    panel.focus({ preventScroll: true });
  };
  const close = () => {
    const at = here().searchParams.get("at"), within = panel.contains(document.activeElement);
    remember((params) => params.delete("at"));
    mark(null);
    panel.hidden = true; main.classList.add("no-panel");
    delete panel.dataset.side;
    const tile = at && tileOf(at);
    if (tile) { tile.focus({ preventScroll: true }); show(tile); } else if (within) grid.querySelector('[tabindex="0"]')?.focus();
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
    if (!document.activeElement.matches(".says")) find();
  }

  // ---- live: fetch the lines that changed and put each in its place ----
  const collator = new Intl.Collator("en", { numeric: true });
  const attributes = (tile) => `${tile.dataset.s} ${tile.getAttribute("aria-label")} ${tile.className} ${tile.dataset.c} ${tile.getAttribute("style")} ${"j" in tile.dataset} ${"k" in tile.dataset}`;
  const within = (one, other) => one.childNodes.length === other.childNodes.length && [...one.childNodes].every((node, index) => node.isEqualNode(other.childNodes[index]));
  // Only tiles that look different are exchanged: the others keep focus, hover and their place in the layout.
  const place = (old, fresh) => {
    const before = old.getElementsByClassName("tile"), after = fresh.getElementsByClassName("tile");
    if (before.length !== after.length || [...before].some((tile, index) => tile.dataset.at !== after[index].dataset.at)) return replace(old, fresh);
    for (const [index, tile] of [...before].entries()) {
      const now = after[index];
      const same = within(tile, now);
      if (same && attributes(tile) === attributes(now)) continue;
      for (const { name, value } of [...now.attributes]) if (name !== "tabindex" && name !== "aria-current" && tile.getAttribute(name) !== value) tile.setAttribute(name, value);
      for (const { name } of [...tile.attributes]) if (!now.hasAttribute(name) && name !== "aria-current") tile.removeAttribute(name);
      if (!same) tile.innerHTML = now.innerHTML;
    }
    old.className = fresh.className;
    old.dataset.topics = fresh.dataset.topics;
    const name = old.querySelector(".name"), fresher = fresh.querySelector(".name");
    // Its title counts what is free; the name itself stays, with focus and layout, until it reads differently.
    if (name.title !== fresher.title) name.title = fresher.title;
    if (name.innerHTML.replace('tabindex="0"', 'tabindex="-1"') !== fresher.innerHTML) name.innerHTML = fresher.innerHTML;
  };
  const replace = (old, fresh) => {
    const focused = old.contains(document.activeElement) ? document.activeElement.dataset.at : null;
    old.replaceWith(fresh);
    const tile = focused && fresh.querySelector(`[data-at="${CSS.escape(focused)}"]`);
    tile?.focus({ preventScroll: true });
  };
  const insert = (list, line) => {
    const after = [...list.children].find((one) => collator.compare(one.dataset.name, line.dataset.name) > 0);
    list.insertBefore(line, after ?? null);
  };
  const SLICE = 2; // milliseconds that lines are put in for before a frame is drawn
  // After what was put in is drawn: what comes next is laid out with the next frame, not with this one.
  const frame = () => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
  const swap = async (got, topics) => {
    let since = performance.now();
    const fresh = $$(".node", got), kept = new Set(fresh.map((line) => line.id));
    const listOf = (line) => document.getElementById(line.parentElement.dataset.group)?.querySelector(".nodes");
    if (!fresh.every((line) => document.getElementById(line.id) ?? listOf(line))) return false; // a heading that is new: draw all
    const touched = $$(".node", grid).filter((line) => line.dataset.topics.split(" ").some((topic) => topics.has(topic)));
    const before = signs(touched);
    for (const line of touched) if (!kept.has(line.id)) line.remove();
    const placed = fresh.map((line) => line.id);
    for (const line of fresh) {
      if (performance.now() - since > SLICE) { await frame(); since = performance.now(); }
      const old = document.getElementById(line.id);
      if (old) place(old, line); else insert(listOf(line), line);
    }
    for (const group of $$("section.group", grid)) if (!group.querySelector(".node")) group.remove();
    // What stands beside the grid goes in over two frames: one has no time for all of it.
    await frame();
    for (const id of PARTS) if (id !== "facets") mergePart(got, id);
    mergeHeads(got);
    await frame();
    mergePart(got, "facets");
    judge();
    await frame();
    note(before, signs(placed.map((id) => document.getElementById(id)).filter(Boolean)));
    return true;
  };
  const redraw = async () => {
    const answer = await fetch(here());
    if (!answer.ok) return false;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const before = signs([grid]), focused = document.activeElement.closest?.("#grid .tile")?.dataset.at;
    grid.replaceChildren(...fresh.getElementById("grid").childNodes);
    note(before, signs([grid]));
    if (focused) tileOf(focused)?.focus({ preventScroll: true });
    for (const id of PARTS) merge(document.getElementById(id), fresh.getElementById(id));
    return true;
  };
  const fetchLines = async (topics) => {
    const url = ask(main.dataset.lines);
    topics.forEach((topic) => url.searchParams.append("topic", topic));
    const answer = await fetch(url);
    if (!answer.ok) return false;
    const got = parse(await answer.text()).firstElementChild;
    await frame(); // to read it took a part of this one
    return swap(got, topics);
  };

  // What changed is said aloud: which device, where, and what it is now. Many are told in sum, and no more often than
  // somebody can listen to; what is as it was when last told is not worth a word.
  const FEW = 3, TELLING = 3000; // devices that are named; milliseconds between two announcements
  const words = JSON.parse(main.dataset.words);
  const signOf = (tile) => [tile.dataset.s, ...$$("i[data-at]", tile).map((part) => part.dataset.at + part.dataset.s)].join();
  const signs = (lines) => new Map(lines.flatMap((line) => $$(".tile", line)).map((tile) => [tile.dataset.at, [signOf(tile), tile]]));
  const told = new Map(); // address -> how it was when last told, and its tile, of those that changed since
  let telling = null, lastTold = -TELLING;
  const note = (before, after) => {
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
  const MANY = 32; // topics of one request: more wait for the next, so that no frame has too much to do
  const AGAIN = 2000; // milliseconds after a question that got no answer
  let waiting = new Set(), whole = false, busy = false;
  const update = async () => {
    if (busy) return;
    busy = true;
    try {
      while (waiting.size || whole) {
        const all = whole;
        const topics = new Set([...waiting].slice(0, MANY));
        waiting = all ? new Set() : new Set([...waiting].slice(MANY));
        whole = false;
        if ((all || !(await fetchLines(topics))) && !(await redraw())) throw new Error("no answer");
        enter();
        const at = here().searchParams.get("at");
        if (at) {
          const [driver, ...rest] = at.split("/");
          mark(at);
          if (all || topics.has(`pool:${driver}/${rest.slice(0, -1).join("/")}`)) await fill(at);
        }
        document.dispatchEvent(new CustomEvent("manciple:merged", { detail: { within: [panel] } })); // tiles have no ages
        if (waiting.size) owe();
        await frame(); // what was put in is painted before the next comes
      }
    } catch { // live.js says how old the page is by now; what was not heard of is asked for as a whole
      whole = true;
      setTimeout(update, AGAIN);
    } finally { busy = false; }
  };
  const owe = () => document.dispatchEvent(new CustomEvent("manciple:owing"));
  document.addEventListener("manciple:changed", ({ detail }) => {
    whole ||= detail.everything;
    for (const topic of detail.topics) if (/^(pool|node):/.test(topic)) waiting.add(topic);
    if (waiting.size || whole) { owe(); update(); }
  });

  enter();
})();
