// Fetches the page again and puts its new content in place; without this script the page reloads itself.
"use strict";
(() => {
  const said = document.getElementById("live");
  const button = document.getElementById("pause");
  const every = Number(document.documentElement.dataset.every) * 1000;
  let etag = null, paused = false, lost = false;
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    button.setAttribute("aria-pressed", String(paused));
  });
  async function refresh() {
    const answer = await fetch(location.pathname, { cache: "no-cache" });
    if (!answer.ok) throw new Error(String(answer.status));
    const tag = answer.headers.get("etag");
    if (tag && tag === etag) return;
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.querySelector("main"), fresh = next.querySelector("main");
    if (!fresh) throw new Error("no content");
    for (const open of main.querySelectorAll("details[id][open]")) {
      const same = fresh.querySelector("#" + CSS.escape(open.id));
      if (same) same.open = true;
    }
    const focused = document.activeElement, inside = main.contains(focused) ? focused : null;
    const label = inside && (inside.getAttribute("aria-label") || inside.getAttribute("href") || inside.textContent);
    main.replaceWith(document.adoptNode(fresh));
    if (label) {
      for (const one of fresh.querySelectorAll("a,summary,[tabindex]")) {
        if ((one.getAttribute("aria-label") || one.getAttribute("href") || one.textContent) === label) {
          one.focus({ preventScroll: true });
          break;
        }
      }
    }
    document.title = next.title;
    etag = tag;
  }
  async function turn() {
    if (!paused && !document.hidden) {
      try {
        await refresh();
        if (lost) said.textContent = "Connected again.";
        lost = false;
      } catch {
        if (!lost) said.textContent = "Connection lost: this is what was known before.";
        lost = true;
      }
    }
    setTimeout(turn, every);
  }
  setTimeout(turn, every);
})();
