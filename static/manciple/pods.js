// The pod pages keep themselves true: when a topic that the page names is touched, its live part is fetched again and
// replaced where it differs. Topics that end in ":" stand for all that begin so.
(() => {
  const GATHERING = 150, REST = 1000; // milliseconds: before the first fetch, and between two
  let due = null;
  let last = 0;
  const part = () => document.getElementById("live-part");
  const concerns = (topics) => {
    const wanted = part().dataset.topics.split(" ");
    return [...topics].some((topic) => wanted.some((one) => topic === one || (one.endsWith(":") && topic.startsWith(one))));
  };
  const redraw = async () => {
    due = null;
    last = Date.now();
    const answer = await fetch(location.href);
    if (answer.status === 404) { location.reload(); return; } // the pod is gone: the server's own page says so
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live-part");
    if (!fresh || fresh.innerHTML === part().innerHTML) return;
    const focused = part().contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const said = document.getElementById("h-why")?.textContent;
    part().replaceWith(fresh);
    if (focused) fresh.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    const says = document.getElementById("h-why")?.textContent;
    const aloud = document.getElementById("said");
    if (aloud && says !== said) aloud.textContent = says ?? "It waits no longer.";
  };
  document.addEventListener("manciple:changed", ({ detail }) => {
    if (!detail.everything && !concerns(detail.topics)) return;
    due ??= setTimeout(redraw, Math.max(GATHERING, last + REST - Date.now()));
  });
})();
