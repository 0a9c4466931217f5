// The list of classes keeps its counts true: any change to a class, a slice or an allocation fetches it again.
(() => {
  const list = document.getElementById("classes");
  const COUNTED = ["pool:", "class:", "classes", "slices"];
  let due = null;
  const redraw = async () => {
    due = null;
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("classes");
    const focused = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    list.replaceChildren(...fresh.childNodes);
    if (focused) list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  };
  document.addEventListener("manciple:changed", ({ detail }) => {
    const counted = [...detail.topics].some((topic) => COUNTED.some((start) => topic.startsWith(start)));
    if (counted || detail.everything) due ??= setTimeout(redraw, 100);
  });
})();
