// The tour of a first visit: a card with a few steps, each of which points at what it tells of. It takes no focus and
// covers nothing for good; whoever ends it, by whatever key or button, does not see it again.
(() => {
  const tour = document.getElementById("tour");
  if (!tour) return;
  const steps = [...tour.querySelectorAll("li")], back = tour.querySelector("[data-back]"), next = tour.querySelector("[data-next]");
  let at = 0;
  const visible = (one) => one?.checkVisibility?.({ visibilityProperty: true });
  const show = (number) => {
    at = number;
    document.querySelectorAll(".toured").forEach((one) => one.classList.remove("toured"));
    steps.forEach((step, place) => { step.hidden = place !== at; });
    [...document.querySelectorAll(steps[at].dataset.at)].find(visible)?.classList.add("toured");
    if (at === 0 && document.activeElement === back) next.focus(); // a button that is disabled loses the focus to nobody
    back.disabled = at === 0;
    next.textContent = at === steps.length - 1 ? "Done" : "Next";
    tour.querySelector("[data-count]").textContent = `${at + 1} of ${steps.length}`;
  };
  const end = () => {
    document.querySelectorAll(".toured").forEach((one) => one.classList.remove("toured"));
    tour.remove();
    const headers = { "X-CSRFToken": document.body.dataset.csrf };
    fetch(tour.dataset.url, { method: "POST", headers, keepalive: true }).catch(() => { /* it is shown once more, then */ });
  };
  back.addEventListener("click", () => show(at - 1));
  next.addEventListener("click", () => { if (at === steps.length - 1) end(); else show(at + 1); });
  tour.querySelector("[data-end]").addEventListener("click", end);
  document.addEventListener("keydown", ({ key, target }) => { if (key === "Escape" && tour.isConnected && (tour.contains(target) || target === document.body)) end(); });
  tour.hidden = false;
  show(0);
})();
