// A terminal in a container, on the page of a pod: `pods/exec` by the session of this browser, in the messages of
// v5.channel.k8s.io. Each begins with the number of its channel.
(() => {
  const place = document.getElementById("terminal"), form = document.getElementById("terminal-form");
  if (!place || !form) return;
  const sheet = document.getElementById("terminal-sheet"), state = document.getElementById("terminal-state");
  const end = document.getElementById("terminal-end"), begin = form.querySelector("button");
  const STDIN = 0, STDOUT = 1, STDERR = 2, STATUS = 3, RESIZE = 4;
  const PROTOCOL = "v5.channel.k8s.io";
  const SHELL = "command -v bash >/dev/null && exec bash || exec sh";
  const ALIVE = 30_000; // milliseconds after which the size is sent again, so that no proxy takes the line for dead
  const PIECE = 32_768; // characters of one message
  const HELD = 4_000_000; // bytes that wait to be drawn; beyond it output is left out
  let terminal = null, fit = null; // made for the first session
  let line = null; // the socket

  const say = (text) => { if (state.textContent !== text) state.textContent = text; };
  const encoder = new TextEncoder();
  const send = (channel, bytes) => {
    if (line?.readyState !== WebSocket.OPEN) return;
    const message = new Uint8Array(bytes.length + 1);
    message[0] = channel;
    message.set(bytes, 1);
    line.send(message);
  };
  const sendSize = () => send(RESIZE, encoder.encode(JSON.stringify({ Width: terminal.cols, Height: terminal.rows })));

  // Looks: those of the page, in both themes. Colours of programs are brought to a contrast that can be read.
  const looks = () => {
    const style = getComputedStyle(place), colour = (name) => style.getPropertyValue(name).trim();
    return {
      background: style.backgroundColor, foreground: style.color, cursor: style.color,
      cursorAccent: style.backgroundColor, selectionBackground: style.outlineColor || colour("--text"),
    };
  };
  // The library adds style elements, which the page's policy allows with its nonce alone.
  const nonce = document.querySelector('meta[name="csp-nonce"]')?.content ?? "";
  const openWithNonce = () => {
    document.createElement = (name, options) => {
      const element = Document.prototype.createElement.call(document, name, options);
      if (name === "style") element.nonce = nonce;
      return element;
    };
    try { terminal.open(place); } finally { delete document.createElement; }
  };
  const make = () => {
    const style = getComputedStyle(place);
    terminal = new Xterm.Terminal({
      cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
      fontFamily: style.fontFamily, fontSize: parseFloat(style.fontSize), theme: looks(), minimumContrastRatio: 4.5,
      scrollback: 5000, screenReaderMode: true,
    });
    fit = new Xterm.FitAddon();
    terminal.loadAddon(fit);
    openWithNonce();
    terminal.attachCustomKeyEventHandler((event) => {
      if (event.key !== "F6") return true;
      if (event.type === "keydown") (end.hidden ? begin : end).focus();
      event.preventDefault();
      return false;
    });
    terminal.onData((text) => {
      for (let start = 0; start < text.length; start += PIECE) send(STDIN, encoder.encode(text.slice(start, start + PIECE)));
    });
    terminal.onBinary((text) => send(STDIN, Uint8Array.from(text, (one) => one.charCodeAt(0) & 255)));
    terminal.onResize(sendSize);
    new ResizeObserver(() => { if (!place.hidden) fit.fit(); }).observe(place);
    new MutationObserver(() => { terminal.options.theme = looks(); })
      .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  };

  const outcome = (status) => {
    const code = status.details?.causes?.find((one) => one.reason === "ExitCode")?.message;
    if (status.status === "Success") return "The command has ended.";
    return code ? `The command has ended with exit code ${code}.` : `${status.message}`;
  };
  const connect = () => {
    place.hidden = false;
    sheet.dataset.keep = ""; // what the page learns meanwhile does not take the terminal away
    if (terminal) terminal.reset(); else make();
    fit.fit();
    const url = new URL(place.dataset.url, location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    url.searchParams.set("container", form.elements.container.value);
    for (const word of ["sh", "-c", form.elements.command.value.trim() || SHELL]) url.searchParams.append("command", word);
    for (const name of ["stdin", "stdout", "tty"]) url.searchParams.set(name, "true");
    const own = line = new WebSocket(url, PROTOCOL);
    own.binaryType = "arraybuffer";
    let status = null, held = 0, skipped = false, asked = false;
    const alive = setInterval(() => { if (own === line) sendSize(); }, ALIVE);
    say("Connecting…");
    own.addEventListener("open", () => {
      say("");
      sendSize();
      terminal.focus();
    });
    own.addEventListener("message", ({ data }) => {
      const message = new Uint8Array(data), channel = message[0], content = message.subarray(1);
      if (channel === STATUS) {
        status = JSON.parse(new TextDecoder().decode(content));
      } else if ((channel === STDOUT || channel === STDERR) && content.length) {
        if (state.textContent === "") say("Connected");
        if (held > HELD) { skipped = true; return; }
        if (skipped) { skipped = false; terminal.write("\r\n[output was left out]\r\n"); }
        held += content.length;
        terminal.write(content, () => { held -= content.length; });
      }
    });
    own.addEventListener("close", () => {
      clearInterval(alive);
      if (own !== line) return;
      line = null;
      if (status?.code === 401) { location.reload(); return; } // signed out: the server asks to sign in
      const text = status ? outcome(status) : asked ? "Disconnected." : "The connection was lost.";
      say(text);
      terminal.write(`\r\n[${text}]\r\n`);
      show(false);
      if (place.contains(document.activeElement)) begin.focus();
    });
    end.onclick = () => { asked = true; own.close(); };
    show(true);
  };
  const show = (open) => {
    end.hidden = !open;
    begin.hidden = open;
    form.elements.container.disabled = form.elements.command.disabled = open;
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!line) connect();
  });
})();
