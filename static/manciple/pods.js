// The pod pages: previews in a dialog, logs that follow, copying. All of it works without, in pages.
(() => {
  // A link with data-dialog="ID" shows the preview of the page it leads to in that dialog.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    try {
      const answer = await fetch(link.href);
      const found = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview");
      if (!found) throw new Error("no preview");
      const dialog = document.getElementById(link.dataset.dialog);
      const heading = found.querySelector("h1");
      const title = Object.assign(document.createElement("h2"), { id: heading.id, textContent: heading.textContent });
      heading.replaceWith(title);
      found.removeAttribute("id");
      dialog.replaceChildren(found);
      dialog.showModal();
    } catch { location.assign(link.href); }
  });
  document.addEventListener("click", (event) => {
    const close = event.target.closest("dialog [data-close]");
    if (!close) return;
    event.preventDefault();
    close.closest("dialog").close();
  });

  // Copying.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const word = button.querySelector("span"), before = "Copy";
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      word.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      word.textContent = "Selected";
    }
    setTimeout(() => { word.textContent = before; }, 2000);
  });

  // Logs that follow: the last lines are asked for again every two seconds while the page is looked at.
  const log = document.getElementById("log-text"), follow = document.getElementById("follow"), PAUSE = 2000;
  if (log && follow) {
    const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const toEnd = () => { log.scrollTop = log.scrollHeight; };
    const read = async () => {
      if (!follow.checked) return;
      if (!document.hidden) {
        try {
          const answer = await fetch(log.dataset.url);
          const text = await answer.text();
          if (answer.ok && text !== log.textContent) {
            const stay = !atEnd();
            log.textContent = text;
            document.getElementById("log-empty")?.remove();
            if (!stay) toEnd();
          }
        } catch { /* no network: live.js says so */ }
      }
      setTimeout(read, PAUSE);
    };
    follow.closest("label").hidden = false;
    follow.addEventListener("change", () => { toEnd(); read(); });
    toEnd();
  }
})();
