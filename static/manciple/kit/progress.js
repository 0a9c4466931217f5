// Long work shows that it goes on, and is not started twice. A form that is being sent is not sent again before the answer
// comes, and its button says that it is busy; whatever takes longer than a moment shows the line at the top of the page.
(() => {
  const MOMENT = 250; // milliseconds that nobody needs to be told about
  const line = document.getElementById("progress");
  const waiting = new Map(); // what is under way -> the timer that shows it
  const shown = () => { if (line) line.hidden = ![...waiting.values()].includes(true); };
  const begin = (what) => {
    if (waiting.has(what)) return;
    waiting.set(what, setTimeout(() => { waiting.set(what, true); shown(); }, MOMENT));
  };
  const end = (what) => { clearTimeout(waiting.get(what)); waiting.delete(what); shown(); };

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.target === "_blank" || form.method === "dialog") return;
    if (form.dataset.sending) { event.preventDefault(); return; }
    form.dataset.sending = "true";
    event.submitter?.setAttribute("aria-busy", "true");
    begin(form);
  });
  // A page that comes back from the browser's memory, or that somebody stays on after all, is not sending any more.
  const stay = () => {
    for (const form of document.querySelectorAll("form[data-sending]")) { delete form.dataset.sending; end(form); }
    for (const button of document.querySelectorAll("button[aria-busy]")) button.removeAttribute("aria-busy");
  };
  // The fields of a form with autocomplete="off" are those of the address; others keep what somebody typed.
  window.addEventListener("pageshow", ({ persisted }) => {
    stay();
    if (persisted) for (const form of document.querySelectorAll("form[autocomplete=off]")) form.reset();
  });
  document.addEventListener("manciple:stayed", stay); // unsaved.js
  document.addEventListener("manciple:asking", ({ detail }) => begin(detail)); // parts.js
  document.addEventListener("manciple:answered", ({ detail }) => end(detail));
})();
