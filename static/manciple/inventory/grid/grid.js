// The device grid: one tab stop with arrow keys, tips, filters that dim and never reflow, the panel that floats beside the
// device that it describes, and live lines. Listeners stand on the grid, none on a tile.
// Without these modules the page still reads and filters: tiles, sizes and groups are links, the filters are a form.
import { enter, followKeys } from "./keyboard.js";
import { main } from "./page.js";
import { show } from "./panel.js";
import "./choose.js";
import "./filters.js";
import "./tip.js";
import "./live.js";

main.classList.add("scripted");
followKeys(show);
enter();
