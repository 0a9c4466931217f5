// The claims pages with a script: previews open as a dialog, and on a narrow screen a claim opens on its own page.
// Everything works without.
(() => {
  const narrow = matchMedia("(max-width: 1180px)");

  const preview = async (link) => {
    const answer = await fetch(link.href);
    const found = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview");
    if (!found) { location.assign(link.href); return; }
    const dialog = document.createElement("dialog");
    dialog.className = "effect";
    dialog.setAttribute("aria-labelledby", "h-effect");
    dialog.append(...document.importNode(found, true).children);
    dialog.addEventListener("close", () => { dialog.remove(); link.isConnected && link.focus(); });
    dialog.querySelector("[data-cancel]").addEventListener("click", (event) => { event.preventDefault(); dialog.close(); });
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("[data-cancel]").focus();
  };

  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const target = event.target.closest("[data-copy], [data-copy-from], [data-dialog], [data-own]");
    if (!target || target.matches("[data-copy], [data-copy-from]")) return;
    if (target.matches("[data-dialog]")) { event.preventDefault(); preview(target); return; }
    if (narrow.matches) { event.preventDefault(); location.assign(target.dataset.own); }
  });
})();
