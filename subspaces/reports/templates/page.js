// The charts, and the walk through one run. Text from the data becomes text nodes and attributes, never markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Charts, in the colours that the system asks for: those in the data are for the light theme.

const dark = matchMedia("(prefers-color-scheme: dark)"), touch = matchMedia("(pointer: coarse)").matches;
const PALETTE = Object.keys(data.dark), MUTED = data.template.xaxis.linecolor;
const tinted = (value) => (dark.matches
  ? JSON.parse(JSON.stringify(value).replace(/#[0-9a-f]{6}/g, (colour) => data.dark[colour] ?? colour)) : value);
const CONFIG = {
  responsive: true, displaylogo: false, displayModeBar: touch ? true : "hover", showTips: false,
  modeBarButtons: [["toImage", "zoomIn2d", "zoomOut2d", "resetScale2d"]], showSendToCloud: false, // nothing leaves
};

// The drawing itself says nothing to a screen reader; its caption and the tables do.
function draw(host, traces, layout) {
  const crowded = traces.length > 18 || innerWidth < 600;
  const hovermode = crowded ? "closest" : layout.hovermode ?? data.template.hovermode;
  const whole = { ...layout, template: { layout: data.template }, hovermode, dragmode: touch ? false : "zoom" };
  Plotly.react(host, tinted(traces), tinted(whole), CONFIG).then(() => {
    host.querySelectorAll(".main-svg").forEach((picture) => picture.setAttribute("aria-hidden", "true"));
  });
}

function chart(figure) {
  const { selects, states } = data.charts[figure.dataset.chart], hosts = figure.querySelectorAll(".chart");
  const boxes = [...figure.querySelectorAll(".legend input")];
  function update() {
    const { caption, plots } = states[selects.map((id) => $(id).value).join("|")];
    const hidden = boxes.filter((box) => !box.checked).map((box) => box.value);
    const shown = ({ legendgroup }) => !hidden.includes(legendgroup);
    plots.forEach(({ data: traces, layout }, at) => draw(hosts[at], traces.filter(shown), layout));
    figure.querySelector("figcaption").textContent = caption;
  }
  [...boxes, ...selects.map($)].forEach((control) => control.addEventListener("change", update));
  dark.addEventListener("change", update);
  update();
}
document.querySelectorAll("[data-chart]").forEach(chart);

// The walk: where (slider, triangle or list), the numbers there, their reliability, images that change.

const walk = { run: data.runs[0], index: 0 };
const here = () => walk.run.points[walk.index];

function shown(metric, value) {
  if (value === null) return "–";
  return ((metric.percent ? 100 : 1) * value).toFixed(metric.digits) + (metric.percent ? "\u00a0%" : "");
}

// The point, and the ensemble that it takes part in or is compared with.
function shownRows() {
  const ensemble = walk.run.ensembles[here().partner];
  return ensemble ? [here(), ensemble] : [here()];
}

function enter() {
  walk.run = data.runs[Number($("walk-run").value)];
  const { kind, points } = walk.run;
  $("walk-interval").hidden = kind !== "interval";
  $("walk-list").hidden = kind !== "list" && kind !== "triangle";
  $("walk-colour").hidden = $("walk-triangle").hidden = kind !== "triangle";
  $("walk-alpha").max = points.length - 1;
  document.querySelectorAll(".ends span").forEach((end, at) => { end.textContent = points.at(-at).name; });
  $("walk-point").replaceChildren(...points.map(({ name }, at) => el("option", { value: at }, name)));
  go(0);
}

function go(index) {
  walk.index = index;
  const { name, role } = here(), { kind, middle } = walk.run;
  $("walk-name").textContent = name + (kind === "interval" && role === "midpoint" ? `, the ${middle}` : "");
  $("walk-alpha").value = $("walk-point").value = index;
  $("walk-alpha").setAttribute("aria-valuetext", name);
  if (kind === "triangle") drawTriangle();
  showNumbers();
  if ($("walk-reliability")) drawReliability();
  showStrip();
}

// A simplex of three vertices: every point in the colour of a metric, bright for the best.

const CORNERS = [[0, 0], [1, 0], [0.5, Math.sqrt(3) / 2]];

function drawTriangle() {
  const { points, vertex } = walk.run, at = Number($("triangle-metric").value), metric = data.metrics[at];
  const place = (side) => ({ alpha }) => alpha.reduce((sum, share, i) => sum + share * CORNERS[i][side], 0);
  const marked = (chosen, other) => points.map((_, i) => (i === walk.index ? chosen : other));
  const values = points.map(({ metrics }) => metrics[at] && (metric.percent ? 100 : 1) * metrics[at]);
  const bar = { orientation: "h", y: -0.14, yanchor: "top", thickness: 11, outlinewidth: 0, tickfont: { color: MUTED } };
  const marker = {
    size: 17, line: { color: marked(PALETTE[1], MUTED), width: marked(4, 0.8) }, color: values, colorscale: "Cividis",
    reversescale: !metric.higher, colorbar: { ...bar, ticksuffix: metric.percent ? " %" : "" },
  };
  const text = points.map(({ name, metrics }) => `${name}: ${shown(metric, metrics[at])}`);
  const dots = { x: points.map(place(0)), y: points.map(place(1)), marker, text, hovertemplate: "%{text}<extra></extra>" };
  const around = [...CORNERS, CORNERS[0]], [x, y] = [0, 1].map((side) => around.map((corner) => corner[side]));
  const edges = { x, y, mode: "lines", line: { color: MUTED, width: 1 }, hoverinfo: "skip" };
  const names = CORNERS.map(([x, y], i) =>
    ({ x, y, text: `${vertex} ${i + 1}`, showarrow: false, yshift: i < 2 ? -22 : 22 }));
  const side = { visible: false, fixedrange: true, range: [-0.07, 1.07] }, host = $("walk-triangle").querySelector(".chart");
  draw(host, [edges, { ...dots, mode: "markers" }], {
    hovermode: "closest", annotations: names, margin: { l: 26, r: 26, t: 32, b: 50 }, xaxis: side,
    yaxis: { ...side, range: [-0.05, 0.92], scaleanchor: "x" },
  });
  host.removeAllListeners("plotly_click");
  host.on("plotly_click", ({ points: [clicked] }) => go(clicked.pointIndex));
}

function showNumbers() {
  const { run } = walk, [point, ...ensembles] = shownRows();
  const middle = run.middle ? run.points.filter(({ role }) => role === "midpoint").slice(0, 1) : [];
  const columns = [point, ...middle.map((one) => ({ ...one, name: run.middle })), ...ensembles];
  const head = columns.map(({ name }) => el("th", { scope: "col", class: "number" }, name));
  const rows = data.metrics.map((metric, at) => el("tr", {}, el("th", { scope: "row" }, metric.label),
    ...columns.map(({ metrics }) => el("td", { class: "number" }, shown(metric, metrics[at])))));
  document.querySelector("#walk-numbers table").replaceChildren(
    el("caption", { class: "hidden" }, `${run.name}: ${point.name}, test split`),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Metric"), ...head)), el("tbody", {}, ...rows));
}

// Bars for the point, and a line for the ensemble; below, how many examples have which confidence.
function drawReliability() {
  const dotted = { mode: "lines", line: { color: MUTED, dash: "dot", width: 1.5 }, hoverinfo: "skip", showlegend: false };
  const traces = [{ ...dotted, x: [0, 1], y: [0, 100] }];
  const percent = (value) => (value === null ? "–" : (100 * value).toFixed(1) + " %");
  shownRows().forEach(({ name, reliability: { count, confidence, accuracy } }, at) => {
    const total = count.reduce((sum, n) => sum + n, 0), color = PALETTE[at], line = { color, width: 1.5 };
    const customdata = count.map((n, bin) =>
      `${n} ${data.what}<br>confidence ${percent(confidence[bin])}<br>right ${percent(accuracy[bin])}`);
    const all = { legendgroup: name, name, customdata, hovertemplate: "%{customdata}<extra>%{fullData.name}</extra>",
      x: count.map((_, bin) => (bin + 0.5) / count.length), y: accuracy.map((value) => value && 100 * value) };
    const below = { ...all, y: count.map((n) => (100 * n) / total), yaxis: "y2", showlegend: false };
    if (at === 0) {
      const bar = { type: "bar", width: 0.9 / count.length };
      traces.push({ ...all, ...bar, marker: { color: `${color}1f`, line } });
      traces.push({ ...below, ...bar, marker: { color, opacity: 0.75 } });
    } else {
      traces.push({ ...all, mode: "lines+markers", connectgaps: true, x: confidence, line, marker: { color, size: 7 } });
      traces.push({ ...below, mode: "lines", line: { ...line, shape: "hvh" } });
    }
  });
  const { yaxis } = data.template, title = (text) => ({ ...yaxis.title, text });
  draw($("walk-reliability").querySelector(".chart"), traces, {
    xaxis: { title: { text: "Confidence" }, range: [0, 1], anchor: "y2", tickformat: ".0%" },
    yaxis: { title: { text: "Right (%)" }, range: [0, 100], domain: [0.32, 1] },
    yaxis2: { ...yaxis, title: title("Images (%)"), domain: [0, 0.22], rangemode: "tozero", nticks: 4 },
    barmode: "overlay", hovermode: "closest", showlegend: true,
  });
}

const className = (label) => label < 0 ? "NaN" : data.classes[label] ?? `class ${label}`;

function showStrip() {
  const { strip } = walk.run, predicted = strip?.predicted[walk.index];
  if (!predicted) return $("walk-strip").replaceChildren(); // of points that were added later none were kept
  const sure = strip.confidence[walk.index];
  const items = strip.labels.map((label, k) => stripItem(strip, k, label, predicted[k], sure[k]));
  const right = strip.labels.filter((label, k) => predicted[k] === label).length;
  const title = "Images whose predictions change", scrolled = $("walk-strip").querySelector(".scroll")?.scrollLeft ?? 0;
  const list = el("ul", { class: "strip" }, ...items), heading = `${title}: ${right} of ${items.length} right at `;
  const region = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, list);
  $("walk-strip").replaceChildren(el("h3", {}, heading + here().name), region);
  region.scrollLeft = scrolled;
}

function stripItem({ images, indices }, k, label, answer, confidence) {
  const right = answer === label, truth = className(label), said = className(answer);
  return el("li", { class: right ? "right" : "wrong" },
    el("img", { src: images[k], alt: `test image ${indices[k]}`, width: 64, height: 64 }),
    el("span", { class: "truth", title: truth }, "is " + truth),
    el("span", { class: "answer", title: said }, el("span", { class: "hidden" }, right ? "right: " : "wrong: "),
      (right ? "✓ " : "✗ ") + said),
    el("span", {}, (100 * confidence).toFixed(0) + " % sure"));
}

$("walk-run").addEventListener("input", enter);
for (const id of ["walk-alpha", "walk-point"]) $(id).addEventListener("input", ({ target }) => go(Number(target.value)));
$("triangle-metric").addEventListener("input", drawTriangle);
dark.addEventListener("change", () => go(walk.index));
$("walk-run").value = Math.max(data.runs.findIndex(({ kind }) => kind !== "single"), 0);
enter();
