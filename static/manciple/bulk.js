// Rows with a box each that are acted on together: one box for all, Shift for a stretch, and how many there are.
// The form is `data-bulk`; its boxes are named "at"; what is written in `data-picked`, the buttons wait for one box.
(() => {
  const form = document.querySelector("[data-bulk]");
  if (!form) return;
  const boxes = () => [...form.querySelectorAll('td.pick input[type="checkbox"]')];
  const all = form.querySelector("[data-all]"), picked = form.querySelector("[data-picked]");
  let last = null;
  const draw = () => {
    const found = boxes(), count = found.filter((box) => box.checked).length;
    if (all) { all.hidden = false; all.checked = count === found.length; all.indeterminate = count > 0 && count < found.length; }
    if (picked) picked.textContent = `${count.toLocaleString("en")} of ${found.length.toLocaleString("en")} chosen`;
    for (const act of form.querySelectorAll("[formaction]")) act.disabled = !count;
  };
  form.addEventListener("click", (event) => {
    if (event.target === all) for (const box of boxes()) box.checked = all.checked;
    else if (event.target.matches("td.pick input")) {
      const found = boxes(), to = found.indexOf(event.target), from = found.indexOf(last);
      if (event.shiftKey && from >= 0) for (const box of found.slice(Math.min(from, to), Math.max(from, to) + 1)) box.checked = event.target.checked;
      last = event.target;
    } else return;
    draw();
  });
  form.addEventListener("change", draw);
  document.addEventListener("manciple:merged", draw);
  draw();
})();
