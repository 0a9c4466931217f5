// What the pages' editors are made of, under one name: window.CodeMirror.
export { EditorState, StateEffect, StateField, Compartment, Prec } from "@codemirror/state";
export {
  EditorView, keymap, lineNumbers, placeholder, drawSelection, highlightActiveLine, highlightSpecialChars, tooltips, Decoration, hoverTooltip,
} from "@codemirror/view";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export {
  HighlightStyle, StreamLanguage, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting, syntaxTree,
} from "@codemirror/language";
export {
  autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, startCompletion, snippetCompletion,
} from "@codemirror/autocomplete";
export { linter, lintGutter, lintKeymap, setDiagnostics, forceLinting } from "@codemirror/lint";
export { yaml } from "@codemirror/lang-yaml";
export { tags } from "@lezer/highlight";
