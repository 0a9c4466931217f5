// Light or dark: the reader's choice, else the system's. Runs before the first paint, so nothing flashes.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* storage may be closed to us; then the choice is not kept */ }
  const show = () => { root.dataset.theme = chosen || (system.matches ? "dark" : "light"); };
  show();
  system.addEventListener("change", show);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#theme")) return;
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", chosen); } catch { /* as above */ }
    show();
  });
})();
