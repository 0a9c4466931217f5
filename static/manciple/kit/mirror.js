// On a page that draws its parts by itself: keeps the line true that says whether the mirrored cluster answers. Other
// pages merge it as one of their parts (parts.js).
document.addEventListener("manciple:changed", async ({ detail }) => {
  const line = document.getElementById("mirror-line");
  if (!detail.everything && !detail.topics.has(line.dataset.topics)) return;
  try {
    const answer = await fetch(line.dataset.url);
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(line.id);
    document.getElementById(line.id).replaceWith(fresh);
  } catch { /* no network: live.js says so, and tells everything when it is back */ }
});
