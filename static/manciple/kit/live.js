// The page's line to the server: hears which parts are out of date, and says so when it hears nothing.
// Fires `manciple:notice` with what the person asked to be told, and `manciple:changed` on document with {revision, topics: Set, everything}. Pages answer by fetching those parts: they
// fire `manciple:owing` while something that changed is not on the page yet, and `manciple:merged` when it is; its detail
// may name the elements to look in, {within}, where that need not be the whole page.
//
// Signed out elsewhere, a page is loaded again, and asks to sign in. One where somebody has typed something stays
// (`manciple:leaving` was cancelled) until they have signed in in another tab.
//
// The server gives a sign of life every five seconds, with how far what it tells may be behind. So a server that hangs
// and a line that was lost without a word are found out: nobody tells of those.
(() => {
  const sign = document.getElementById("live");
  if (!sign) return;
  const word = sign.querySelector(".word");
  const banner = document.getElementById("stopped"), aloud = document.getElementById("line");
  const FIRST_WAIT = 500, LONGEST_WAIT = 5000; // milliseconds between attempts to reconnect
  const BEAT = 5000, SILENCE = 12000; // milliseconds between two signs of life; without one after which the page says so
  const WORTH_TELLING = 2000; // milliseconds of lag
  const KNOWN = 24; // signs of life by whose quickest the way of the next is judged
  let revision = Number(sign.dataset.revision);
  let wait = FIRST_WAIT;
  let line = null, begun = 0; // the socket, and when it was asked for
  let heard = Date.now(); // last, by whatever line; the page itself was the first
  let lost = null; // when the line broke: what is on the page is as old as this
  let behind = 0; // milliseconds, by the last sign of life
  let ways = []; // of the last signs of life: this page's clock less the server's
  let owed = null; // since when something that changed is not on the page
  let due = null; // the next attempt
  let out = false; // signed out, with something typed

  const age = (from) => {
    const seconds = Math.round((Date.now() - from) / 1000);
    return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  };
  const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const time = (at) => new Date(at).toLocaleTimeString("en-GB", { timeZone: document.documentElement.dataset.zone });
  const tellLive = (lag) => {
    const late = lag >= WORTH_TELLING;
    sign.dataset.state = late ? "late" : "live";
    put(word, late ? `${Math.round(lag / 1000)} s late` : "Live");
    sign.title = late ? "The page shows the cluster as it was then" : "";
    if (!banner.hidden) { // written with every sign of life, it would have the page's style looked at each time
      put(aloud, "Live updates are back.");
      banner.hidden = true;
    }
  };
  const tellStopped = (from) => {
    sign.dataset.state = "stopped";
    put(word, "Stopped");
    sign.title = `Since ${time(from)}`;
    banner.hidden = false;
    put(banner.querySelector("b"), `Live updates stopped ${age(from)} ago.`);
    put(banner.querySelector("span"), `You see the cluster as it was at ${time(from)}. Trying again.`);
    put(aloud, `Updates stopped at ${time(from)}.`); // once: the seconds that go by are not said
  };
  const tellSignedOut = () => {
    sign.dataset.state = "stopped";
    put(word, "Signed out");
    banner.hidden = false;
    put(banner.querySelector("b"), "You are signed out.");
    const link = Object.assign(document.createElement("a"), {
      href: sign.dataset.signIn, target: "_blank", className: "link", textContent: "Sign in in another tab",
    });
    banner.querySelector("span").replaceChildren(link, ", then send this form.");
    put(aloud, "You are signed out.");
  };
  const signedOut = () => {
    if (document.dispatchEvent(new CustomEvent("manciple:leaving", { cancelable: true }))) { location.reload(); return; }
    if (!out) tellSignedOut();
    out = true;
    clearTimeout(due);
    due = setTimeout(connect, LONGEST_WAIT);
  };
  document.addEventListener("manciple:signed-out", signedOut);
  // What is sent now would be lost on the way to the page that asks to sign in.
  document.addEventListener("submit", (event) => {
    if (!out || event.target.method === "get") return;
    event.preventDefault();
    event.stopImmediatePropagation();
    banner.querySelector("a").focus();
  }, true);
  // As old as what is slowest: the server, the way, the page itself, or a sign of life that should have come.
  const lag = () => {
    const silent = Date.now() - heard - BEAT;
    return Math.max(behind, silent, owed === null ? 0 : Date.now() - owed);
  };
  const tell = () => {
    if (out) return;
    if (lost !== null) { tellStopped(lost); return; }
    if (!sign.dataset.state) return; // nothing has been heard yet
    const now = lag();
    if (now >= SILENCE) tellStopped(Date.now() - now); else tellLive(now);
  };

  const hear = (message) => {
    heard = Date.now();
    lost = null;
    if (out) {
      out = false;
      change({ revision, topics: [], everything: true });
    }
    wait = FIRST_WAIT;
    sign.dataset.state ||= "live";
    if ("notice" in message) { document.dispatchEvent(new CustomEvent("manciple:notice", { detail: message.notice })); return; }
    if (!("beat" in message)) { change(message); return; }
    const way = performance.now() - message.at * 1000;
    ways = [...ways, way].slice(-KNOWN);
    behind = message.beat * 1000 + way - Math.min(...ways);
  };
  const change = ({ revision: now, topics, everything }) => {
    revision = Math.max(revision, now);
    if (topics.length || everything) document.dispatchEvent(new CustomEvent("manciple:changed", {
      detail: { revision: now, topics: new Set(topics), everything: Boolean(everything) },
    }));
  };
  const again = () => {
    lost ??= heard;
    behind = 0; ways = [];
    tell();
    clearTimeout(due);
    due = setTimeout(connect, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  };
  const connect = () => {
    due = null;
    const url = new URL(sign.dataset.url, location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    url.searchParams.set("after", revision);
    const socket = line = new WebSocket(url);
    begun = Date.now();
    socket.addEventListener("message", (event) => { if (socket === line) { hear(JSON.parse(event.data)); tell(); } });
    socket.addEventListener("close", (event) => {
      if (socket !== line) return;
      line = null;
      if (event.code === 4401) signedOut(); else again();
    });
  };
  // A line on which nothing comes is given up: what is dead without a word stays so, and a server that hangs answers the
  // next one when it is back.
  setInterval(() => {
    if (line && Date.now() - Math.max(heard, begun) >= SILENCE) {
      const silent = line;
      line = null;
      silent.close();
      again();
    }
    tell();
  }, 1000);
  addEventListener("online", () => { if (due !== null) { clearTimeout(due); connect(); } });
  document.addEventListener("manciple:owing", () => { owed ??= Date.now(); });
  document.addEventListener("manciple:merged", () => { owed = null; });
  connect();
})();
