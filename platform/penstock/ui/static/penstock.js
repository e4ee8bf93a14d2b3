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
  plots.draw(document);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.draw(document));
  if (outer) new MutationObserver(() => { dress(); plots.draw(document); }).observe(outer.documentElement, { attributes: true });

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

  // Only what is put in: the style of a new page has a number that this page's policy does not know.
  const fetched = async (url) => {
    const answer = await fetch(url, { credentials: "same-origin", cache: "no-store" });
    const text = await answer.text();
    if (answer.status === 401) throw new Error("you are no longer logged in");
    const part = text.slice(text.indexOf("<main>"), text.lastIndexOf("</main>"));
    const fresh = new DOMParser().parseFromString(part, "text/html").querySelector("main");
    if (!fresh) throw new Error(`it was answered with ${answer.status}`);
    return fresh;
  };

  // A page that shows what goes on is fetched again while somebody looks, and put in place of itself.
  const every = Number(document.body.dataset.refresh || 0) * 1000;
  const state = (box) => ({ left: box.scrollLeft, top: box.scrollTop });
  const renew = async () => {
    const note = document.getElementById("stale");
    try {
      const fresh = await fetched(window.location.href);
      const main = document.querySelector("main");
      const chosen = window.getSelection();
      if (chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode)) return;
      const boxes = [...main.querySelectorAll(".box")].map(state);
      const open = new Set([...main.querySelectorAll("details[open]")].map((one) => one.id));
      const old = document.getElementById("filter");
      if (old) fresh.querySelector("#filter")?.replaceWith(old);
      const focused = main.contains(document.activeElement) ? document.activeElement.id : "";
      main.replaceChildren(...fresh.childNodes);
      times.dress(main);
      plots.draw(main);
      main.querySelectorAll(".box").forEach((box, at) => {
        if (boxes[at]) { box.scrollLeft = boxes[at].left; box.scrollTop = boxes[at].top; }
      });
      main.querySelectorAll("details[id]").forEach((one) => { one.open = open.has(one.id); });
      narrow();
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

  // The server finds the jobs whose names have a text in them; the field outlives each renewal.
  const narrow = () => {
    const field = document.getElementById("filter");
    if (!field || !field.hidden) return;
    field.hidden = false;
    let timer = 0;
    field.addEventListener("input", () => {
      const query = new URLSearchParams(window.location.search);
      query.set("job", field.value);
      window.history.replaceState(null, "", `${window.location.pathname}?${query}`);
      window.clearTimeout(timer);
      timer = window.setTimeout(renew, 200);
    });
  };
  narrow();

  // What the form says is counted by the server, confirmed once, and asked of Airflow, which checks rights and values.
  const form = document.getElementById("ask");
  const numbered = (name) => {
    const text = form.elements[name].value.trim();
    return text === "" ? null : Number(text);
  };
  const asked = () => {
    const data = new FormData(form);
    return {
      checkpoint: `${form.dataset.job} ${data.get("start")}`,
      truncate_sinks: data.has("truncate"),
      partitions: numbered("partitions"),
      state: data.getAll("state").filter(Boolean),
      drop: data.getAll("drop"),
      rows: numbered("rows"),
      bytes: data.get("bytes"),
      files: numbered("files"),
      note: data.get("note"),
    };
  };
  let counting = 0;
  const count = async () => {
    const mine = ++counting;
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    const url = `${window.location.pathname}?${query}`;
    window.history.replaceState(null, "", url);
    const fresh = await fetched(url);
    if (mine !== counting) return null;
    document.getElementById("plan").replaceWith(fresh.querySelector("#plan"));
    times.dress(document.getElementById("ask"));
    return document.getElementById("plan");
  };
  const send = async (runs, conf, dag) => {
    const answer = await fetch(runs, {
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
    leave(`${dag}/runs/${encodeURIComponent(body.dag_run_id)}`);
  };
  const trying = async (work) => {
    const said = document.getElementById("said");
    if (said) said.hidden = true;
    try {
      await work();
    } catch (why) {
      if (!said) return;
      said.querySelector("span").textContent = why instanceof Error ? why.message : String(why);
      said.hidden = false;
    }
  };
  if (form) {
    const sure = document.getElementById("sure");
    const button = form.querySelector("button[type=submit]");
    const ready = () => {
      if (button) button.disabled = "refused" in document.getElementById("plan").dataset;
    };
    let timer = 0;
    form.addEventListener("input", () => {
      if (button) button.disabled = true;
      window.clearTimeout(timer);
      timer = window.setTimeout(() => trying(async () => { if (await count()) ready(); }), 250);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!sure) return;
      trying(async () => {
        const plan = await count();
        ready();
        if (!plan || button.disabled) return;
        document.getElementById("sure-says").replaceChildren(...[...plan.children].map((one) => one.cloneNode(true)));
        sure.showModal();
      });
    });
    if (sure) {
      document.getElementById("sure-no").addEventListener("click", () => sure.close());
      document.getElementById("sure-yes").addEventListener("click", () => { sure.close(); trying(() => send(form.dataset.runs, asked(), form.dataset.dag)); });
    }
    ready();
  }

  // Any other request has a page of its own, which says what it does: its button is the one question.
  const request = document.getElementById("request");
  if (request) {
    const button = request.querySelector("button");
    button.disabled = false;
    request.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      const conf = { job: request.dataset.job };
      for (const field of request.querySelectorAll("input[name], select[name]")) {
        const number = field.type === "number" || "number" in field.dataset;
        if (field.type === "checkbox") conf[field.name] = field.checked;
        else conf[field.name] = number && field.value.trim() === "" ? null : number ? Number(field.value) : field.value;
      }
      await trying(() => send(request.dataset.runs, conf, request.dataset.dag));
      button.disabled = false;
    });
  }
})();
