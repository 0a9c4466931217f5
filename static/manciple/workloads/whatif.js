// The what-if page: the rehearsal is asked for in the background, with how far it is and a way to stop it. Without
// script the form is sent as any other.
(() => {
  const form = document.getElementById("whatif"), running = document.getElementById("running");
  const bar = running.querySelector("progress"), word = running.querySelector(".word"), stop = document.getElementById("stop");
  const PARTS = ["options", "result"], PAUSE = 300;
  const headers = () => ({ "X-CSRFToken": document.body.dataset.csrf });
  let going = null;

  const show = (page) => {
    for (const id of PARTS) {
      const fresh = page.getElementById(id);
      if (fresh) document.getElementById(id).replaceWith(fresh);
    }
    // Nothing moves where the answer is in sight beside the form; on a phone it is far above the button.
    const verdict = document.getElementById("h-verdict");
    verdict?.focus({ preventScroll: true });
    verdict?.closest("section").scrollIntoView({ block: "nearest" });
    const said = document.querySelector("#result h2, #result h3");
    if (said) document.getElementById("said").textContent = said.textContent;
  };
  const watch = async (run, of) => {
    while (going?.run === run) {
      await new Promise((done) => { setTimeout(done, PAUSE); });
      if (going?.run !== run) return;
      running.hidden = false;
      try {
        const { placed } = await (await fetch(`${form.dataset.progress}?run=${run}`)).json();
        if (going?.run !== run) return;
        if (placed === null) { bar.removeAttribute("value"); continue; }
        bar.max = of; bar.value = Math.min(placed, of);
        word.textContent = `${placed} of ${of} placed`;
      } catch { /* the answer itself will say what is wrong */ }
    }
  };
  // Back leads to the answer before, which the server draws again.
  let shown = location.search;
  const remember = (answered) => {
    const url = new URL(answered, location.href);
    if (url.search !== shown) history.pushState(null, "", url);
    shown = location.search;
  };
  // Not reloaded: then the browser would put back the values that stand in the form now.
  addEventListener("popstate", () => { if (location.search !== shown) location.replace(location.href); });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    going?.abort.abort();
    const run = crypto.getRandomValues(new Uint32Array(2)).join("-"), abort = new AbortController();
    going = { run, abort };
    const data = new FormData(form), sent = new URLSearchParams(data).toString();
    const post = form.method === "post";
    const fields = new URLSearchParams([...data].filter(([name, value]) => value !== "" && name !== "csrfmiddlewaretoken"));
    const address = `${form.getAttribute("action")}?${fields}`;
    document.getElementById("result").setAttribute("aria-busy", "true");
    word.textContent = "Rehearsing"; bar.removeAttribute("value");
    watch(run, Number(data.get("replicas")) || 1);
    try {
      data.set("run", run);
      const asked = post
        ? fetch(form.getAttribute("action"), { method: "POST", body: data, headers: headers(), signal: abort.signal })
        : fetch(`${address}&run=${run}`, { signal: abort.signal });
      const answer = await asked;
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      form.dispatchEvent(new CustomEvent("form:answered", { bubbles: true, detail: sent }));
      remember(post ? document.getElementById("result").dataset.address : address);
    } catch (failure) {
      if (failure.name !== "AbortError") form.submit();
    } finally {
      if (going?.run === run) { going = null; running.hidden = true; document.getElementById("result").removeAttribute("aria-busy"); }
    }
  });
  stop.addEventListener("click", () => {
    if (going) fetch(`${form.dataset.progress}?run=${going.run}`, { method: "POST", headers: headers() });
  });
})();
