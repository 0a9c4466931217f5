// The workbench of a class: after each change the server judges the form as it stands, and what it says is merged into
// the page around the editors. Buttons that put something into an editor do so here; without script they are posted.
(() => {
  const PAUSE = 120; // milliseconds after the last key
  const form = document.getElementById("class-form");
  if (!form) return;
  document.documentElement.classList.add("scripted");
  let due = null, asking = null, again = false, reviewing = false;
  // What stands there answers the form (parts.js); what is merged does not say so.
  const answers = () => document.getElementById("verdicts")?.setAttribute("data-answer-to", form.id);
  answers();

  const merge = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html").body;
    for (const now of [...fresh.children]) {
      const old = now.id && document.getElementById(now.id);
      if (!old) continue;
      Idiomorph.morph(old, now, {
        morphStyle: "outerHTML",
        callbacks: {
          beforeNodeMorphed: (was, becomes) => {
            if (was.localName === "details" && becomes.localName === "details") becomes.open = was.open;
            return true;
          },
        },
      });
    }
    review();
    answers();
    form.dispatchEvent(new CustomEvent("workbench:judged", { bubbles: true }));
  };
  // One question at a time: what is typed while the server answers is asked when it has answered.
  const judge = async () => {
    due = null;
    if (asking) { again = true; return; }
    const body = new FormData(form), sent = new URLSearchParams(body).toString();
    const headers = { "X-CSRFToken": document.body.dataset.csrf };
    try {
      asking = fetch(form.dataset.answers, { method: "POST", body, headers });
      const answer = await asking;
      if (answer.redirected) { document.dispatchEvent(new CustomEvent("manciple:signed-out")); return; }
      if (!answer.ok) throw answer;
      merge(await answer.text());
      form.dispatchEvent(new CustomEvent("form:answered", { bubbles: true, detail: sent }));
    } catch { form.dispatchEvent(new CustomEvent("form:unanswered", { bubbles: true })); } finally {
      asking = null;
      if (again) { again = false; plan(0); }
    }
  };
  const plan = (pause = PAUSE) => { clearTimeout(due); due = setTimeout(judge, pause); };
  form.addEventListener("input", (event) => { if (event.target.id !== "find-attribute") plan(); });
  document.addEventListener("manciple:changed", ({ detail }) => {
    if (detail.everything || [...detail.topics].some((topic) => /^(pool:|slices$|claims:|class:)/.test(topic))) plan();
  });

  // What is not saved ---------------------------------------------------------------------------------------------------
  // It stands in the address, so that a link and a reload show it; the server says how. unsaved.js asks who leaves.
  const SETTLED = 400; // milliseconds: browsers refuse to be told of a new address with every key
  let settling = null;
  const remember = () => {
    clearTimeout(settling);
    settling = setTimeout(() => {
      const { query } = document.getElementById("savebar").dataset;
      const address = location.pathname + (query ? `?${query}` : "");
      if (address !== location.pathname + location.search) history.replaceState(history.state, "", address);
    }, SETTLED);
  };
  remember();
  form.addEventListener("workbench:judged", remember);

  // The difference -----------------------------------------------------------------------------------------------------
  const review = () => {
    const button = document.getElementById("show-diff");
    document.getElementById("diff")?.classList.toggle("open", reviewing);
    if (!button) return;
    button.setAttribute("aria-expanded", String(reviewing));
    button.textContent = reviewing ? "Hide diff" : "Show diff";
  };
  review();

  // Putting things into editors ----------------------------------------------------------------------------------------
  const selectors = () => [...form.querySelectorAll('textarea[name="selector"]')];
  const addSelector = (text = "") => {
    const number = selectors().length;
    const made = document.getElementById("new-selector").content.cloneNode(true);
    for (const one of [made.firstElementChild, ...made.querySelectorAll("*")]) {
      for (const attribute of one.attributes) attribute.value = attribute.value.replaceAll("__index__", number);
    }
    made.querySelector("label").textContent = `Selector ${number + 1}`;
    made.querySelector("textarea").value = text;
    document.getElementById("selectors").append(made);
    document.dispatchEvent(new CustomEvent("manciple:merged")); // editor.js makes an editor of it
    const area = selectors().at(-1);
    Editors.of(area)?.focus();
    plan(0);
  };
  const put = (area, text) => { Editors.set(area, text); Editors.of(area)?.focus(); };
  form.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.id === "show-diff") { reviewing = !reviewing; review(); return; }
    if (button.dataset.insert) { Editors.insert(button.dataset.insert); return; }
    if (button.name === "add" && button.value === "selector") { event.preventDefault(); addSelector(); }
    if (button.name === "guard" || button.name === "spelling") { event.preventDefault(); put(document.getElementById(button.dataset.into), button.dataset.text); }
    if (button.name === "example") {
      event.preventDefault();
      const blank = selectors().find((area) => !area.value.trim());
      if (blank) put(blank, button.value); else addSelector(button.value);
    }
    if (button.matches(".primary[aria-disabled]")) event.preventDefault();
  });
  // Ctrl+Enter or Command+Enter saves from within an editor.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    const save = form.querySelector(".savebar .primary:not([aria-disabled])");
    if (save) { event.preventDefault(); form.requestSubmit(save); }
  }, true);

  // Finding an attribute -----------------------------------------------------------------------------------------------
  const find = document.getElementById("find-attribute");
  const wasOpen = new Map();
  find?.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    let any = false;
    for (const domain of form.querySelectorAll(".palette details")) {
      if (!wasOpen.has(domain)) wasOpen.set(domain, domain.open);
      let found = 0;
      for (const item of domain.querySelectorAll("li")) {
        item.hidden = Boolean(wanted) && !item.firstElementChild.dataset.insert.toLowerCase().includes(wanted);
        found += !item.hidden;
      }
      domain.hidden = !found;
      domain.open = wanted ? found > 0 : wasOpen.get(domain);
      any ||= found > 0;
    }
    document.getElementById("no-attribute").hidden = any;
  });
  find?.addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
})();
