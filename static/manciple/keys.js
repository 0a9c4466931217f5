// What every page does with the keyboard, its menus and its buttons: "/" finds, Escape closes menus.
// `data-copy` copies a text, `data-copy-from` that of the element of this id; `data-dialog` on a link shows the preview that
// it leads to as a dialog.
(() => {
  const typing = (target) => target.closest?.("input, textarea, select, [contenteditable], .cm-editor");
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target)) {
      const find = document.getElementById("find");
      if (find?.offsetParent) { event.preventDefault(); find.focus(); find.select(); }
    }
    if (event.key === "Escape") document.querySelectorAll(".me-menu[open]").forEach((menu) => { menu.open = false; });
  });

  // Buttons that copy stand hidden until a script can.
  const reveal = () => document.querySelectorAll("[data-copy][hidden], [data-copy-from][hidden]").forEach((button) => { button.hidden = !navigator.clipboard; });
  reveal();
  document.addEventListener("manciple:merged", reveal);
  const copy = async (button) => {
    await navigator.clipboard?.writeText(button.dataset.copy ?? document.getElementById(button.dataset.copyFrom).textContent);
    const said = document.getElementById("said");
    if (said) said.textContent = "Copied.";
  };

  // A form that only asks is sent as an address, so that what it shows has one; what is too long for that is posted.
  const LONGEST = 2000; // characters
  document.addEventListener("submit", ({ target }) => {
    if (!target.matches("[data-asks]")) return;
    const long = new URLSearchParams([...new FormData(target)]).toString().length > LONGEST;
    target.method = long ? "post" : "get";
    target.querySelector("[name=csrfmiddlewaretoken]")?.remove();
    if (!long) return;
    const token = Object.assign(document.createElement("input"), { type: "hidden", name: "csrfmiddlewaretoken" });
    token.value = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
    target.append(token);
  });

  // What a page shows now stands in its address, which scripts change.
  document.addEventListener("submit", ({ target }) => {
    if (target.matches("[data-saves-view]")) target.elements.query.value = location.search;
  });

  const preview = async (link) => {
    const answer = await fetch(link.href);
    const found = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview");
    if (!found) { location.assign(link.href); return; }
    const dialog = document.createElement("dialog");
    dialog.className = "effect";
    dialog.setAttribute("aria-labelledby", "h-effect");
    dialog.append(...document.importNode(found, true).children);
    dialog.addEventListener("close", () => { dialog.remove(); link.isConnected && link.focus(); });
    const cancel = dialog.querySelector("[data-cancel]");
    cancel.addEventListener("click", (event) => { event.preventDefault(); dialog.close(); });
    document.body.append(dialog);
    dialog.showModal();
    cancel.focus();
  };

  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll(".me-menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    const at = event.target.closest?.("[data-copy], [data-copy-from], [data-dialog]");
    if (!at || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    if (at.matches("[data-dialog]")) { event.preventDefault(); preview(at); } else copy(at);
  });
})();
