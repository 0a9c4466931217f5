// Editors for CEL and YAML: every <textarea data-editor="cel|yaml"> becomes a CodeMirror editor. The textarea stays in
// the form and carries the value; `input` and `change` fire on it, so forms notice nothing.
//
// data-completions="URL"  GET, JSON, read once for a page:
//   cel:  {"after": {"device.": [OPTION, …], "": [OPTION, …]}} what may follow a text; the longest that fits counts.
//         Blanks around operators and brackets do not count: `.architecture=="`.
//   yaml: {"keys": {"": [OPTION], "spec.containers": [OPTION]}, "values": {"kind": [OPTION], "spec.nodeName": […]}}
//         by the path to the mapping (entries of lists have their list's path); "Pod/spec" counts where `kind: Pod`.
//   OPTION: "text" or {label, detail, info, type, apply}.
// data-diagnostics="URL"  POST of the form's fields, `text` (what stands here) and `editor` (the textarea's id); JSON:
//   [{line, column, end_line, end_column, severity, message, hint, fix: {label, insert, line, column, end_line,
//   end_column}}], counted from 1 in code points; asked 200 ms after the last key. hint and fix may be left out.
//
// window.Editors: insert(text) at the caret of the editor last used; of(textarea): its view; set(textarea, text);
// check(textarea): ask for diagnostics anew. `editor:diagnosed` fires on the textarea with {detail: [diagnostic, …]}.
(() => {
  const CM = window.CodeMirror, PAUSE = 200, LONGEST_LIST = 60;
  const nonce = document.querySelector('meta[name="csp-nonce"]')?.content ?? "";
  const views = new WeakMap(), checks = new WeakMap(), known = new Map();
  let last = null; // the editor that had the focus last

  // Looks ------------------------------------------------------------------------------------------------------------
  const look = CM.EditorView.theme({
    "&": { color: "var(--text)", backgroundColor: "transparent", font: "400 var(--t-3)/1.75 var(--f-mono)" },
    "&.cm-focused": { outline: "none" },
    ".cm-scroller": { fontFamily: "inherit", lineHeight: "inherit", overflow: "auto", maxHeight: "var(--editor-height, none)" },
    ".cm-content": { padding: "6px 0", caretColor: "var(--brass-line)", minHeight: "calc(var(--rows, 2) * 1.75em + 12px)" },
    ".cm-line": { padding: "0 16px 0 0" },
    ".cm-gutters": { backgroundColor: "transparent", border: "0", color: "var(--text-3)", minWidth: "36px" },
    ".cm-lineNumbers .cm-gutterElement": { padding: "0 10px 0 0", minWidth: "36px" },
    ".cm-activeLineGutter": { backgroundColor: "transparent" },
    "&.cm-focused .cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--brass-soft) 55%, transparent)" },
    ".cm-activeLine": { backgroundColor: "transparent" },
    "&.cm-focused .cm-matchingBracket": { backgroundColor: "transparent", boxShadow: "inset 0 0 0 1px var(--brass-line)", borderRadius: "2px" },
    "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--red-fill)", color: "inherit" },
    ".cm-placeholder": { color: "var(--text-3)" },
    ".cm-bad": { textDecoration: "underline wavy var(--red) 1.5px", textUnderlineOffset: "4px", textDecorationSkipInk: "none", backgroundColor: "var(--red-fill)" },
    ".cm-bad.warning": { textDecorationColor: "var(--brass-line)", backgroundColor: "var(--brass-soft)" },
    ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line-2)", borderRadius: "var(--r2)", boxShadow: "var(--shadow-2)", zIndex: "40" },
    ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--f-mono)", fontSize: "var(--t-2)", maxHeight: "19em", padding: "3px" },
    ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { display: "flex", gap: "12px", padding: "2px 8px", borderRadius: "var(--r1)", lineHeight: "1.7" },
    "@media (pointer: coarse)": { ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { paddingBlock: "9px" } },
    ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--brass-soft)", color: "var(--text)", boxShadow: "inset 0 0 0 1px var(--brass-line)" },
    ".cm-completionMatchedText": { textDecoration: "none", color: "var(--brass)", fontWeight: "650" },
    ".cm-completionDetail": { marginLeft: "auto", fontStyle: "normal", fontFamily: "var(--f-sans)", color: "var(--text-3)" },
    ".cm-tooltip.cm-completionInfo": { padding: "7px 10px", fontFamily: "var(--f-sans)", fontSize: "var(--t-2)", maxWidth: "320px" },
    ".cm-tooltip-hover": { padding: "6px 10px", fontFamily: "var(--f-sans)", fontSize: "var(--t-3)", maxWidth: "420px" },
  });
  const { tags } = CM;
  const colours = CM.HighlightStyle.define([
    { tag: [tags.definition(tags.propertyName), tags.keyword], color: "var(--c-key)" },
    { tag: tags.string, color: "var(--c-str)" },
    { tag: [tags.number, tags.bool, tags.null], color: "var(--c-num)" },
    { tag: tags.function(tags.variableName), color: "var(--c-fn)" },
    { tag: tags.lineComment, color: "var(--c-com)" },
  ]);

  // CEL --------------------------------------------------------------------------------------------------------------
  const STRING = /^[bBrR]{0,2}("(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?)/;
  const cel = CM.StreamLanguage.define({
    name: "cel",
    startState: () => ({ quotes: "" }),
    token: (stream, state) => {
      if (state.quotes) {
        state.quotes = stream.skipTo(state.quotes) && stream.match(state.quotes) ? "" : (stream.skipToEnd(), state.quotes);
        return "string";
      }
      if (stream.eatSpace()) return null;
      if (stream.match("//")) { stream.skipToEnd(); return "lineComment"; }
      const opened = stream.match(/^[bBrR]{0,2}("""|''')/);
      if (opened) { state.quotes = opened[1]; return "string"; }
      if (stream.match(STRING)) return "string";
      if (stream.match(/^(0x[0-9a-fA-F]+u?|\d+(\.\d+)?([eE][+-]?\d+)?u?)/)) return "number";
      if (stream.match(/^(true|false)\b/)) return "bool";
      if (stream.match(/^null\b/)) return "null";
      if (stream.match(/^in\b/)) return "keyword";
      if (stream.match(/^[A-Za-z_]\w*(?=\s*\()/)) return "called";
      if (stream.match(/^[A-Za-z_]\w*/)) return "variableName";
      stream.next();
      return null;
    },
    languageData: { closeBrackets: { brackets: ["(", "[", "{", '"', "'"] }, commentTokens: { line: "//" } },
    tokenTable: { called: tags.function(tags.variableName) },
  });

  // YAML -------------------------------------------------------------------------------------------------------------
  // By line, as objects are written: no tags, anchors or text over several lines but a block's (`|`, `>`).
  const QUOTED = /^("(?:\\.|[^"\\])*"?|'(?:''|[^'])*'?)/, ENDS = "(?=\\s*(?:[,\\]}]|$)|\\s+#)";
  const yamlKey = /^("(?:\\.|[^"\\])*"|'(?:''|[^'])*'|[^\s,[\]{}#&*!|>'"%@`][^[\]{}#]*?)(?=\s*:(\s|$))/;
  const yamlNumber = new RegExp(`^[-+]?\\d+(\\.\\d+)?([eE][-+]?\\d+)?${ENDS}`);
  const yamlWord = new RegExp(`^(true|false|null|~)${ENDS}`);
  const yaml = CM.StreamLanguage.define({
    name: "yaml",
    startState: () => ({ column: 0, block: -1 }), // of the line's last key or dash; of the one whose block goes on
    token: (stream, state) => {
      if (stream.sol() && state.block >= 0) {
        if (stream.indentation() > state.block) { stream.skipToEnd(); return "string"; }
        state.block = -1;
      }
      if (stream.sol() && stream.match(/^(---|\.\.\.)(?=\s|$)/)) return "keyword";
      if (stream.eatSpace()) return null;
      if (stream.match(/^#.*/)) return "lineComment";
      const column = stream.column();
      if (stream.match(/^-(?=\s|$)/)) { state.column = column; return null; }
      if (stream.match(yamlKey)) { state.column = column; return "key"; }
      if (stream.match(/^[|>][-+\d]*(?=\s|$)/)) { state.block = state.column; return "keyword"; }
      if (stream.match(QUOTED)) return "string";
      if (stream.match(yamlNumber)) return "number";
      if (stream.match(yamlWord)) return "bool";
      if (!stream.match(/^[,[\]{}:]/)) stream.match(/^.+?(?=[,[\]{}]|\s+#|:\s|$)/) || stream.next();
      return null;
    },
    // Below a key without a value, one step in; below one with a value in an entry of a list, beside it.
    indent: (state, after, context) => {
      const { text } = context.lineAt(context.pos, -1), beside = /^\s*(?:- +)*/.exec(text)[0].length;
      if (/^[^#]*:(\s+[|>][-+\d]*)?\s*$/.test(text)) return beside + context.unit;
      return /:\s/.test(text) ? beside : null;
    },
    languageData: { closeBrackets: { brackets: ["[", "{", '"', "'"] }, commentTokens: { line: "#" } },
    tokenTable: { key: tags.definition(tags.propertyName) },
  });

  // Completion -------------------------------------------------------------------------------------------------------
  const read = (url) => {
    if (!known.has(url)) {
      known.set(url, fetch(url).then((answer) => { if (!answer.ok) throw answer; return answer.json(); })
        .catch(() => { known.delete(url); return {}; })); // a server that had no answer is asked anew
    }
    return known.get(url);
  };
  // What was closed by itself behind the caret is not closed twice; where more must follow, it is offered at once.
  const applied = (text) => (view, completion, from, to) => {
    const behind = /^["'\])]*/.exec(view.state.sliceDoc(to, to + 4))[0];
    const closed = [...behind].findIndex((letter) => !text.includes(letter));
    const end = to + (closed < 0 ? behind.length : closed);
    view.dispatch({ changes: { from, to: end, insert: text }, selection: { anchor: from + text.length }, userEvent: "input.complete" });
    if (/[.(\[]$|[(\[]"$/.test(text)) setTimeout(() => CM.startCompletion(view));
  };
  const option = (one) => {
    const { label, detail, info, type, apply } = typeof one === "string" ? { label: one } : one;
    return { label, detail, info, type, apply: applied(apply ?? label) };
  };
  const offered = (from, options, validFor) => (options?.length ? { from, options: options.map(option), validFor } : null);

  const celOptions = (table, context) => {
    const word = context.matchBefore(/[\w.\/-]*$/) ?? { from: context.pos, text: "" };
    const line = context.state.sliceDoc(Math.max(0, context.pos - 2000), context.pos);
    // A name may hold dots and slashes inside quotes, and not outside of them: try the longest reading first.
    const starts = [word.from];
    [...word.text].forEach((letter, at) => { if (letter === "." || letter === "/") starts.push(word.from + at + 1); });
    let best = null;
    for (const from of starts) {
      const before = tight(line.slice(0, line.length - (context.pos - from)));
      for (const key of Object.keys(table)) {
        const fits = key ? before.endsWith(key) : from === starts.at(-1) && !/[.\w"'\]]$/.test(before);
        if (fits && (!best || key.length > best.key.length)) best = { key, from };
      }
    }
    if (!best || (!best.key && best.from === context.pos && !context.explicit)) return null;
    return offered(best.from, table[best.key], /^[\w.\/-]*$/);
  };
  const tight = (text) => text.replace(/\s*(==|!=|<=|>=|<|>|&&|\|\||\[|\(|\.|,)\s*/g, "$1");

  // A mapping's parent is the nearest line above whose key stands further left and has no value of its own. In an entry
  // of a list the key counts, not its dash.
  const KEY = /^(\s*(?:- +)*)([\w.\/-]+):\s*(\S?)/;
  const yamlPath = (state, pos) => {
    const here = state.doc.lineAt(pos), path = [], typed = here.text.slice(0, pos - here.from);
    let indent = /^(\s*(?:- +)*)/.exec(typed)[0].length, kind = "";
    for (let number = here.number - 1; number >= 1; number -= 1) {
      const text = state.doc.line(number).text;
      if (/^---/.test(text)) break;
      const found = KEY.exec(text);
      if (!found) continue;
      if (!found[1]) kind = (/^kind:\s*(\w+)/.exec(text) ?? [])[1] ?? kind;
      if (found[1].length < indent && !found[3]) { path.unshift(found[2]); indent = found[1].length; }
    }
    for (let number = here.number + 1; !kind && number <= state.doc.lines; number += 1) {
      const text = state.doc.line(number).text;
      if (/^---/.test(text)) break;
      kind = (/^kind:\s*(\w+)/.exec(text) ?? [])[1] ?? "";
    }
    return { path: path.join("."), kind };
  };
  const yamlOptions = (table, context) => {
    const line = context.state.doc.lineAt(context.pos), before = line.text.slice(0, context.pos - line.from);
    const { path, kind } = yamlPath(context.state, context.pos);
    const pick = (choices, key) => choices?.[`${kind}/${key}`] ?? choices?.[key];
    const value = /^\s*(?:- +)*([\w.\/-]+):\s+["']?([^\s"']*)$/.exec(before);
    if (value) {
      const key = path ? `${path}.${value[1]}` : value[1];
      return offered(context.pos - value[2].length, pick(table.values, key), /^[\w.\/-]*$/);
    }
    const key = /^\s*(?:- +)*([\w.\/-]*)$/.exec(before);
    if (!key || (!key[1] && !context.explicit)) return null;
    const options = pick(table.keys, path)?.map((one) => (typeof one === "string" ? { label: one } : one))
      .map((one) => ({ ...one, apply: one.apply ?? `${one.label}: ` }));
    return offered(context.pos - key[1].length, options, /^[\w.\/-]*$/);
  };
  const completing = (area) => async (context) => {
    const table = await read(area.dataset.completions);
    return area.dataset.editor === "yaml" ? yamlOptions(table, context) : celOptions(table.after ?? {}, context);
  };

  // Diagnostics ------------------------------------------------------------------------------------------------------
  const diagnosed = CM.StateEffect.define();
  const findings = CM.StateField.define({
    create: () => ({ list: [], marks: CM.Decoration.none }),
    update: (value, change) => {
      let now = change.docChanged ? { list: value.list, marks: value.marks.map(change.changes) } : value;
      for (const effect of change.effects) if (effect.is(diagnosed)) now = marked(change.state.doc, effect.value);
      return now;
    },
    provide: (field) => CM.EditorView.decorations.from(field, (value) => value.marks),
  });
  // Places are counted in code points by the server, and in code units here.
  const offset = (doc, line, column) => {
    if (line > doc.lines) return doc.length;
    const found = doc.line(Math.max(1, line));
    return Math.min(found.to, found.from + [...found.text].slice(0, Math.max(0, column - 1)).join("").length);
  };
  const span = (doc, one) => {
    const from = offset(doc, one.line || 1, one.column || 1);
    const to = one.end_line ? offset(doc, one.end_line, one.end_column) : from;
    if (to > from) return [from, to];
    const rest = /^(\w+|"[^"]*"|\S)/.exec(doc.lineAt(from).text.slice(from - doc.lineAt(from).from));
    return rest ? [from, from + rest[0].length] : [Math.max(doc.lineAt(from).from, from - 1), from];
  };
  const marked = (doc, list) => {
    const marks = list.filter((one) => one.line).map((one) => {
      const [from, to] = span(doc, one);
      return from < to ? CM.Decoration.mark({ class: `cm-bad ${one.severity ?? "error"}` }).range(from, to) : null;
    });
    return { list, marks: CM.Decoration.set(marks.filter(Boolean), true) };
  };
  const pointed = CM.hoverTooltip((view, pos) => {
    const { list } = view.state.field(findings);
    const one = list.find((found) => { const [from, to] = span(view.state.doc, found); return found.line && from <= pos && pos <= to; });
    if (!one) return null;
    const [pos1, end] = span(view.state.doc, one);
    return { pos: pos1, end, above: false, create: () => { const dom = document.createElement("div"); dom.textContent = one.message; return { dom }; } };
  });
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const told = (view, one) => {
    const warns = one.severity === "warning";
    const sign = element("span", { className: `sev ${warns ? "warn" : "err"}`, textContent: warns ? "!" : "×", ariaHidden: "true" });
    const place = one.line ? `Line ${one.line}, column ${one.column}: ` : "";
    const said = element("div", {}, element("b", { textContent: place + one.message }));
    if (one.hint || one.fix) {
      const line = element("p", { textContent: one.hint ? `${one.hint} ` : "" });
      if (one.fix && !view.state.readOnly) {
        const button = element("button", { type: "button", className: "link", textContent: one.fix.label ?? "Apply fix" });
        button.addEventListener("click", () => {
          const [from, to] = one.fix.end_line ? [offset(view.state.doc, one.fix.line, one.fix.column), offset(view.state.doc, one.fix.end_line, one.fix.end_column)] : span(view.state.doc, one.fix);
          view.dispatch({ changes: { from, to, insert: one.fix.insert }, selection: { anchor: from + one.fix.insert.length } });
          view.focus();
        });
        line.append(button);
      }
      said.append(line);
    }
    return element("div", { className: warns ? "diag warn" : "diag" }, sign, said);
  };
  const tell = (area, view, box, list) => {
    view.dispatch({ effects: diagnosed.of(list) });
    box.replaceChildren(...list.map((one) => told(view, one)));
    view.contentDOM.setAttribute("aria-invalid", String(list.some((one) => one.severity !== "warning")));
    area.dispatchEvent(new CustomEvent("editor:diagnosed", { detail: list, bubbles: true }));
  };
  const checker = (area, view, box) => {
    let due = null, asked = 0;
    const ask = async () => {
      const mine = ++asked;
      const body = area.form ? new FormData(area.form) : new FormData();
      body.set("text", area.value);
      body.set("editor", area.id);
      const headers = { "X-CSRFToken": document.body.dataset.csrf };
      try {
        const answer = await fetch(area.dataset.diagnostics, { method: "POST", body, headers });
        if (answer.ok && mine === asked) tell(area, view, box, await answer.json());
      } catch { /* no network: what is shown stays, and live.js says that the line is down */ }
    };
    return (pause = PAUSE) => { clearTimeout(due); due = setTimeout(ask, pause); };
  };

  // The editor itself ------------------------------------------------------------------------------------------------
  const named = (area) => {
    const label = area.labels?.[0];
    if (!label) return { "aria-label": area.getAttribute("aria-label") ?? area.name };
    label.id ||= `${area.id}-label`;
    return { "aria-labelledby": label.id };
  };
  const attributes = (area, box) => ({
    ...named(area),
    "aria-multiline": "true", role: "textbox", spellcheck: "false", autocapitalize: "none", autocorrect: "off",
    "aria-describedby": [area.getAttribute("aria-describedby"), box.id].filter(Boolean).join(" "),
    ...(area.required ? { "aria-required": "true" } : {}),
    tabindex: "0", // the keyboard reaches whatever scrolls, also where browsers leave out what is only editable
    ...(area.matches(":disabled") || area.readOnly ? { "aria-readonly": "true" } : {}),
  });
  const enhance = (area) => {
    if (views.has(area)) return;
    area.id ||= `editor-${Math.random().toString(36).slice(2)}`;
    const box = element("div", { className: "diags", id: `${area.id}-diagnostics`, ariaLive: "polite" });
    const frame = element("div", { className: "code-editor" });
    frame.dataset.keep = "";
    frame.style.setProperty("--rows", area.rows);
    const locked = area.matches(":disabled") || area.readOnly;
    const extensions = [
      CM.EditorView.cspNonce.of(nonce), look, CM.syntaxHighlighting(colours),
      CM.lineNumbers(), CM.history(), CM.bracketMatching(), CM.highlightActiveLine(), CM.EditorView.lineWrapping,
      CM.EditorState.readOnly.of(locked), CM.EditorState.tabSize.of(2), CM.indentUnit.of("  "), CM.tooltips({ position: "fixed" }),
      CM.closeBrackets(), CM.indentOnInput(), findings, pointed,
      area.placeholder ? CM.placeholder(area.placeholder) : [],
      area.dataset.editor === "yaml" ? yaml : cel,
      area.dataset.completions && !locked ? CM.autocompletion({ override: [completing(area)], maxRenderedOptions: LONGEST_LIST, icons: false }) : [],
      // Tab is not bound: it leaves the editor, as it leaves every other field.
      CM.keymap.of([...CM.closeBracketsKeymap, ...CM.completionKeymap, ...CM.historyKeymap, ...CM.defaultKeymap]),
      CM.EditorView.contentAttributes.of(attributes(area, box)),
      CM.EditorView.updateListener.of((update) => {
        if (update.focusChanged && update.view.hasFocus) last = area;
        if (!update.docChanged) return;
        area.value = update.state.doc.toString();
        checks.get(area)?.();
        area.dispatchEvent(new Event("input", { bubbles: true }));
      }),
      CM.EditorView.domEventHandlers({ blur: () => { area.dispatchEvent(new Event("change", { bubbles: true })); } }),
    ];
    const view = new CM.EditorView({ state: CM.EditorState.create({ doc: area.value, extensions }), parent: frame });
    views.set(area, view);
    for (const label of area.labels ?? []) label.addEventListener("click", (event) => { event.preventDefault(); view.focus(); });
    for (const label of [...(area.labels ?? [])]) label.removeAttribute("for");
    area.required = false; // an unseen field cannot be asked to be filled: the server says so
    area.hidden = true;
    area.after(frame, box);
    if (area.autofocus) view.focus();
    if (area.dataset.diagnostics && !locked) {
      checks.set(area, checker(area, view, box));
      if (area.value.trim()) checks.get(area)(0);
    }
  };
  const enhanceAll = (root = document) => root.querySelectorAll("textarea[data-editor]").forEach(enhance);

  const set = (area, text) => {
    const view = views.get(area);
    if (view && view.state.doc.toString() !== text) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
  };
  window.Editors = {
    of: (area) => views.get(area),
    set,
    check: (area) => checks.get(area)?.(0),
    last: () => (last?.isConnected ? last : document.querySelector("textarea[data-editor]")),
    insert: (text) => {
      const view = views.get(window.Editors.last());
      if (!view || view.state.readOnly) return;
      view.dispatch(view.state.replaceSelection(text), { scrollIntoView: true, userEvent: "input" });
      view.focus();
    },
  };
  enhanceAll();
  document.addEventListener("manciple:merged", () => enhanceAll());
  // A browser that goes back may fill in what was typed before.
  window.addEventListener("pageshow", () => document.querySelectorAll("textarea[data-editor]").forEach((area) => set(area, area.value)));
  document.addEventListener("reset", (event) => setTimeout(() => event.target.querySelectorAll("textarea[data-editor]").forEach((area) => set(area, area.value))));
})();
