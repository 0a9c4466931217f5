// The page of a pod: logs that follow. Without a script they are read as they are.
(() => {
  // Logs that follow: the last lines are asked for again every two seconds while the page is looked at.
  const log = document.getElementById("log-text"), follow = document.getElementById("follow"), PAUSE = 2000;
  if (log && follow) {
    const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const toEnd = () => { log.scrollTop = log.scrollHeight; };
    const read = async () => {
      if (!follow.checked) return;
      if (!document.hidden) {
        try {
          const answer = await fetch(log.dataset.url);
          const text = await answer.text();
          if (answer.ok && text !== log.textContent) {
            const stay = !atEnd();
            log.textContent = text;
            document.getElementById("log-empty")?.remove();
            if (!stay) toEnd();
          }
        } catch { /* no network: live.js says so */ }
      }
      setTimeout(read, PAUSE);
    };
    follow.closest("label").hidden = false;
    follow.addEventListener("change", () => { toEnd(); read(); });
    toEnd();
  }
})();
