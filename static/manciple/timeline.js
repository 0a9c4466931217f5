// The timeline with a script: the form applies as it changes, devices of one claim light up together, and the edge of a
// live chart moves with the time.
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

  // A bar grows by a pixel in about a thousandth of the window; there is no need to draw more often.
  const FASTEST = 10_000; // milliseconds
  if (chart()?.dataset.live) {
    setInterval(() => {
      if (document.hidden) return;
      document.dispatchEvent(new CustomEvent("manciple:changed", { detail: { topics: new Set(["clock"]), everything: false } }));
    }, Math.max(FASTEST, Number(chart().dataset.seconds)));
  }
})();
