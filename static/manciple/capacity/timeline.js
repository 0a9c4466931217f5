// The timeline with a script: devices of one claim light up together. chart.js reads and zooms it.
(() => {
  const chart = () => document.getElementById("timeline");
  let lit = null;
  const light = (claim) => {
    if (claim === lit) return;
    chart().querySelectorAll(".b.kin").forEach((bar) => bar.classList.remove("kin"));
    if (claim) chart().querySelectorAll(`.b[data-c="${CSS.escape(claim)}"]`).forEach((bar) => bar.classList.add("kin"));
    lit = claim;
  };
  document.addEventListener("pointerover", ({ target }) => light(target.closest?.(".b")?.dataset.c ?? null));
})();
