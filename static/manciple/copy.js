// Buttons that copy: `data-copy` the text itself, `data-copy-from` the id of the element whose text it is. They stand
// hidden until a script can copy.
(() => {
  const reveal = () => document.querySelectorAll("[data-copy], [data-copy-from]").forEach((button) => { button.hidden = !navigator.clipboard; });
  reveal();
  document.addEventListener("manciple:merged", reveal);

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button || event.button) return;
    await navigator.clipboard.writeText(button.dataset.copy ?? document.getElementById(button.dataset.copyFrom).textContent);
    const aloud = document.getElementById("said");
    if (aloud) aloud.textContent = "Copied.";
  });
})();
