// A list with a script: its filters apply as they change, its columns as they are chosen, and j and k go through its rows.
(() => {
  const TYPING = 250; // milliseconds
  const plain = (event) => !event.ctrlKey && !event.metaKey && !event.altKey;
  const asked = (form) => {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    return new URL(location.pathname + (query.size ? `?${query}` : ""), location.href);
  };

  // ---- filters; without a script a button sends them. Back leads to those before: a choice is a new entry of the
  // history, and so is what is typed into a field, but not each letter ----
  const filters = document.querySelector("[data-filters]");
  if (filters) {
    filters.querySelector("button").hidden = true;
    let due = null;
    const typed = sessionStorage.getItem("list-typed"); // the field whose text is this entry's
    sessionStorage.removeItem("list-typed");
    if (typed) history.replaceState({ ...history.state, typed }, "");
    const field = (one) => (one?.type === "search" ? one.id : ""); // "" of what is chosen, not typed
    const apply = (from) => {
      clearTimeout(due);
      const there = asked(filters);
      if (there.href === location.href) return;
      sessionStorage.setItem("list-focus", document.activeElement?.id ?? "");
      sessionStorage.setItem("list-typed", from);
      if (from && history.state?.typed === from) location.replace(there); else location.assign(there);
    };
    filters.addEventListener("change", ({ target }) => apply(field(target)));
    filters.addEventListener("submit", (event) => { event.preventDefault(); apply(field(document.activeElement)); });
    filters.addEventListener("input", ({ target }) => {
      if (!field(target)) return;
      clearTimeout(due);
      due = setTimeout(() => apply(field(target)), TYPING);
    });
    const focused = filters.querySelector(`#${CSS.escape(sessionStorage.getItem("list-focus") || "-")}`);
    sessionStorage.removeItem("list-focus");
    if (focused) {
      focused.focus();
      if (focused.type === "search") focused.setSelectionRange(focused.value.length, focused.value.length);
    }
  }

  // ---- columns and density: at once, and in the address; the links of the list follow when it is fetched again ----
  document.addEventListener("change", ({ target }) => {
    const form = target.closest("[data-layout]");
    if (!form) return;
    const table = document.querySelector(`#${CSS.escape(form.dataset.layout)} .tbl`);
    const boxes = [...form.querySelectorAll("[data-place]")];
    for (const box of boxes) table?.classList.toggle(`hide-${box.dataset.place}`, !box.checked);
    const dense = form.querySelector("[name=dense]:checked").value;
    table?.classList.toggle("dense", Boolean(dense));
    const url = new URL(location.href);
    url.searchParams.delete("cols");
    url.searchParams.delete("dense");
    const usual = boxes.every((box) => box.checked === !("extra" in box.dataset));
    const rest = url.searchParams.toString();
    const cols = usual ? "" : `cols=${boxes.filter((box) => box.checked).map((box) => box.value).join(",")}`;
    url.search = [rest, cols, dense && "dense=1"].filter(Boolean).join("&");
    history.replaceState(history.state, "", url);
    document.dispatchEvent(new CustomEvent("manciple:changed", { detail: { topics: new Set(), everything: true } }));
  });

  // ---- rows: j and k go from one to the next, Enter opens the one that has the focus, x chooses it, a goes to what
  // can be done with the chosen ones, and Escape back to where a was pressed ----
  const typing = (target) => target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable], .cm-editor, dialog");
  const STOP = "a.ent, a.link, th a, td a";
  let left = null; // had the focus before the acts
  const rows = () => [...document.querySelectorAll("[data-rows] > tbody > tr")].filter((row) => row.querySelector(STOP));
  const step = (by) => {
    const all = rows(), at = all.indexOf(document.activeElement?.closest("[data-rows] > tbody > tr"));
    const row = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by];
    if (!row) return;
    row.querySelector(STOP).focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (!plain(event) || event.defaultPrevented || typing(event.target)) return;
    if (event.key === "j" || event.key === "k") {
      event.preventDefault();
      step(event.key === "j" ? 1 : -1);
    }
    if (event.key.toLowerCase() === "x") {
      const box = document.activeElement?.closest("tr")?.querySelector("td.pick input");
      if (!box) return;
      event.preventDefault();
      box.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, shiftKey: event.shiftKey }));
    }
    // Enter on a box chooses its row, as Space does: as in any form it would press the first button, which may delete.
    if (event.key === "Enter" && event.target.matches(".pick input")) {
      event.preventDefault();
      event.target.click();
    }
    const act = document.querySelector("#bulk.has-picked [formaction]");
    if (event.key === "a" && act) {
      event.preventDefault();
      left = document.activeElement;
      act.focus();
    }
    if (event.key === "Escape" && event.target.closest("#bulk") && left?.isConnected) left.focus();
  });
})();
