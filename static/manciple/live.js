// The page's line to the server: hears which parts are out of date, and says so when it hears nothing.
// Fires `manciple:changed` on document with {revision, topics: Set, everything}. Pages answer by fetching those parts.
(() => {
  const sign = document.getElementById("live");
  if (!sign) return;
  const word = sign.querySelector(".word");
  const banner = document.getElementById("stopped");
  const FIRST_WAIT = 500, LONGEST_WAIT = 5000; // milliseconds between attempts to reconnect
  let revision = Number(sign.dataset.revision);
  let wait = FIRST_WAIT;
  let lost = null; // when the line broke: what is on the page is as old as this
  let clock = null;

  const age = (since) => {
    const seconds = Math.round((Date.now() - since) / 1000);
    return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  };
  const tellAge = () => {
    banner.hidden = false;
    banner.querySelector("b").textContent = `Live updates stopped ${age(lost)} ago.`;
    banner.querySelector("span").textContent = `You see the cluster as it was at ${new Date(lost).toLocaleTimeString("en-GB")}. Trying again.`;
  };
  const opened = () => {
    lost = null; wait = FIRST_WAIT;
    clearInterval(clock); clock = null;
    banner.hidden = true;
    sign.dataset.state = "live"; word.textContent = "Live";
  };
  const broken = () => {
    sign.dataset.state = "stopped"; word.textContent = "Stopped";
    lost ??= Date.now();
    clock ??= setInterval(tellAge, 1000);
    tellAge();
  };
  const connect = () => {
    const url = new URL(sign.dataset.url, location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    url.searchParams.set("after", revision);
    const socket = new WebSocket(url);
    socket.addEventListener("message", (event) => {
      const change = JSON.parse(event.data);
      opened();
      revision = Math.max(revision, change.revision);
      if (change.topics.length || change.everything) {
        document.dispatchEvent(new CustomEvent("manciple:changed", {
          detail: { revision: change.revision, topics: new Set(change.topics), everything: Boolean(change.everything) },
        }));
      }
    });
    socket.addEventListener("close", (event) => {
      if (event.code === 4401) { location.reload(); return; } // signed out: the server asks to sign in
      broken();
      setTimeout(connect, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    });
  };
  connect();
})();
