// A log that follows, on the page of a pod: read as it grows. Without a script it is shown as it was.
//
// What is kept are the last LONGEST characters. Each attempt to follow begins with the lines that the page shows, and
// replaces them: what was printed while the connection was lost is there then.
(() => {
  const log = document.getElementById("log-text"), follow = document.getElementById("follow");
  if (!log || !follow) return;
  const state = document.getElementById("log-state");
  const LONGEST = 2_000_000, CUT = 1_000_000; // characters
  const FIRST_WAIT = 1000, LONGEST_WAIT = 10_000; // milliseconds between attempts
  let reading = null; // what ends the attempt that runs
  let wait = FIRST_WAIT, due = null;

  const say = (text) => { if (state.textContent !== text) state.textContent = text; };
  const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  const toEnd = () => { log.scrollTop = log.scrollHeight; };
  const put = (text, afresh) => {
    const stay = !atEnd();
    if (afresh || !log.firstChild) log.textContent = text;
    else log.firstChild.appendData(text);
    if (log.firstChild?.length > LONGEST) {
      const end = log.textContent.indexOf("\n", log.firstChild.length - CUT) + 1;
      log.firstChild.deleteData(0, end || log.firstChild.length - CUT);
    }
    document.getElementById("log-empty")?.remove();
    if (!stay) toEnd();
  };

  const read = async () => {
    const own = reading = new AbortController();
    try {
      const answer = await fetch(log.dataset.url, { signal: own.signal });
      if (!answer.ok) {
        const told = await answer.json().catch(() => ({}));
        if (answer.status === 401) { location.reload(); return; } // signed out: the server asks to sign in
        if (answer.status < 500) { stop(told.message ?? "The log can no longer be read."); return; }
        throw new Error(told.message);
      }
      say("Following");
      wait = FIRST_WAIT;
      const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let afresh = true;
      for (;;) {
        const { value, done } = await pieces.read();
        if (done) break;
        if (value) { put(value, afresh); afresh = false; }
      }
      stop("The log has ended with the container.");
    } catch (error) {
      if (own.signal.aborted) return;
      say(`The connection was lost${error instanceof TypeError || !error.message ? "" : `: ${error.message}`}. Trying again…`);
      due = setTimeout(read, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  };
  const stop = (text) => {
    clearTimeout(due);
    reading?.abort();
    reading = null;
    follow.checked = false;
    say(text);
  };
  follow.closest("label").hidden = false;
  follow.addEventListener("change", () => {
    if (follow.checked) { toEnd(); read(); } else stop("");
  });
  addEventListener("online", () => { if (follow.checked) { clearTimeout(due); reading?.abort(); read(); } });
  toEnd();
})();
