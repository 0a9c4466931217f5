// The list of claims with a script: on a narrow screen a claim opens on its own page.
(() => {
  const narrow = matchMedia("(max-width: 1180px)");
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const target = event.target.closest("[data-own]");
    if (target && narrow.matches) { event.preventDefault(); location.assign(target.dataset.own); }
  });
})();
