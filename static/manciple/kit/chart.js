// Charts over time are read and zoomed along their axis, by pointer and by keyboard. A chart is the element with
// data-begin and data-seconds; `#t-reader` in it takes the pointer and the keys, `.cross` is the line across. What has
// data-levels ("12x30 13x5" is 30 steps with 12, then 5 with 13) says its value of that moment in its [data-level], or
// in a label that is put into its .track. Dragging, or Enter at both ends, shows that stretch: its ends stand in the
// address (of data-zoom, or of the page), in UTC, so that a link shows everybody the same.
(() => {
  const LEAST = 60_000; // milliseconds that can be zoomed into
  const chart = () => document.querySelector("[data-begin][data-seconds]");
  const reader = () => document.getElementById("t-reader");
  const steps = () => Number(chart().dataset.steps || 240); // that levels are counted in
  const crosses = () => document.querySelectorAll(".cross");
  const moment = (part) => new Date(Date.parse(chart().dataset.begin) + part * Number(chart().dataset.seconds) * 1000);
  const words = (options) => new Intl.DateTimeFormat("en-GB", { timeZone: document.documentElement.dataset.zone, hour: "2-digit", minute: "2-digit", ...options });
  const OF_DAY = words({}), OF_DAYS = words({ weekday: "short", day: "numeric", month: "short" });
  const clock = (at) => (Number(chart().dataset.seconds) > 86400 ? OF_DAYS : OF_DAY).format(at);
  const levels = (one) => one.dataset.levels.split(" ").flatMap((run) => { const [level, steps] = run.split("x"); return Array(Number(steps)).fill(level); });
  let first = null; // part of the window where a choice began

  const floating = (one, part) => {
    const track = one.querySelector(".track");
    const shown = track.querySelector(".level") ?? track.appendChild(Object.assign(document.createElement("span"), { className: "level", ariaHidden: "true" }));
    shown.style.setProperty("--l", part * 100);
    return shown;
  };
  const read = (part) => {
    const one = reader(), at = one.querySelector(".at"), step = Math.min(steps() - 1, Math.floor(part * steps()));
    for (const element of [one, ...crosses()]) { element.style.setProperty("--l", part * 100); }
    for (const element of [at, ...crosses()]) element.hidden = false;
    at.textContent = clock(moment(part));
    const said = [];
    for (const source of chart().querySelectorAll("[data-levels]")) {
      const level = levels(source)[step], place = source.querySelector("[data-level]");
      if (place) { place.dataset.rest ??= place.textContent; place.textContent = Number.isNaN(Number(level)) ? level : Number(level).toLocaleString("en"); } else floating(source, part).textContent = `${level} held`;
      said.push(`${source.querySelector(".ent, .group-name, .name > span").textContent.trim()} ${level}`);
    }
    one.setAttribute("aria-valuenow", step);
    one.setAttribute("aria-valuetext", `${clock(moment(part))}${said.length ? `: ${said.join(", ")}` : ""}`);
    const chosen = one.querySelector(".chosen");
    chosen.hidden = first === null;
    if (first !== null) { chosen.style.setProperty("--a", Math.min(first, part) * 100); chosen.style.setProperty("--w", Math.abs(first - part) * 100); }
  };
  const rest = () => {
    const one = reader();
    if (!one) return;
    first = null;
    for (const element of [one.querySelector(".at"), one.querySelector(".chosen"), ...crosses()]) element.hidden = true;
    for (const shown of chart().querySelectorAll(".level")) shown.remove();
    for (const place of chart().querySelectorAll("[data-level][data-rest]")) { place.textContent = place.dataset.rest; delete place.dataset.rest; }
  };
  const zoom = (one, other) => {
    const [begin, end] = [one, other].sort((a, b) => a - b).map(moment);
    if (end - begin < LEAST) return false;
    const address = new URL(chart().dataset.zoom ?? location.href, location.href), text = (at) => `${at.toISOString().slice(0, 16)}Z`;
    for (const name of ["range", "page"]) address.searchParams.delete(name);
    address.searchParams.set("from", text(begin));
    address.searchParams.set("to", text(new Date(+end + 59_999)));
    address.hash = reader().id; // it has the focus again: the next arrow reads what is shown then
    location.assign(address);
    return true;
  };
  const partOf = (event) => { const box = reader().getBoundingClientRect(); return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1); };
  document.addEventListener("pointermove", (event) => {
    if (!reader()) return;
    if (first !== null && reader().hasPointerCapture(event.pointerId)) read(partOf(event));
    else if (event.pointerType === "mouse" && event.target.closest(".gantt .track, #t-reader, [data-read]")) read(partOf(event));
    else if (event.pointerType === "mouse" && document.activeElement !== reader()) rest();
  });
  document.addEventListener("pointerdown", (event) => {
    const one = event.target.closest("#t-reader");
    if (!one || event.button) return;
    one.setPointerCapture(event.pointerId);
    first = partOf(event);
    read(first);
  });
  document.addEventListener("pointerup", (event) => {
    if (first === null || !event.target.closest("#t-reader")) return;
    const from = first, to = partOf(event);
    first = null;
    if (zoom(from, to)) return;
    if (event.pointerType === "mouse") rest(); else read(to); // a finger that taps reads
  });
  document.addEventListener("pointercancel", rest);
  document.addEventListener("focusin", ({ target }) => { if (target === reader() && first === null) read((Number(target.getAttribute("aria-valuenow")) + 0.5) / steps()); });
  document.addEventListener("focusout", ({ target }) => { if (target === reader()) rest(); });
  document.addEventListener("keydown", (event) => {
    if (!reader() || event.target !== reader() || event.altKey || event.ctrlKey || event.metaKey) return;
    const now = Number(reader().getAttribute("aria-valuenow"));
    const go = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, PageDown: now - 24, PageUp: now + 24, Home: 0, End: steps() - 1 }[event.key];
    if (go !== undefined) read((Math.min(Math.max(go, 0), steps() - 1) + 0.5) / steps());
    else if (event.key === "Enter" && first === null) { first = now / steps(); read((now + 0.5) / steps()); }
    else if (event.key === "Enter") { if (!zoom(first, (now + 1) / steps())) rest(); }
    else if (event.key === "Escape" && first !== null) { first = null; read((now + 0.5) / steps()); }
    else return;
    event.preventDefault();
  });

  // The form applies as it changes, and keeps the address short.
  const form = document.querySelector("[data-chart-form]");
  form?.addEventListener("change", ({ target }) => {
    if (target.type === "datetime-local") return; // half-written times would be sent; the button sends them
    form.requestSubmit();
  });
  form?.addEventListener("submit", () => {
    for (const field of form.elements) if (!field.value) field.disabled = true;
  });
  addEventListener("pageshow", () => { for (const field of form?.elements ?? []) field.disabled = false; });

  // A chart that ends now moves on: by a pixel in about a thousandth of its window, so there is no need to draw it more often.
  const FASTEST = 10_000; // milliseconds
  if (chart()?.dataset.live) {
    setInterval(() => {
      if (document.hidden) return;
      document.dispatchEvent(new CustomEvent("manciple:changed", { detail: { topics: new Set(["clock"]), everything: false } }));
    }, Math.max(FASTEST, Number(chart().dataset.seconds)));
  }
})();
