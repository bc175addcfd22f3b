// Charts: plotly draws them, a list of check boxes is the legend, so that it works by keyboard and wraps.

// Told apart by colour-blind readers and on both grounds; dash and symbol differ too.
const PALETTES = {
  light: ["#0072b2", "#c44e00", "#00785a", "#a8327d", "#7a6200", "#4b4f57"],
  dark: ["#56b4e9", "#f0a04b", "#3ccf9f", "#e79ac8", "#e8dc5a", "#c3c8d0"],
};
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x"];
const INK = {
  light: { text: "#1b1e24", muted: "#59606b", grid: "#e4e7eb", ground: "#ffffff" },
  dark: { text: "#e6e8ec", muted: "#a3abb8", grid: "#2d323b", ground: "#1e2127" },
};
const ink = () => INK[isDark() ? "dark" : "light"];
const colour = (index) => { const palette = PALETTES[isDark() ? "dark" : "light"]; return palette[index % palette.length]; };
const symbol = (index) => SYMBOLS[index % SYMBOLS.length];
const touch = matchMedia("(pointer: coarse)").matches;

const CONFIG = {
  responsive: true,
  displaylogo: false,
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

const faint = (hex) => `rgba(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(",")},0.12)`;

// A curve with its band over seeds; `style`: { index, dash, symbol }.
function curve(name, x, mean, std, style, hover) {
  const line = {
    x, y: mean, mode: style.symbol ? "lines+markers" : "lines", type: "scatter", meta: plain(name),
    line: { color: colour(style.index), dash: style.dash, width: 2 },
    marker: { color: colour(style.index), symbol: style.symbol, size: 6 },
    hovertemplate: hover ?? "%{y}<extra>%{meta}</extra>",
    ...(std ? { customdata: std, error_y: { visible: false } } : {}),
  };
  if (!std) return [line];
  const band = {
    x: [...x, ...[...x].reverse()],
    y: [...mean.map((m, i) => m + std[i]), ...mean.map((m, i) => m - std[i]).reverse()],
    type: "scatter", mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: faint(colour(style.index)), hoverinfo: "skip",
  };
  return [band, line];
}

function swatch(style) {
  const dash = { solid: null, dash: "6 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3" }[style.dash];
  const line = drawing("line", { x1: 0, y1: 7, x2: 30, y2: 7, stroke: colour(style.index), "stroke-width": 2.5, "stroke-dasharray": dash });
  const mark = style.symbol ? [drawing("circle", { cx: 15, cy: 7, r: 3.4, fill: colour(style.index) })] : [];
  return drawing("svg", { width: 30, height: 14, "aria-hidden": "true" }, ...(style.dash ? [line] : []), ...mark);
}

// A chart with its legend and its numbers. `series()` returns [{ name, style, traces }], `more(shown)` the layout.
function chart(figure, { label, caption, height = "", series, more, hosts = 1, table: tableOf = null, names = [] }) {
  const hidden = new Set(series().filter((one) => one.off).map((one) => one.name));
  const legend = el("fieldset", { class: "legend" });
  const plots = Array.from({ length: hosts }, (_, at) =>
    el("div", { class: "chart " + height, role: "group", "aria-label": names[at] ?? label }));
  const text = el("figcaption");
  const below = tableOf ? numbers(() => tableOf()) : null;

  function update() {
    const all = series();
    const boxes = all.map((one) => el("label", {},
      el("input", { type: "checkbox", checked: !hidden.has(one.name), onchange: (event) => {
        if (event.target.checked) hidden.delete(one.name); else hidden.add(one.name);
        plot(all);
      } }), swatch(one.style), one.name));
    legend.replaceChildren(el("legend", { class: "hidden" }, "Shown in the chart: " + label), ...(all.length > 1 ? boxes : []));
    text.textContent = typeof caption === "function" ? caption() : caption;
    plot(all);
    below?.update();
  }
  function plot(all) {
    const visible = all.filter((one) => !hidden.has(one.name));
    plots.forEach((host, at) => {
      draw(host, visible.flatMap((one) => (hosts > 1 ? one.traces[at] : one.traces)), more(at, visible));
    });
  }
  figure.replaceChildren(legend, el("div", { class: hosts > 1 ? "pair" : "" }, ...plots), text, ...(below ? [below.element] : []));
  themed.push(update);
  return update;
}
