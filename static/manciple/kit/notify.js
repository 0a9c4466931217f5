// What a person asked to be told while a page is open (manciple.notifications): a notification of the browser where they
// allowed that, else a note on the page. Nobody is asked for permission but by their own click.
(() => {
  const supported = "Notification" in window && isSecureContext;
  const allowed = () => supported && Notification.permission === "granted";

  const note = ({ title, text, path }) => {
    const list = document.getElementById("notes") ?? document.body.appendChild(Object.assign(document.createElement("div"), { id: "notes" }));
    list.setAttribute("role", "status");
    const one = document.createElement("p");
    const link = Object.assign(document.createElement("a"), { className: "ent", href: path, textContent: title });
    const close = Object.assign(document.createElement("button"), { className: "btn ghost icon", type: "button", textContent: "×", ariaLabel: "Dismiss" });
    close.addEventListener("click", () => one.remove());
    one.append(link, close);
    if (text !== title) one.append(Object.assign(document.createElement("span"), { className: "soft", textContent: text }));
    list.append(one);
  };
  document.addEventListener("manciple:notice", ({ detail }) => {
    if (!allowed()) { note(detail); return; }
    const { id, title, text, path } = detail;
    try {
      const shown = new Notification(title, { body: text === title ? "" : text, tag: `manciple-${id}`, icon: "/static/manciple/logo.svg" });
      shown.addEventListener("click", () => { window.focus(); location.assign(path); shown.close(); });
    } catch { note(detail); } // some browsers on phones know them from service workers alone
  });

  const state = document.querySelector("[data-notify-state]"), allow = document.querySelector("[data-notify-allow]");
  const tell = () => {
    if (!state) return;
    const permission = supported ? Notification.permission : "none";
    allow.hidden = permission !== "default";
    state.textContent = {
      granted: "Allowed in this browser.",
      denied: "This browser refuses notifications from here; its settings for this site change that. You see a note on the page instead.",
      default: "Not allowed yet in this browser: you see a note on the page until you do.",
      none: "This browser shows notifications over HTTPS alone: you see a note on the page instead.",
    }[permission];
  };
  allow?.addEventListener("click", async () => { await Notification.requestPermission(); tell(); });
  tell();

  // Of the fields of a rule only those are shown that it has.
  const happening = document.getElementById("rule-happening");
  const fit = () => { for (const field of document.querySelectorAll(".rule-fields [data-for]")) field.hidden = field.dataset.for !== happening.value; };
  happening?.addEventListener("change", fit);
  if (happening) fit();
})();
