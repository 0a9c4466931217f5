// Rows with a box each that are acted on together: one box for all, Shift for a stretch, and how many there are.
// The form is `data-bulk`; its boxes stand in `td.pick`; what is written in `data-picked`, the buttons wait for one box.
// A form beside its rows (`bulk-bar`) shows when one is chosen, and `data-none` lets them go.
(() => {
  const form = document.querySelector("[data-bulk]");
  if (!form) return;
  const boxes = () => [...form.elements].filter((one) => one.closest("td.pick"));
  const all = () => document.querySelector("[data-all]");
  const picked = form.querySelector("[data-picked]"), none = form.querySelector("[data-none]");
  let last = null;
  const draw = () => {
    const found = boxes(), count = found.filter((box) => box.checked).length, head = all();
    if (head) { head.hidden = false; head.checked = count > 0 && count === found.length; head.indeterminate = count > 0 && count < found.length; }
    if (picked) picked.textContent = `${count.toLocaleString("en")} of ${found.length.toLocaleString("en")} chosen`;
    for (const box of found) box.closest("tr").classList.toggle("picked", box.checked);
    for (const act of form.querySelectorAll("[formaction]")) act.disabled = !count;
    if (none) none.hidden = false;
    form.classList.toggle("has-picked", count > 0);
  };
  const choose = (wanted) => { for (const box of boxes()) box.checked = wanted; };
  document.addEventListener("click", ({ target, shiftKey }) => {
    if (target === all()) choose(target.checked);
    else if (none && target === none) choose(false);
    else if (target.matches?.("td.pick input")) {
      const found = boxes(), to = found.indexOf(target), from = found.indexOf(last);
      if (shiftKey && from >= 0) for (const box of found.slice(Math.min(from, to), Math.max(from, to) + 1)) box.checked = target.checked;
      last = target;
    } else return;
    draw();
  });
  form.addEventListener("change", draw);
  document.addEventListener("manciple:merged", draw);
  draw();
})();
