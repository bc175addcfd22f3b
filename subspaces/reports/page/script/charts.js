// Charts: plotly draws them, a list of check boxes is the legend, so that it works by keyboard and wraps.

// Told apart by colour-blind readers and on both grounds; dash and symbol differ too.
const PALETTES = {
  light: ["#0072b2", "#c44e00", "#00785a", "#a8327d", "#7a6200", "#4b4f57"],
  dark: ["#56b4e9", "#f0a04b", "#3ccf9f", "#e79ac8", "#e8dc5a", "#c3c8d0"],
};
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x"];
const DASHES = { dash: "6 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3" };
const INK = {
  light: { text: "#1b1e24", muted: "#59606b", grid: "#e4e7eb", ground: "#ffffff" },
  dark: { text: "#e6e8ec", muted: "#a3abb8", grid: "#2d323b", ground: "#1e2127" },
};
const theme = () => (isDark() ? "dark" : "light");
const ink = () => INK[theme()];
const colour = (index) => PALETTES[theme()][index % PALETTES.light.length];
const symbol = (index) => SYMBOLS[(index + Math.floor(index / SYMBOLS.length)) % SYMBOLS.length]; // then other pairs
const faint = (hex) => `rgba(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(",")},0.12)`;
const touch = matchMedia("(pointer: coarse)").matches;
const ZOOM = touch ? "The buttons above the chart zoom." : "Drag to zoom, double-click to zoom out.";

const CONFIG = {
  responsive: true,
  displaylogo: false,
  displayModeBar: touch ? true : "hover",
  showTips: false,
  modeBarButtons: [["toImage", "zoomIn2d", "zoomOut2d", "resetScale2d"]], // nothing that leaves the page
  showSendToCloud: false,
};

function frame(title) {
  return {
    title: { text: title, font: { size: 13, color: ink().muted }, standoff: 10 },
    gridcolor: ink().grid, linecolor: ink().muted, tickcolor: ink().grid, zeroline: false, automargin: true,
    tickfont: { size: 12, color: ink().muted },
  };
}

function layout(more) {
  return {
    font: { family: "system-ui, sans-serif", size: 13, color: ink().text },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 56, r: 12, t: 28, b: 46 }, showlegend: false,
    dragmode: touch ? false : "zoom", // a finger scrolls the page
    hoverlabel: { bgcolor: ink().ground, bordercolor: ink().muted, font: { color: ink().text, size: 13 } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: ink().muted, activecolor: ink().text },
    ...more,
  };
}

// Plotly reads some markup in its texts; names from the data are shown as they are.
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

// The drawing itself says nothing to a screen reader; its buttons, its caption and its table do.
function draw(host, traces, more) {
  Plotly.react(host, traces, layout(more), CONFIG).then(() => {
    host.querySelectorAll(".main-svg").forEach((picture) => picture.setAttribute("aria-hidden", "true"));
  });
}

// One box for all curves at a point, where there is room for it.
const hovering = (visible) => (visible.length > 9 || innerWidth < 600 ? "closest" : "x unified");

// A curve with its band over seeds; `style`: { index, dash, symbol, band }.
function curve(name, x, mean, std, style, hover) {
  const paint = colour(style.index);
  const line = {
    type: "scatter", mode: style.symbol ? "lines+markers" : "lines", x, y: mean, customdata: std,
    line: { color: paint, dash: style.dash, width: 2 }, marker: { color: paint, symbol: style.symbol, size: 6 },
    meta: plain(name), hovertemplate: hover,
  };
  if (!std || style.band === false) return [line];
  const [above, below] = [mean.map((m, i) => m + std[i]), mean.map((m, i) => m - std[i])];
  const band = {
    type: "scatter", mode: "lines", x: [...x, ...[...x].reverse()], y: [...above, ...below.reverse()],
    line: { width: 0 }, fill: "toself", fillcolor: faint(paint), hoverinfo: "skip",
  };
  return [band, line];
}

function swatch(style) {
  const stroke = { stroke: colour(style.index), "stroke-width": 2.5, "stroke-dasharray": DASHES[style.dash] ?? null };
  const line = style.dash ? [drawing("line", { x1: 0, y1: 7, x2: 30, y2: 7, ...stroke })] : [];
  const mark = style.symbol ? [drawing("circle", { cx: 15, cy: 7, r: 3.4, fill: colour(style.index) })] : [];
  return drawing("svg", { width: 30, height: 14, "aria-hidden": "true" }, ...line, ...mark);
}

// A chart with its legend and its numbers, or several with one legend; returns what draws it anew.
// `series()` returns [{ name, style, traces, off }], `more(at, visible)` the layout of each chart.
function chart(figure, { label, caption, series, more, names = [label], table: tableOf }) {
  const hidden = new Set(series().filter((one) => one.off).map((one) => one.name));
  const legend = el("fieldset", { class: "legend" });
  const plots = names.map((name) => el("div", { class: "chart", role: "group", "aria-label": name }));
  const text = el("figcaption");
  const below = numbers(tableOf);

  function box(one, all) {
    const input = el("input", { type: "checkbox", checked: !hidden.has(one.name) });
    input.addEventListener("change", () => {
      if (input.checked) hidden.delete(one.name); else hidden.add(one.name);
      plot(all);
    });
    return el("label", {}, input, swatch(one.style), one.name);
  }
  function plot(all) {
    const visible = all.filter((one) => !hidden.has(one.name));
    plots.forEach((host, at) => {
      const traces = visible.flatMap((one) => (plots.length > 1 ? one.traces[at] : one.traces));
      draw(host, traces, more(at, visible));
    });
  }
  function update() {
    const all = series();
    const boxes = all.length > 1 ? all.map((one) => box(one, all)) : [];
    legend.replaceChildren(el("legend", { class: "hidden" }, "Shown in the chart: " + label), ...boxes);
    text.textContent = typeof caption === "function" ? caption() : caption;
    plot(all);
    below.update();
  }
  const together = el("div", { class: plots.length > 1 ? "pair" : null }, ...plots);
  figure.replaceChildren(legend, together, text, below.element);
  themed.push(update);
  return update;
}
