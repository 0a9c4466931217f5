// Notifications while a page is open (manciple.notifications): one of the browser where the person allowed that, else a
// note on the page. Permission is asked for only after a click.
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
    if (text) one.append(Object.assign(document.createElement("span"), { className: "soft", textContent: text }));
    list.append(one);
  };
  document.addEventListener("manciple:notice", ({ detail }) => {
    if (!allowed()) { note(detail); return; }
    const { id, title, text, path } = detail;
    try {
      const shown = new Notification(title, { body: text, tag: `manciple-${id}`, icon: "/static/manciple/logo.svg" });
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
      denied: "This browser blocks notifications: allow them in its site settings.",
      default: "Not allowed yet: notifications appear on the page.",
      none: "This browser needs HTTPS for notifications: they appear on the page.",
    }[permission];
  };
  allow?.addEventListener("click", async () => { await Notification.requestPermission(); tell(); });
  tell();

  // Only the fields that the rule, or the webhook's format, has are shown; the others are not sent.
  const fitted = (id, attribute) => {
    const choice = document.getElementById(id);
    const fit = () => {
      for (const field of document.querySelectorAll(`[data-${attribute}]`)) {
        field.hidden = !field.dataset[attribute].split(" ").includes(choice.value);
        for (const input of field.querySelectorAll("input, select")) input.disabled = field.hidden;
      }
    };
    choice?.addEventListener("change", fit);
    if (choice) fit();
  };
  fitted("rule-happening", "for");
  fitted("webhook-format", "format");
})();
