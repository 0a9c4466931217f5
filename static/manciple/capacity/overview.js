// Ages and the clock of the overview move on when nothing happens, and choices are sent when they are made.
(() => {
  const EVERY = 15_000; // milliseconds
  setInterval(() => {
    if (document.hidden) return;
    const detail = { revision: 0, topics: new Set(["clock"]), everything: false };
    document.dispatchEvent(new CustomEvent("manciple:changed", { detail }));
  }, EVERY);
  document.documentElement.dataset.scripted = "";
  document.addEventListener("change", ({ target }) => { if (target.matches("select[data-sends]")) target.form.requestSubmit(); });
})();
