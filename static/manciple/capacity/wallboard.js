// The wallboard's clock, and what moves on with the time when nothing happens.
(() => {
  const EVERY = 1000, REDRAW = 60_000; // milliseconds
  const clock = document.getElementById("clock");
  const time = new Intl.DateTimeFormat("en-GB", { timeZone: document.documentElement.dataset.zone, hour: "2-digit", minute: "2-digit" });
  const tell = () => { const now = time.format(new Date()); if (clock.textContent !== now) clock.textContent = now; };
  tell();
  setInterval(tell, EVERY);
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") document.querySelector("a.brand").click(); });

  // Lines that do not fit stand in a second column, out of sight (wallboard.css): they are counted with the others.
  const fit = () => {
    const told = document.querySelector("[data-more]"), lines = [...told.parentElement.querySelectorAll("li")];
    const beyond = lines.filter((line) => line.offsetLeft > lines[0].offsetLeft).length + Number(told.dataset.more);
    told.hidden = !beyond;
    told.textContent = `and ${beyond} more`;
  };
  fit();
  document.addEventListener("manciple:merged", fit);
  addEventListener("resize", fit);
  setInterval(() => {
    document.dispatchEvent(new CustomEvent("manciple:changed", { detail: { revision: 0, topics: new Set(["clock"]), everything: false } }));
  }, REDRAW);
})();
