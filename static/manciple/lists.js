// The filters of a list apply as they change; without a script a button sends them.
(() => {
  const TYPING = 250; // milliseconds
  const form = document.querySelector("[data-filters]");
  form.querySelector("button").hidden = true;
  let due = null;
  const apply = () => {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    const there = new URL(location.pathname + (query.size ? `?${query}` : ""), location.href);
    if (there.href === location.href) return;
    sessionStorage.setItem("list-focus", document.activeElement?.id ?? "");
    location.replace(there);
  };
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(due); apply(); });
  form.addEventListener("input", ({ target }) => {
    if (target.type !== "search") return;
    clearTimeout(due);
    due = setTimeout(apply, TYPING);
  });
  const focused = form.querySelector(`#${CSS.escape(sessionStorage.getItem("list-focus") || "-")}`);
  sessionStorage.removeItem("list-focus");
  if (focused) {
    focused.focus();
    if (focused.type === "search") focused.setSelectionRange(focused.value.length, focused.value.length);
  }
})();
