"use strict";
(() => {
  const root = document.documentElement;
  const framed = window.parent !== window;
  let outer = null;
  try { outer = framed ? window.parent.document : null; } catch { outer = null; }

  // Airflow's own switch of light and dark goes before the machine's.
  const dress = () => {
    const said = outer && (outer.documentElement.style.colorScheme || outer.documentElement.className);
    const theme = /\b(dark|light)\b/.exec(said || "");
    if (theme) root.dataset.theme = theme[1];
  };
  dress();
  if (outer) new MutationObserver(dress).observe(outer.documentElement, { attributes: true });

  // Airflow's frame lets no link out; one of the page around it goes there.
  const leave = (url) => {
    if (!outer) { window.location.assign(url); return; }
    const link = outer.createElement("a");
    link.href = url;
    outer.body.append(link);
    link.click();
    link.remove();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[target=_top]");
    if (link && outer && !(event.ctrlKey || event.metaKey || event.shiftKey)) {
      event.preventDefault();
      leave(link.href);
    }
  });

  // A page that shows what goes on is fetched again while somebody looks, and put in place of itself.
  const every = Number(document.body.dataset.refresh || 0) * 1000;
  const state = (box) => ({ left: box.scrollLeft, top: box.scrollTop });
  const renew = async () => {
    const note = document.getElementById("stale");
    try {
      const answer = await fetch(window.location.href, { credentials: "same-origin", cache: "no-store" });
      const text = await answer.text();
      if (answer.status === 401) throw new Error("you are no longer logged in");
      // Only what is put in: the style of the new page has a number that this page's policy does not know.
      const part = text.slice(text.indexOf("<main>"), text.lastIndexOf("</main>"));
      const fresh = new DOMParser().parseFromString(part, "text/html").querySelector("main");
      const main = document.querySelector("main");
      if (!fresh || !main) throw new Error(`it was answered with ${answer.status}`);
      const chosen = window.getSelection();
      if (chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode)) return;
      const boxes = [...main.querySelectorAll(".box")].map(state);
      const open = new Set([...main.querySelectorAll("details[open]")].map((one) => one.id));
      const focused = main.contains(document.activeElement) ? document.activeElement.id : "";
      main.replaceChildren(...fresh.childNodes);
      main.querySelectorAll(".box").forEach((box, at) => {
        if (boxes[at]) { box.scrollLeft = boxes[at].left; box.scrollTop = boxes[at].top; }
      });
      main.querySelectorAll("details[id]").forEach((one) => { one.open = open.has(one.id); });
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      if (note) note.hidden = true;
    } catch (why) {
      if (note) {
        note.querySelector("span").textContent = why instanceof Error ? why.message : String(why);
        note.hidden = false;
      }
    }
  };
  const go = async () => {
    if (!document.hidden) await renew();
    window.setTimeout(go, every);
  };
  if (every) window.setTimeout(go, every);

  // What the form says is asked of Airflow itself, which checks the user's rights and each value.
  const form = document.getElementById("ask");
  if (form) {
    const said = document.getElementById("said");
    const button = form.querySelector("button");
    button.disabled = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      said.hidden = true;
      const rows = form.elements.rows.value.trim();
      const conf = {
        checkpoint: `${form.dataset.job} ${form.elements.start.value}`,
        rows: rows === "" ? null : Number(rows),
        note: form.elements.note.value,
      };
      try {
        const answer = await fetch(form.dataset.runs, {
          method: "POST",
          credentials: "same-origin",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ logical_date: null, conf }),
        });
        const body = await answer.json();
        if (!answer.ok) {
          const detail = typeof body.detail === "string" ? body.detail : JSON.stringify(body.detail ?? body);
          throw new Error(`Airflow answered with ${answer.status}: ${detail}`);
        }
        leave(`${form.dataset.dag}/runs/${encodeURIComponent(body.dag_run_id)}`);
      } catch (why) {
        said.querySelector("span").textContent = why instanceof Error ? why.message : String(why);
        said.hidden = false;
        button.disabled = false;
      }
    });
  }
})();
