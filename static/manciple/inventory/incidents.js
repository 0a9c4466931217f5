// Incidents: acknowledgements are in no log, so that the page looks for those of others now and then.
(() => {
  const EVERY = 10_000; // milliseconds
  setInterval(() => {
    if (document.hidden) return;
    document.dispatchEvent(new CustomEvent("manciple:changed", { detail: { topics: new Set(["clock"]), everything: false } }));
  }, EVERY);
})();
