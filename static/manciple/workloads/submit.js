// A new pod: the form and its YAML in step. The server reads both whenever one of them was changed (`data-preview`), and
// answers in #composed with what both say now; here it is put into them.
(() => {
  const form = document.querySelector("form.composing"), yaml = document.getElementById("yaml");
  if (!form || !yaml) return;
  let writing = false;
  // What the server said is no news to it.
  for (const type of ["input", "change"]) {
    window.addEventListener(type, (event) => { if (writing) event.stopImmediatePropagation(); }, true);
  }
  const choose = (select, value) => {
    if (![...select.options].some((one) => one.value === value)) select.add(new Option(value, value));
    select.value = value;
  };
  // A class that is not in the table stays chosen: what is not sent would be taken out of the YAML.
  const mark = (name, value) => {
    const radios = [...form.querySelectorAll(`input[type=radio][name="${name}"]`)];
    const found = radios.find((one) => one.value === value);
    if (found) { found.checked = true; return; }
    for (const one of radios) one.checked = false;
    const table = document.querySelector("#f-class tbody");
    if (name !== "class" || !value || !table) return;
    const row = table.insertRow(), label = document.createElement("label"), radio = document.createElement("input");
    Object.assign(radio, { type: "radio", name, value, checked: true });
    label.className = "check";
    label.append(radio, value);
    row.insertCell().append(label);
    Object.assign(row.insertCell(), { colSpan: 4, className: "red", textContent: "No class of this name can be used." });
  };
  const show = ({ text, base, values }) => {
    writing = true;
    if (window.Editors?.of(yaml)) window.Editors.set(yaml, text); else if (yaml.value !== text) yaml.value = text;
    form.elements.base.value = base;
    for (const [name, value] of Object.entries(JSON.parse(values))) {
      const field = form.elements[name];
      if (!field || field === document.activeElement) continue;
      if (name === "class" || name === "devices") mark(name, value);
      else if (field.localName === "select") choose(field, value);
      else if (field.value !== value) field.value = value;
    }
    writing = false;
  };
  document.addEventListener("manciple:merged", () => {
    const said = document.getElementById("composed");
    if (said) show(said.dataset);
  });
})();
