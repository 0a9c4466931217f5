// What every page does with its menus and its buttons: Escape closes menus, and leads back to where they were opened.
// `data-copy` copies a text, `data-copy-from` that of the element of this id; `data-dialog` on a link shows the preview that
// it leads to as a dialog.
(() => {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll(".me-menu[open]")) {
      if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
      menu.open = false;
    }
  });

  // A menu that the focus leaves would cover what has it then.
  document.addEventListener("focusout", ({ target, relatedTarget }) => {
    const menu = relatedTarget && target.closest(".me-menu[open]");
    if (menu && !menu.contains(relatedTarget)) menu.open = false;
  });

  // A page that tells what was just done, or what was refused, has the focus there: it is read first, and the next Tab is
  // its Undo, or the field to mend. Undo stays on all pages for a while, and has the focus on the first of them. Previews
  // have theirs by `autofocus`; an answer in a part that is kept up to date has `data-answer`, or it would take the focus
  // again with each news.
  const isNew = (undo) => {
    const { value } = undo.elements.offer;
    try {
      if (localStorage.getItem("undo-told") === value) return false;
      localStorage.setItem("undo-told", value);
    } catch { /* storage may be closed to us; then it comes again */ }
    return true;
  };
  const land = () => {
    const undo = document.querySelector("main .undo"), offered = undo && isNew(undo) ? undo : null;
    const refused = [...document.querySelectorAll('main [aria-invalid="true"]')].find((one) => one.checkVisibility({ visibilityProperty: true }));
    const wrong = document.querySelector("main .field-error"); // of several boxes together
    const one = document.querySelector("main p.says") ?? offered ?? refused ?? wrong ?? document.querySelector("main [data-answer]");
    if (!one || location.hash || document.activeElement !== document.body) return;
    if (one !== refused) one.tabIndex = -1;
    one.focus();
  };
  land();

  // What was wrong with a field is not said of what is typed there now.
  document.addEventListener("input", ({ target }) => {
    if (!target.matches("form [aria-describedby][aria-invalid=true]:not([data-editor], #cel)")) return;
    target.removeAttribute("aria-invalid");
    for (const id of target.getAttribute("aria-describedby").split(" ")) {
      const error = document.getElementById(id);
      if (error?.matches(".field-error")) error.remove();
    }
  });

  // Buttons that copy stand hidden until a script can. Over plain HTTP a page has no clipboard: there the text is selected
  // and copied as by hand.
  const SHOWN = 1600; // milliseconds that a button says that it has copied
  const reveal = (within) => within.querySelectorAll("[data-copy][hidden], [data-copy-from][hidden]").forEach((button) => { button.hidden = false; });
  reveal(document);
  document.addEventListener("manciple:merged", ({ detail }) => { (detail?.within ?? [document]).forEach(reveal); });
  const byHand = (text, within) => {
    const area = Object.assign(document.createElement("textarea"), { value: text, className: "sr", readOnly: true });
    const focused = document.activeElement;
    within.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return done;
  };
  const copy = async (button) => {
    const text = button.dataset.copy ?? document.getElementById(button.dataset.copyFrom).textContent;
    const within = button.closest("dialog") ?? document.body;
    let done = false;
    try { await navigator.clipboard.writeText(text); done = true; } catch { done = byHand(text, within); }
    const words = done ? "Copied" : "Not copied: select it and press Ctrl C";
    const said = document.getElementById("said");
    if (said) said.textContent = `${words}.`;
    const sign = Object.assign(document.createElement("span"), { className: "tip copied", textContent: words });
    within.append(sign);
    const box = button.getBoundingClientRect();
    sign.style.left = `${Math.max(4, Math.min(box.left + (box.width - sign.offsetWidth) / 2, innerWidth - sign.offsetWidth - 4))}px`;
    sign.style.top = `${box.top > 40 ? box.top - sign.offsetHeight - 6 : box.bottom + 6}px`;
    setTimeout(() => sign.remove(), SHOWN);
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
    token.value = document.body.dataset.csrf;
    target.append(token);
  });

  // What a page shows now stands in its address, which scripts change.
  document.addEventListener("submit", ({ target }) => {
    if (target.matches("[data-saves-view]")) target.elements.query.value = location.search;
  });

  const previewAt = async (url) => {
    try {
      const answer = await fetch(url); // what is wrong with what was typed (422) is said in the preview, too
      return answer.ok || answer.status === 422 ? new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview") : null;
    } catch { return null; }
  };
  const preview = async (link) => {
    const found = await previewAt(link.href);
    if (!found) { location.assign(link.href); return; }
    const dialog = document.createElement("dialog");
    const show = (part) => {
      dialog.replaceChildren(...document.importNode(part, true).children);
      dialog.querySelector("[data-cancel]").addEventListener("click", (event) => { event.preventDefault(); dialog.close(); });
    };
    dialog.className = "effect";
    dialog.setAttribute("aria-labelledby", "h-effect");
    show(found);
    dialog.addEventListener("close", () => { dialog.remove(); link.isConnected && link.focus(); });
    // A form that only asks is answered within the dialog.
    dialog.addEventListener("submit", async (event) => {
      const form = event.target;
      if (form.method !== "get") return;
      event.preventDefault();
      const url = new URL(form.action);
      url.search = new URLSearchParams(new FormData(form));
      const answer = await previewAt(url);
      if (!answer) { location.assign(url); return; }
      show(answer);
      dialog.querySelector('[aria-invalid="true"], form[method="post"] button, form[method="get"] input, [data-cancel]').focus();
    });
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("[data-cancel]").focus();
  };

  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll(".me-menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    const at = event.target.closest?.("[data-copy], [data-copy-from], [data-dialog]");
    if (!at || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    if (at.matches("[data-dialog]")) { event.preventDefault(); preview(at); } else copy(at);
  });
})();
