// What every page does with the keyboard and its menus: "/" finds, Escape closes, `data-open` and `data-close` name dialogs,
// `data-copy` copies a text, `data-autosubmit` sends a form when one of its choices changes.
(() => {
  const typing = (target) => target.closest?.("input, textarea, select, [contenteditable], .cm-editor");
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target)) {
      const find = document.getElementById("find");
      if (find?.offsetParent) { event.preventDefault(); find.focus(); find.select(); }
    }
    if (event.key === "Escape") document.querySelectorAll(".me-menu[open]").forEach((menu) => { menu.open = false; });
  });
  document.addEventListener("click", (event) => {
    const at = event.target.closest?.("[data-open], [data-close], [data-copy]");
    for (const menu of document.querySelectorAll(".me-menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    if (!at) return;
    if (at.dataset.open) { event.preventDefault(); document.getElementById(at.dataset.open)?.showModal(); }
    if (at.hasAttribute("data-close")) at.closest("dialog")?.close();
    if (at.dataset.copy) {
      navigator.clipboard?.writeText(at.dataset.copy);
      const said = document.getElementById("said");
      if (said) said.textContent = "Copied.";
    }
  });
  document.addEventListener("change", (event) => {
    const form = event.target.form;
    if (form?.hasAttribute("data-autosubmit")) form.requestSubmit();
  });
})();
