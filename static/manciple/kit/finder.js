// Finding and doing from everywhere: "/" or Ctrl K opens a box over the page, what is typed is answered by the server, the
// arrows choose, Enter opens. Without a question it has what was opened last, and every place. "?" shows the keys.
// Without this file the link leads to the page that does the same.
(() => {
  const link = document.getElementById("find");
  if (!link) return;
  const TYPING = 70; // milliseconds after a key before the server is asked
  const KEPT = 8; // things opened last
  const mac = navigator.platform.startsWith("Mac");
  const typing = (target) => target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable], .cm-editor");
  const make = (tag, attributes = {}, ...children) => {
    const one = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
    one.append(...children);
    return one;
  };
  const icon = (name) => {
    const template = document.createElement("template");
    template.innerHTML = `<svg width="15" height="15" aria-hidden="true"><use href="#${name}"/></svg>`;
    return template.content;
  };

  // ---- what was opened last, of each person by themselves ----
  const PAGES = { pods: ["Pod", "i-pod"], claims: ["Claim", "i-claim"], templates: ["Template", "i-claim"], nodes: ["Node", "i-node"], "classes/c": ["Class", "i-class"], drivers: ["Driver", "i-dev"], namespaces: ["Namespace", "i-over"], quotas: ["Quota", "i-quota"], "taint-rules": ["Taint rule", "i-alert"], incidents: ["Incident", "i-alert"], "devices/d": ["Device", "i-dev"], views: ["View", "i-view"] };
  const key = `opened:${link.dataset.person}`;
  const read = () => { try { return JSON.parse(localStorage.getItem(key)) ?? []; } catch { return []; } };
  const keep = (all) => { try { localStorage.setItem(key, JSON.stringify(all)); } catch { /* storage may be closed to us; then nothing is kept */ } };
  const kindOf = (path) => Object.entries(PAGES).find(([start]) => path.startsWith(`/${start}/`));
  const note = () => {
    const { pathname } = location, kind = kindOf(pathname);
    const heading = document.querySelector("main h1")?.textContent.replace(/\s+/g, " ").trim();
    if (!kind || !heading || /\/(new|change|delete|release|replace|acknowledge|drain)$/.test(pathname) || document.querySelector("main .error-page")) return;
    const [, [word, sign]] = kind, rest = pathname.slice(kind[0].length + 2).split("/").map(decodeURIComponent);
    const place = rest.length > 1 ? `${word} in ${rest.slice(0, -1).join("/")}` : word;
    const one = { url: pathname, title: rest.at(-1), aside: kind[0] === "devices/d" ? `Device of ${rest.slice(1, -1).join("/")}` : kind[0] === "incidents" ? heading : place, icon: sign };
    keep([one, ...read().filter((other) => other.url !== pathname)].slice(0, KEPT));
  };
  note();

  // ---- the box ----
  let dialog = null, field, list, status, asking = null, due = null, due_enter = null, back = null;
  const build = () => {
    field = make("input", { id: "finder-q", role: "combobox", "aria-label": "Find or do anything", "aria-expanded": "true", "aria-controls": "finder-list", "aria-autocomplete": "list", autocomplete: "off", autocapitalize: "none", spellcheck: "false", placeholder: "A name, UUID, label, taint, or “drain gpu-a17”" });
    list = make("div", { id: "finder-list", role: "listbox", "aria-label": "Suggestions" });
    status = make("p", { class: "sr", role: "status" });
    const close = make("button", { class: "btn ghost icon", type: "button", "aria-label": "Close" }, icon("i-x"));
    const foot = make("footer", { "aria-hidden": "true" });
    for (const [keys, does] of [["↑↓", "choose"], ["Enter", "open"], [mac ? "⌘ Enter" : "Ctrl Enter", "in a new tab"], ["Esc", "close"]]) foot.append(make("span", {}, make("kbd", {}, keys), ` ${does}`));
    dialog = make("dialog", { class: "finder", id: "finder", "aria-label": "Find or do anything" }, make("header", {}, icon("i-search"), field, close), list, foot, status);
    document.body.append(dialog);
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => { clearTimeout(due); asking?.abort(); back?.isConnected && back.focus(); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    field.addEventListener("input", () => { due_enter = null; clearTimeout(due); due = setTimeout(ask, TYPING); });
    field.addEventListener("keydown", onKey);
    list.addEventListener("pointermove", ({ target }) => choose(target.closest("[role=option]"), false));
    list.addEventListener("click", onClick);
  };
  const open = (text = "") => {
    if (!dialog) build();
    if (dialog.open) { field.select(); return; }
    back = document.activeElement;
    field.value = text;
    list.replaceChildren();
    dialog.showModal();
    field.focus();
    ask();
  };
  const options = () => [...list.querySelectorAll("[role=option]")];
  const chosen = () => list.querySelector('[aria-selected="true"]');
  const choose = (one, scroll = true) => {
    if (!one) return;
    for (const other of options()) other.setAttribute("aria-selected", String(other === one));
    field.setAttribute("aria-activedescendant", one.id);
    if (scroll) one.scrollIntoView({ block: "nearest" });
  };
  const words = () => field.value.trim().replace(/\s+/g, " ");
  const answered = () => list.firstElementChild?.dataset.asked === words() && list.dataset.asked === words();

  const ask = async () => {
    asking?.abort();
    const mine = asking = new AbortController(), text = words();
    const url = new URL(link.dataset.finder, location.href);
    if (text) url.searchParams.set("q", text);
    try {
      const answer = await fetch(url, { signal: mine.signal });
      if (!answer.ok || answer.redirected) throw new Error(`status ${answer.status}`);
      show(text, await answer.text());
    } catch (error) {
      if (error.name === "AbortError") return;
      list.replaceChildren(make("p", { class: "nothing" }, "The server does not answer. Try again."));
    }
  };
  const show = (text, html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    const found = template.content.querySelector("[data-asked]");
    if (!text) found.prepend(...recent());
    list.replaceChildren(found);
    list.dataset.asked = text;
    list.scrollTop = 0;
    const all = options();
    field.removeAttribute("aria-activedescendant");
    choose(all[0], false);
    status.textContent = text ? `${all.length || "No"} suggestion${all.length === 1 ? "" : "s"}.` : "";
    if (due_enter && answered()) { const newTab = due_enter.newTab; due_enter = null; go(chosen(), newTab); }
  };
  const recent = () => {
    const known = read().filter((one) => one.url !== location.pathname);
    if (!known.length) return [];
    const forget = make("button", { type: "button", class: "link", tabindex: "-1", "data-forget": "" }, "Forget");
    const group = make("div", { role: "group", "aria-label": "Opened last" }, make("div", { class: "cap", "aria-hidden": "true" }, "Opened last", forget));
    known.forEach((one, index) => group.append(make("a", { role: "option", "aria-selected": "false", tabindex: "-1", id: `option-last-${index}`, href: one.url }, icon(one.icon), make("span", { class: "what" }, one.title), make("span", { class: "muted" }, one.aside))));
    return [group];
  };

  // ---- what is chosen ----
  const DOES = {
    theme: () => { dialog.close(); document.getElementById("theme").click(); },
    keys: () => { dialog.close(); showKeys(); },
    "sign-out": () => { dialog.close(); document.getElementById("sign-out").requestSubmit(); },
  };
  const go = (one, newTab = false) => {
    if (!one) return;
    if (one.dataset.fill) { field.value = one.dataset.fill; field.focus(); ask(); return; }
    if (one.dataset.does) { DOES[one.dataset.does](); return; }
    if (newTab) window.open(one.href, "_blank", "noopener"); else { dialog.close(); location.assign(one.href); }
  };
  const onKey = (event) => {
    const all = options(), at = all.indexOf(chosen());
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && all.length && !event.altKey) {
      event.preventDefault();
      choose(all[(at + step + all.length) % all.length]);
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      const newTab = event.ctrlKey || event.metaKey;
      if (answered()) go(chosen(), newTab); else due_enter = { newTab }; // the answer to what stands there is on its way
    }
  };
  const onClick = (event) => {
    if (event.target.closest("[data-forget]")) { keep([]); ask(); field.focus(); return; }
    const one = event.target.closest("[role=option]");
    if (!one || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(one);
  };

  // ---- the keys ----
  const showKeys = async () => {
    const answer = await fetch("/keys");
    const found = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("keys");
    if (!found) { location.assign("/keys"); return; }
    const from = document.activeElement;
    const close = make("button", { class: "btn", type: "button" }, "Close");
    const keys = make("dialog", { class: "keys-dialog", "aria-labelledby": "h-keys" }, ...document.importNode(found, true).children, make("footer", {}, close));
    close.addEventListener("click", () => keys.close());
    keys.addEventListener("click", (event) => { if (event.target === keys) keys.close(); });
    keys.addEventListener("close", () => { keys.remove(); from?.isConnected && from.focus(); });
    document.body.append(keys);
    keys.showModal();
    close.focus();
  };

  document.addEventListener("keydown", (event) => {
    const control = mac ? event.metaKey && !event.ctrlKey : event.ctrlKey && !event.metaKey;
    if (event.key.toLowerCase() === "k" && control && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      open();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "/") { event.preventDefault(); open(); }
    if (event.key === "?") { event.preventDefault(); showKeys(); }
  });
  link.addEventListener("click", (event) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
})();
