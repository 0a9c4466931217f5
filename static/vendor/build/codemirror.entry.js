// What the pages' editors are made of, under one name: window.CodeMirror. No more than they use: it is the largest file
// that a page loads.
export { EditorState, StateEffect, StateField } from "@codemirror/state";
export { Decoration, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers, placeholder, tooltips } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { HighlightStyle, StreamLanguage, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
export { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, startCompletion } from "@codemirror/autocomplete";
export { tags } from "@lezer/highlight";
