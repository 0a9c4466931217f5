// The wallboard's clock, and what moves on with the time when nothing happens.
(() => {
  const EVERY = 1000, REDRAW = 60_000; // milliseconds
  const clock = document.getElementById("clock");
  const time = new Intl.DateTimeFormat("en-GB", { timeZone: document.documentElement.dataset.zone, hour: "2-digit", minute: "2-digit" });
  const tell = () => { const now = time.format(new Date()); if (clock.textContent !== now) clock.textContent = now; };
  tell();
  setInterval(tell, EVERY);
  setInterval(() => {
    document.dispatchEvent(new CustomEvent("manciple:changed", { detail: { revision: 0, topics: new Set(["clock"]), everything: false } }));
  }, REDRAW);
})();
