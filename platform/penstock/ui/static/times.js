"use strict";
// Show times in the zone of who reads: Airflow's own switch goes before the browser's. UTC stands in what is pointed at.
const times = (() => {
  const zone = (() => {
    const own = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
    try {
      const said = window.parent !== window && window.parent.localStorage.getItem("timezone");
      const chosen = said ? String(said).replace(/^"|"$/g, "") : own;
      return new Intl.DateTimeFormat("en", { timeZone: chosen }).resolvedOptions().timeZone;
    } catch { return own; }
  })();
  const parts = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  });
  const shown = (ms) => {
    const at = Object.fromEntries(parts.formatToParts(new Date(ms)).map((one) => [one.type, one.value]));
    return `${at.year.padStart(4, "0")}-${at.month}-${at.day} ${at.hour}:${at.minute}:${at.second}`;
  };
  // A time inside a text, such as the label of an option, which holds no elements.
  const moments = /(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)Z/g;
  const relative = new Intl.RelativeTimeFormat("en");
  const age = (ms) => {
    const seconds = Math.round((ms - Date.now()) / 1000);
    const [unit, size] = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]].find(([, one]) => Math.abs(seconds) >= one) || ["second", 1];
    return relative.format(Math.trunc(seconds / size), unit);
  };
  const dress = (root) => {
    for (const one of root.querySelectorAll("time[datetime]")) {
      const ms = Date.parse(one.getAttribute("datetime"));
      if (Number.isNaN(ms)) continue;
      one.textContent = shown(ms);
      one.title = `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC, ${age(ms)}`;
    }
    for (const one of root.querySelectorAll(".dated")) {
      const texts = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        texts.currentNode.data = texts.currentNode.data.replace(moments, (_, day, time) => shown(Date.parse(`${day}T${time}Z`)));
      }
    }
  };
  const said = document.getElementById("zone");
  if (said) said.textContent = zone === "UTC" ? "All times are UTC." : `Times are those of ${zone}; point at one for UTC.`;
  dress(document);
  return { zone, shown, dress };
})();
