// The page that finds things: Enter opens the first, the arrows walk through what was found and back to the field.
(() => {
  const field = document.getElementById("q");
  if (!field) return;
  const found = () => [...document.querySelectorAll("#found .found a")];
  const answered = () => document.getElementById("found").dataset.asked === field.value.trim().replace(/\s+/g, " ");
  let waiting = false; // Enter was pressed before the answer to what stands in the field was there
  const open = () => { if (field.value.trim()) found()[0]?.click(); };
  field.form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (answered()) open(); else waiting = true;
  });
  document.addEventListener("manciple:merged", () => {
    if (waiting && answered()) { waiting = false; open(); }
  });
  field.addEventListener("input", () => { waiting = false; });
  document.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const stops = [field, ...found()];
    const at = stops.indexOf(document.activeElement);
    const next = stops[at + step];
    if (!step || at < 0 || !next || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    next.focus();
    if (next === field) field.setSelectionRange(field.value.length, field.value.length);
  });
})();
