// Light or dark: the reader's choice, else the system's. Runs before the first paint, so nothing flashes.
// And tells the server the browser's time zone, in which pages are drawn for whoever chose none.
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

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && !document.cookie.includes(`time-zone=${zone};`) && !document.cookie.endsWith(`time-zone=${zone}`)) {
    document.cookie = `time-zone=${zone}; path=/; max-age=31536000; samesite=lax`;
  }

  // What is printed says where it came from, filters and all, and when.
  addEventListener("beforeprint", () => {
    const said = document.querySelector(".on-paper");
    const now = new Intl.DateTimeFormat("sv-SE", { timeZone: root.dataset.zone, dateStyle: "short", timeStyle: "short" }).format(new Date());
    if (said) said.textContent = `${location.href}, printed ${now}`;
  });
})();
