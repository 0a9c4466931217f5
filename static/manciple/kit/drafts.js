// What somebody has typed and not sent stands there again when they come Back: browsers leave out fields with
// autocomplete="off", as most of ours are. It stays in this tab until they sign out, under a name that the entry of the
// history has. Left out are secrets, editors, which keep their own text, and forms that say what the address says.
(() => {
  const PLACE = "manciple-drafts";
  const FIELDS =
    "input:not([type=password], [data-secret], [type=hidden], [type=file]), textarea:not([data-editor]), select";
  const MOST = 50; // entries of the history that are remembered, the latest
  const person = document.getElementById("find")?.dataset.person ?? "";
  const read = () => {
    const all = JSON.parse(sessionStorage.getItem(PLACE) ?? "{}");
    return all.person === person ? all : { person, entries: {} };
  };
  const write = (all) => {
    for (const old of Object.keys(all.entries).slice(0, -MOST)) delete all.entries[old];
    sessionStorage.setItem(PLACE, JSON.stringify(all));
  };
  const forms = () => document.querySelectorAll("main form:not([autocomplete=off], [data-bulk], [data-layout])");
  // name -> field: the form's address and id, the field's name, and which one of that name it is.
  const named = () => {
    const found = new Map();
    for (const form of forms()) {
      for (const field of form.elements) {
        if (!field.name || !field.matches(FIELDS)) continue;
        const name = [form.getAttribute("action") ?? "", form.id, field.name].join(" ");
        let number = 0;
        while (found.has(`${name} ${number}`)) number += 1;
        found.set(`${name} ${number}`, field);
      }
    }
    return found;
  };
  const ticked = (field) => field.type === "checkbox" || field.type === "radio";
  const valueOf = (field) => (ticked(field) ? field.checked : field.value);
  const asItCame = (field) => {
    if (ticked(field)) return field.checked === field.defaultChecked;
    if (field.localName !== "select") return field.value === field.defaultValue;
    const usual = [...field.options].findIndex((one) => one.defaultSelected);
    return field.selectedIndex === Math.max(0, usual);
  };
  const keep = (form) => {
    if (![...forms()].includes(form)) return;
    const typed = [...named()].filter(([, field]) => !asItCame(field)).map(([name, field]) => [name, valueOf(field)]);
    const all = read(), entry = history.state?.draft ?? crypto.getRandomValues(new Uint32Array(2)).join("-");
    if (history.state?.draft !== entry) history.replaceState({ ...history.state, draft: entry }, "");
    delete all.entries[entry]; // it is the latest
    if (typed.length) all.entries[entry] = Object.fromEntries(typed);
    write(all);
  };
  for (const type of ["input", "change"]) {
    document.addEventListener(type, ({ target }) => { if (target.form && target.matches(FIELDS)) keep(target.form); });
  }
  document.addEventListener("submit", ({ target, defaultPrevented }) => {
    if (target.id === "sign-out") { sessionStorage.removeItem(PLACE); return; }
    const all = read();
    if (defaultPrevented || !(history.state?.draft in all.entries)) return;
    delete all.entries[history.state.draft]; // what is refused comes back with the answer
    write(all);
  });
  addEventListener("pageshow", ({ persisted }) => {
    if (persisted || performance.getEntriesByType("navigation")[0]?.type !== "back_forward") return;
    const fields = named(), kept = read().entries[history.state?.draft] ?? {};
    for (const [name, value] of Object.entries(kept)) {
      const field = fields.get(name);
      if (!field || valueOf(field) === value) continue;
      if (ticked(field)) field.checked = value; else field.value = value;
      const folded = field.closest("details");
      if (folded) folded.open = true;
      for (const type of ["input", "change"]) field.dispatchEvent(new Event(type, { bubbles: true }));
    }
  });
})();
