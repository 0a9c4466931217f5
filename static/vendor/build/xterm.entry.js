// What the terminal of a pod's page is made of, under one name: window.Xterm.
export { Terminal } from "@xterm/xterm";
export { FitAddon } from "@xterm/addon-fit";
