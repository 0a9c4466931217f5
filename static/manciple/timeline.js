// The timeline with a script: the form applies as it changes, devices of one claim light up together, the chart is read
// and zoomed along its axis, and the edge of a live chart moves with the time.
(() => {
  const form = document.querySelector("[data-timeline-form]");
  form?.addEventListener("change", ({ target }) => {
    if (target.type === "datetime-local") return; // half-written times would be sent; the button sends them
    form.requestSubmit();
  });
  form?.addEventListener("submit", () => {
    for (const field of form.elements) if (!field.value) field.disabled = true; // keeps the address short
  });
  addEventListener("pageshow", () => { for (const field of form?.elements ?? []) field.disabled = false; });

  const chart = () => document.getElementById("timeline");
  let lit = null;
  const light = (claim) => {
    if (claim === lit) return;
    chart().querySelectorAll(".b.kin").forEach((bar) => bar.classList.remove("kin"));
    if (claim) chart().querySelectorAll(`.b[data-c="${CSS.escape(claim)}"]`).forEach((bar) => bar.classList.add("kin"));
    lit = claim;
  };
  document.addEventListener("pointerover", ({ target }) => light(target.closest?.(".b")?.dataset.c ?? null));

  // Reading along the axis: a line across the lanes, the time beside it, and in each area how many were held. Dragging,
  // or Enter at both ends, shows that stretch of time: its ends stand in the address.
  const STEPS = 240, LEAST = 60_000; // the steps that areas are drawn in; milliseconds that can be zoomed into
  const reader = () => document.getElementById("t-reader");
  const moment = (part) => new Date(Date.parse(chart().dataset.begin) + part * Number(chart().dataset.seconds) * 1000);
  const clock = (at) => `${chart().dataset.seconds > 86400 ? `${at.toUTCString().slice(0, 7)} ` : ""}${at.toISOString().slice(11, 16)}`;
  const levels = (lane) => lane.dataset.levels.split(" ").flatMap((run) => { const [held, steps] = run.split("x"); return Array(Number(steps)).fill(held); });
  let first = null; // part of the window where a choice began

  const read = (part) => {
    const one = reader(), at = one.querySelector(".at"), cross = document.getElementById("t-cross"), step = Math.min(STEPS - 1, Math.floor(part * STEPS));
    for (const element of [one, cross]) element.style.setProperty("--l", part * 100);
    at.hidden = cross.hidden = false;
    at.textContent = clock(moment(part));
    const said = [];
    for (const lane of chart().querySelectorAll("[data-levels]")) {
      const held = levels(lane)[step], track = lane.querySelector(".track");
      const shown = track.querySelector(".level") ?? track.appendChild(Object.assign(document.createElement("span"), { className: "level", ariaHidden: "true" }));
      shown.textContent = `${held} held`;
      shown.style.setProperty("--l", part * 100);
      said.push(`${lane.querySelector(".ent, .name > span").textContent} ${held}`);
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
    for (const element of [one.querySelector(".at"), one.querySelector(".chosen"), document.getElementById("t-cross")]) element.hidden = true;
    for (const shown of chart().querySelectorAll(".level")) shown.remove();
  };
  const zoom = (one, other) => {
    const [begin, end] = [one, other].sort((a, b) => a - b).map(moment);
    if (end - begin < LEAST) { rest(); return; }
    const address = new URL(location.href), text = (at) => at.toISOString().slice(0, 16);
    for (const name of ["range", "page"]) address.searchParams.delete(name);
    address.searchParams.set("from", text(begin));
    address.searchParams.set("to", text(new Date(+end + 59_999)));
    location.assign(address);
  };
  const partOf = (event) => { const box = reader().getBoundingClientRect(); return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1); };
  document.addEventListener("pointermove", (event) => {
    if (!reader()) return;
    if (first !== null && reader().hasPointerCapture(event.pointerId)) read(partOf(event));
    else if (event.pointerType === "mouse" && event.target.closest(".gantt .track")) read(partOf(event));
    else if (document.activeElement !== reader()) rest();
  });
  document.addEventListener("pointerdown", (event) => {
    const one = event.target.closest("#t-reader");
    if (!one || event.button) return;
    one.setPointerCapture(event.pointerId);
    first = partOf(event);
    read(first);
  });
  document.addEventListener("pointerup", (event) => { if (first !== null && event.target.closest("#t-reader")) { const from = first, to = partOf(event); first = null; zoom(from, to); } });
  document.addEventListener("pointercancel", rest);
  document.addEventListener("focusin", ({ target }) => { if (target === reader()) read((Number(target.getAttribute("aria-valuenow")) + 0.5) / STEPS); });
  document.addEventListener("focusout", ({ target }) => { if (target === reader()) rest(); });
  document.addEventListener("keydown", (event) => {
    if (event.target !== reader() || event.altKey || event.ctrlKey || event.metaKey) return;
    const now = Number(reader().getAttribute("aria-valuenow"));
    const go = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, PageDown: now - 24, PageUp: now + 24, Home: 0, End: STEPS - 1 }[event.key];
    if (go !== undefined) read((Math.min(Math.max(go, 0), STEPS - 1) + 0.5) / STEPS);
    else if (event.key === "Enter" && first === null) { first = now / STEPS; read((now + 0.5) / STEPS); }
    else if (event.key === "Enter") zoom(first, (now + 1) / STEPS);
    else if (event.key === "Escape" && first !== null) { first = null; read((now + 0.5) / STEPS); }
    else return;
    event.preventDefault();
  });

  // A bar grows by a pixel in about a thousandth of the window; there is no need to draw more often.
  const FASTEST = 10_000; // milliseconds
  if (chart()?.dataset.live) {
    setInterval(() => {
      if (document.hidden) return;
      document.dispatchEvent(new CustomEvent("manciple:changed", { detail: { topics: new Set(["clock"]), everything: false } }));
    }, Math.max(FASTEST, Number(chart().dataset.seconds)));
  }
})();
