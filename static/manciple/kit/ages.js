// Ages go on: "46 min" of an element with data-ago="TIME" is what the server would write now, in the same words
// (manciple/durations.py). One timer for the page, and none while nobody looks. They go on when the line to the
// server is lost as well; how old the rest of the page is then, live.js says.
(() => {
  const EVERY = 1000, WAY = 5000; // milliseconds: between two looks; that a page may take to get here
  const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"]];
  const duration = (seconds) => {
    for (const [size, unit, small, word] of UNITS) {
      const rest = Math.floor((seconds % size) / small);
      if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${word}` : ""}`;
    }
    return seconds >= 60 ? `${Math.floor(seconds / 60)} min` : `${seconds} s`;
  };
  // Ages are counted by the server's clock, where this one is wrong: a few seconds are the page's way here, and a page
  // that one comes back to was written long ago.
  const [came] = performance.getEntriesByType("navigation");
  const written = Date.parse(document.getElementById("live")?.dataset.now ?? "");
  const difference = came?.type === "back_forward" ? 0 : written - Date.now();
  const ahead = Math.abs(difference) > WAY ? difference : 0;
  const tell = (within = document) => {
    const now = Date.now() + ahead;
    for (const one of within.querySelectorAll("[data-ago]")) {
      const seconds = Math.max(0, Math.floor((now - Date.parse(one.dataset.ago)) / 1000));
      const text = duration(seconds) + (one.dataset.after ?? "");
      if (one.textContent !== text) one.textContent = text;
    }
  };
  let timer = null;
  const attend = () => {
    clearInterval(timer);
    timer = null;
    if (document.hidden) return;
    tell();
    timer = setInterval(() => tell(), EVERY);
  };
  document.addEventListener("visibilitychange", attend);
  document.addEventListener("manciple:merged", ({ detail }) => { if (timer) (detail?.within ?? [document]).forEach((one) => tell(one)); });
  attend();
})();
