// Keeps the parts of a page true. A part is an element with an id and `data-topics`; when one of its topics is touched
// the page is fetched again and the part is merged into the one on screen, so that focus, scroll, selection and open
// details stay. Elements with `data-keep` (editors, open dialogs) are left alone.
// `data-says` on an element of a part: its text is said aloud when it changes. `data-again="4"`: the part is fetched
// again after so many seconds, for as long as it has such an element.
// `data-preview=ADDRESS` on a form: it is sent there while somebody fills it in, and the elements of the answer are merged
// into those with their ids; with `data-preview-part=ID` only that one. A GET leaves hidden fields out, and its address
// becomes the page's.
// `data-answer-to=ID` on an element: it answers the form of that id. From the moment that a field differs from what was
// asked until there is an answer for it, the element is marked (`data-stale`) and its buttons are off; where the server
// gives no answer, the element says so. Scripts that ask by themselves tell with `form:answered` (detail: `fieldsOf` what
// was sent) and `form:unanswered`.
(() => {
  const GATHERING = 20, REST = 150, AGAIN = 2000; // milliseconds: before a fetch, between two at least, after one that failed
  const PATIENCE = 30000; // milliseconds: a server that was frozen may never answer on that connection
  const parts = () => [...document.querySelectorAll("[id][data-topics]")];
  let topics = new Set(), everything = false, due = null, last = 0, cost = 0, busy = false;

  const concerns = (part, all = everything, touched = topics) => all || touched.has(`#${part.id}`) || part.dataset.topics.split(" ").some(
    (one) => (one.endsWith(":") ? [...touched].some((topic) => topic.startsWith(one)) : touched.has(one)));
  const words = (one) => { // without ages, which go on by themselves
    const copy = one.cloneNode(true);
    for (const age of copy.querySelectorAll("[data-ago]")) age.remove();
    return copy.textContent.replace(/\s+/g, " ").trim();
  };
  const spoken = () => [...document.querySelectorAll("[data-says]")].map(words).join(". ");
  const callbacks = {
    beforeNodeMorphed: (old, fresh) => {
      if (old.nodeType === Node.TEXT_NODE && old.nodeValue !== fresh.nodeValue) reworded.push(old);
      if (old.nodeType !== Node.ELEMENT_NODE) return true;
      if (old.hasAttribute("data-keep") || (old.localName === "dialog" && old.open)) return false;
      if (old.localName === "details" && fresh.nodeType === Node.ELEMENT_NODE) fresh.toggleAttribute("open", old.open);
      return !old.isEqualNode(fresh);
    },
    // A form that is on its way stays so (progress.js), and so does what somebody has ticked (bulk.js).
    beforeAttributeUpdated: (name, element) => !(name === "data-sending" || (name === "checked" && element.matches("td.pick input, th.pick input")) || (name === "aria-busy" && element.localName === "button") || (name === "open" && element.localName === "details")),
  };
  // New words are a new text, not the old one that moved: "9" where "10" stood ends where it ended. What somebody has
  // selected stays the text that it is.
  const reworded = [];
  const renew = () => {
    const selected = getSelection();
    for (const text of reworded.splice(0)) if (!selected?.containsNode(text, true)) text.replaceWith(text.cloneNode());
  };
  const waiting = new Set(); // ids of parts that are to be fetched again
  const fetchAgain = () => {
    for (const element of document.querySelectorAll("[data-again]")) {
      const id = element.closest("[id][data-topics]")?.id;
      if (!id || waiting.has(id)) continue;
      waiting.add(id);
      setTimeout(() => { waiting.delete(id); topics.add(`#${id}`); plan(); }, element.dataset.again * 1000);
    }
  };
  const owe = () => document.dispatchEvent(new CustomEvent("manciple:owing"));
  const merge = (fresh, all, touched) => {
    const before = spoken();
    for (const part of parts()) {
      if (!concerns(part, all, touched)) continue;
      const now = fresh.getElementById(part.id);
      if (!now) { part.remove(); continue; }
      Idiomorph.morph(part, now, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks });
    }
    renew();
    const after = spoken(), aloud = document.getElementById("said");
    if (aloud && after !== before) aloud.textContent = after;
    fetchAgain();
    document.dispatchEvent(new CustomEvent("manciple:merged"));
  };
  // Whoever is on the way to another page is not held up: a reload would take the place of the answer that comes, and its
  // message ("Deleted claim spare.") would not be read here.
  const GOING = 10000; // milliseconds: what began that long ago was not a way to another page
  let left = -GOING;
  window.addEventListener("beforeunload", () => { left = performance.now(); });
  const going = () => Boolean(document.querySelector("form[data-sending]")) || performance.now() - left < GOING;
  const again = () => { if (!going()) location.reload(); };
  const signIn = new URL(document.getElementById("live")?.dataset.signIn ?? "", location.href).pathname;
  const leave = ({ url }) => {
    if (new URL(url).pathname === signIn) document.dispatchEvent(new CustomEvent("manciple:signed-out")); else again();
  };
  // A new session has a new token, without which forms are refused. That of somebody else has other pages.
  const renewTokens = (fresh) => {
    const person = (page) => page.getElementById("find")?.dataset.person;
    if (person(fresh) !== person(document)) { location.reload(); return; }
    const token = fresh.body.dataset.csrf;
    if (!token) return;
    document.body.dataset.csrf = token;
    for (const field of document.querySelectorAll("[name=csrfmiddlewaretoken]")) field.value = token;
  };
  const redraw = async () => {
    due = null;
    if (busy) { plan(); return; }
    busy = true;
    const began = performance.now();
    // What is touched from here on may not be in this answer: it is kept for the next.
    const touched = topics, all = everything;
    topics = new Set(); everything = false;
    let merged = false;
    try {
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(PATIENCE) });
      if (answer.redirected && new URL(answer.url).pathname !== location.pathname) { leave(answer); return; }
      if (answer.status === 404) { again(); return; } // it is gone: the server's own page says so
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        renewTokens(fresh);
        merge(fresh, all, touched);
        merged = true;
      }
    } catch { /* no network: live.js says so, and tells everything when it is back */ } finally {
      if (!merged) { touched.forEach((topic) => topics.add(topic)); everything ||= all; setTimeout(plan, AGAIN); }
      if (topics.size || everything) owe();
      last = performance.now();
      cost = last - began;
      busy = false;
    }
  };
  // A page that is dear to draw is drawn less often: it rests twice as long as it took.
  const plan = () => { due ??= setTimeout(redraw, Math.max(GATHERING, last + Math.max(REST, 2 * cost) - performance.now())); };
  // Answers to forms ----------------------------------------------------------------------------------------------------
  const UNANSWERED = "The server did not answer for these values.";
  const asked = new WeakMap(); // form -> the fields that its answer is about; at first those that the page came with
  const fieldsOf = (form) => new URLSearchParams(new FormData(form)).toString();
  const asItCame = (field) => {
    if (field.type === "checkbox" || field.type === "radio") return field.checked === field.defaultChecked;
    if (field.type === "select-one") return field.selectedIndex === Math.max(0, [...field.options].findLastIndex((one) => one.defaultSelected));
    return field.type === "hidden" || !("defaultValue" in field) || field.value === field.defaultValue;
  };
  const answersTo = (form) => (form.id ? document.querySelectorAll(`[data-answer-to="${CSS.escape(form.id)}"]`) : []);
  const before = (form) => {
    const ask = [...form.elements].find((one) => one.type === "submit" && !one.disabled && !one.hidden)?.textContent.trim();
    return `This answer is for the values before your change.${ask ? ` Press “${ask}” for the new ones.` : ""}`;
  };
  const note = (answer, text) => {
    const old = answer.querySelector(":scope > [data-note]");
    if (!text || answer.localName === "form" || answer.localName === "dl") { old?.remove(); return; }
    const shown = old ?? Object.assign(document.createElement("p"), { className: "pad soft", role: "status" });
    shown.dataset.note = "";
    if (shown.textContent !== text) shown.textContent = text;
    if (!old) answer.prepend(shown);
  };
  const markStale = (form) => {
    const stale = asked.has(form) ? asked.get(form) !== fieldsOf(form) : ![...form.elements].every(asItCame);
    for (const answer of answersTo(form)) {
      answer.toggleAttribute("data-stale", stale);
      for (const button of answer.querySelectorAll(stale ? "button:enabled" : "button[data-stale]")) {
        button.disabled = stale;
        button.toggleAttribute("data-stale", stale);
      }
      const asksByItself = form.dataset.preview || form.dataset.answers;
      note(answer, asked.get(form) === null ? UNANSWERED : stale && !asksByItself ? before(form) : "");
    }
  };
  const answered = (form, fields) => { asked.set(form, fields); markStale(form); };
  const unanswered = (form) => {
    asked.set(form, null); // until there is one
    markStale(form);
  };
  for (const type of ["input", "change"]) {
    document.addEventListener(type, ({ target }) => { if (target.form) markStale(target.form); });
  }
  document.addEventListener("manciple:leaving", (event) => {
    const typed = (form) => form.method === "post" && ![...form.elements].every(asItCame);
    if ([...document.querySelectorAll("main form")].some(typed)) event.preventDefault();
  });
  document.addEventListener("form:answered", ({ target, detail }) => answered(target, detail));
  document.addEventListener("form:unanswered", ({ target }) => unanswered(target));
  window.addEventListener("pageshow", () => { // a browser puts back what somebody had typed
    for (const answer of document.querySelectorAll("[data-answer-to]")) {
      const form = document.getElementById(answer.dataset.answerTo);
      if (!form) continue;
      if (form.dataset.preview && ![...form.elements].every(asItCame)) preview(form, 0);
      markStale(form);
    }
  });

  const TYPING = 150; // milliseconds: a preview waits for the next letter
  const previews = new WeakMap(); // form -> how its last preview is called off
  const preview = (form, after) => {
    previews.get(form)?.abort();
    const abort = new AbortController(), { signal } = abort;
    previews.set(form, abort);
    setTimeout(async () => {
      if (signal.aborted) return;
      const url = new URL(form.dataset.preview, location.href), body = new FormData(form), part = form.dataset.previewPart;
      const sent = fieldsOf(form);
      if (form.method === "get") {
        for (const field of form.elements) if (field.type === "hidden") body.delete(field.name);
        url.search = new URLSearchParams(body);
      }
      document.dispatchEvent(new CustomEvent("manciple:asking", { detail: abort }));
      try {
        const answer = await fetch(url, form.method === "get" ? { signal } : { method: "POST", body, signal });
        if (answer.redirected && new URL(answer.url).pathname !== url.pathname) { leave(answer); return; }
        if (!answer.ok) { unanswered(form); return; }
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (signal.aborted) return;
        for (const fresh of page.querySelectorAll(part ? `#${part}` : "body > [id]")) {
          const old = document.getElementById(fresh.id);
          if (old) Idiomorph.morph(old, fresh, { morphStyle: "outerHTML" });
        }
        if (form.method === "get") history.replaceState(history.state, "", url);
        answered(form, sent);
        document.dispatchEvent(new CustomEvent("manciple:merged"));
      } catch { if (!signal.aborted) unanswered(form); } finally { // aborted: a newer one is on its way
        document.dispatchEvent(new CustomEvent("manciple:answered", { detail: abort }));
      }
    }, after);
  };
  for (const [type, after] of [["input", TYPING], ["change", 0]]) {
    document.addEventListener(type, ({ target }) => { if (target.form?.dataset.preview) preview(target.form, after); });
  }
  document.addEventListener("manciple:changed", ({ detail }) => {
    everything ||= detail.everything;
    detail.topics.forEach((topic) => topics.add(topic));
    if (everything || parts().some((part) => concerns(part))) { owe(); plan(); } else { topics = new Set(); }
  });
  fetchAgain();
})();
