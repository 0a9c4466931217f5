// Leaving a form with what was written and not sent asks first. `data-guard` on the form says from when on: "changed" since
// it was loaded; "unsaved" already, because the server gave back what it could not take; "judged" when the server says so
// at the savebar. Sending the form and what is marked `data-discard` leave without a question.
(() => {
  const form = document.querySelector("form[data-guard]");
  if (!form) return;
  const written = () => new URLSearchParams(new FormData(form)).toString();
  const loaded = written();
  const unsaved = {
    changed: () => written() !== loaded,
    unsaved: () => true,
    judged: () => "unsaved" in document.getElementById("savebar").dataset,
  }[form.dataset.guard];
  let leaving = false;
  form.addEventListener("submit", () => { leaving = true; });
  form.addEventListener("click", (event) => { if (event.target.closest("[data-discard]")) leaving = true; });
  window.addEventListener("pageshow", () => { leaving = false; });
  window.addEventListener("beforeunload", (event) => { if (!leaving && unsaved()) event.preventDefault(); });
})();
