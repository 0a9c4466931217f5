// Leaving a form with what was written and not sent asks first. `data-guard` on the form says from when on: "changed" since
// it was loaded; "unsaved" already, because the server gave back what it could not take; "judged" when the server says so
// at the savebar, or has not been heard of what was written since. Sending the form and what is marked `data-discard` leave
// without a question. `manciple:stayed` tells that somebody was asked, and may have stayed.
(() => {
  const form = document.querySelector("form[data-guard]");
  if (!form) return;
  const written = () => new URLSearchParams(new FormData(form)).toString();
  const loaded = written();
  let judged = loaded;
  form.addEventListener("workbench:judged", () => { judged = written(); });
  const unsaved = {
    changed: () => written() !== loaded,
    unsaved: () => true,
    judged: () => "unsaved" in document.getElementById("savebar").dataset || written() !== judged,
  }[form.dataset.guard];
  // It is good for the one time that the page is left for it: a new tab, or a form that is on its way already, is no leaving.
  let leaving = false;
  document.addEventListener("submit", (event) => { leaving = event.target === form && !event.defaultPrevented; });
  form.addEventListener("click", (event) => {
    const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey;
    if (event.target.closest("[data-discard]")) leaving = !elsewhere;
  });
  document.addEventListener("manciple:leaving", (event) => { if (unsaved()) event.preventDefault(); });
  window.addEventListener("beforeunload", (event) => {
    const asks = !leaving && unsaved();
    leaving = false;
    if (!asks) return;
    event.preventDefault();
    setTimeout(() => document.dispatchEvent(new CustomEvent("manciple:stayed")));
  });
})();
