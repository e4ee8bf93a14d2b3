"use strict";
// Draw the pictures of a page with uPlot; each is described by the JSON of its element, and renewed in place.
const plots = (() => {
  const drawn = new Map();
  // A variable of the style holds both colours; an element that wears it tells the one that counts.
  const colour = (name, share = 1) => {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const said = getComputedStyle(probe).color;
    probe.remove();
    return share === 1 ? said : said.replace("rgb(", "rgba(").replace(")", `, ${share})`);
  };
  const short = (value) => new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  const bytes = (value) => {
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    const at = value < 1 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10));
    return `${(value / 1024 ** at).toFixed(at ? 1 : 0)} ${names[at]}`;
  };
  const seconds = (value) => {
    const far = Math.abs(value);
    if (far < 120) return `${value.toFixed(far < 10 ? 1 : 0)} s`;
    return far < 7200 ? `${(value / 60).toFixed(0)} min` : `${(value / 3600).toFixed(1)} h`;
  };
  const moment = (value) => times.shown(value * 1000);
  const says = {
    ms: (value) => (Math.abs(value) < 10000 ? `${Math.round(value).toLocaleString("en")} ms` : seconds(value / 1000)),
    rows: (value) => Math.round(value).toLocaleString("en"),
    bytes, seconds, moment,
  };
  const ticks = { ...says, rows: short, moment: (value) => moment(value).slice(0, 16) };
  const days = (value) => moment(value).slice(0, 10);
  const hours = (value, apart) => moment(value).slice(11, apart < 60 ? 19 : 16);
  const dated = (_, all, __, ___, apart) => all.map((value, at) => {
    if (apart >= 86400) return days(value);
    const news = at === 0 || days(value) !== days(all[at - 1]);
    return news ? `${hours(value, apart)}\n${days(value)}` : hours(value, apart);
  });
  const halves = Array.from({ length: 50 }, (_, at) => 2 ** at);
  const hues = ["--bar", "--waits", "--good", "--bad", "--muted"];

  const summed = (series) => {
    const sums = [];
    let below = null;
    for (const one of series) {
      below = one.values.map((value, at) => (value === null ? null : value + (below ? below[at] ?? 0 : 0)));
      sums.push(below);
    }
    return sums;
  };
  const columns = (said) => [said.times, ...(said.stacked ? summed(said.series) : said.series.map((one) => one.values))];

  const options = (said, box) => {
    const line = colour("--line");
    const axis = { stroke: colour("--muted"), grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    return {
      width: box.clientWidth,
      height: 190,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), times.zone),
      cursor: { sync: { key: "batches" }, drag: { x: false, y: false } },
      // Of one moment uPlot itself would make an axis of years.
      scales: { x: { range: ({ data: [at] }) => (at.at(-1) > at[0] ? [at[0], at.at(-1)] : [at[0] - 30, at[0] + 30]) }, y: { range: (_, low, high) => (said.unit === "moment" ? [low, high > low ? high : low + 1] : [Math.min(0, low), high > 0 ? high * 1.05 : 1]) } },
      axes: [
        { ...axis, space: 80, values: dated },
        {
          ...axis,
          size: said.unit === "moment" ? 135 : 72,
          values: (_, all) => all.map(ticks[said.unit]),
          ...(said.unit === "bytes" ? { incrs: halves } : {}),
        },
      ],
      series: [
        { label: "batch", value: (_, at, __, index) => (index === null ? "–" : `${said.batches[index].toLocaleString("en")}, ${moment(at)}`) },
        ...said.series.map((one, place) => ({
          label: one.label,
          stroke: colour(hues[place % hues.length]),
          fill: said.stacked ? colour(hues[place % hues.length], 0.35) : undefined,
          width: 1.5,
          points: { show: said.times.length < 30, size: 5 },
          value: (_, __, ___, index) => (index === null || one.values[index] === null ? "–" : says[said.unit](one.values[index])),
        })),
      ],
      // The upper of two areas is drawn first, so that the lower one lies on it.
      bands: said.stacked ? said.series.slice(1).map((_, place) => ({ series: [place + 2, place + 1] })) : [],
    };
  };

  // Of what stood there before, the canvas is kept as long as the same lines are drawn: what is pointed at stays so.
  const draw = (main) => {
    if (typeof uPlot === "undefined") return;
    for (const figure of main.querySelectorAll(".plot")) {
      const said = JSON.parse(figure.dataset.plot);
      const box = figure.querySelector(".canvas");
      const look = [colour("--page"), said.unit, ...said.series.map((one) => one.label)].join("|");
      const before = drawn.get(figure.id);
      if (before && before.look === look && before.box.isConnected === false) {
        before.box.setAttribute("aria-label", box.getAttribute("aria-label"));
        box.replaceWith(before.box);
        Object.assign(before.said, said);
        said.series.forEach((one, at) => { before.said.series[at].values = one.values; });
        before.plot.setData(columns(said));
        continue;
      }
      if (before) before.plot.destroy();
      const own = { ...said, series: said.series.map((one) => ({ ...one })) };
      drawn.set(figure.id, { look, box, said: own, plot: new uPlot(options(own, box), columns(own), box) });
    }
  };
  window.addEventListener("resize", () => {
    for (const { plot, box } of drawn.values()) if (box.clientWidth) plot.setSize({ width: box.clientWidth, height: 190 });
  });
  return { draw };
})();
