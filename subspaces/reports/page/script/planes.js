// Planes through three networks: accuracy or loss as height, the subspace drawn in.

const PLANES = "Every point of this plane is a network: a mixture of the three at the black dots. Brighter is better; " +
  "the white line is the subspace, the diamond its midpoint.";

function planesSection() {
  const all = data.runs.flatMap((run) => run.planes.map((plane) => ({ run, plane })));
  if (!all.length) return leaveOut("planes");
  const single = ({ run }) => run.kind === "single";
  const planes = [...all.filter((one) => !single(one)), ...all.filter(single)];
  options($("planes-plane"), planes.map(({ run, plane }) => `${runName(run)}: ${plane.name}`));
  $("planes-lead").textContent = PLANES;
  const heights = METRICS.filter((metric) => planes.every(({ plane }) => metric.name in plane.values));
  $("planes-metric").replaceChildren(...heights.map((metric) => el("option", { value: metric.name }, metric.label)));
  const host = el("div", { class: "chart square", role: "group", "aria-label": "the plane" });
  const caption = el("figcaption");
  const current = () => planes[Number($("planes-plane").value)].plane;
  const metric = () => METRICS[place($("planes-metric").value)];
  const update = () => {
    caption.textContent = planeCaption(current(), metric());
    const height = planeHeight(current(), host.clientWidth);
    host.style.height = `${height}px`;
    draw(host, planeTraces(current(), metric()), { ...planeLayout(current()), height });
  };
  const button = copyButton("Copy as CSV", () => planeCsv(current()), "the plane");
  $("planes-figure").replaceChildren(host, caption, el("div", { class: "under" }, button));
  $("planes-plane").addEventListener("change", update);
  $("planes-metric").addEventListener("change", update);
  themed.push(update);
}

// So high that one unit is as long upwards as sideways, beside axes and colour bar.
function planeHeight({ x, y }, width) {
  const ratio = (y.at(-1) - y[0]) / (x.at(-1) - x[0]);
  return Math.round((width - 150) * Math.min(Math.max(ratio, 0.5), 1.3) + 80);
}

const computed = (plane, metric) => plane.values[metric.name].flat().filter((value) => value !== null);

function planeTraces(plane, metric) {
  const known = computed(plane, metric).map((value) => scaled(metric, value)).sort((a, b) => a - b);
  const [low, high, median] = [known[0], known.at(-1), known[Math.floor(known.length / 2)]];
  const top = metric.higher ? high : Math.min(high, Math.max(4 * low, median)); // far off, the loss knows no bounds
  const step = nice((top - low) / 16);
  const whole = (round, value) => step * round(value / step);
  const title = { text: axis(metric), side: "right", font: { size: 13, color: ink().muted } };
  const surface = {
    type: "contour", x: plane.x, y: plane.y,
    z: plane.values[metric.name].map((line) => line.map((value) => scaled(metric, value))),
    zauto: false, zmin: low, zmax: top, colorscale: "Cividis", reversescale: !metric.higher, autocontour: false,
    contours: { coloring: "heatmap", size: step, start: whole(Math.ceil, low), end: whole(Math.floor, top) },
    line: { width: 0.6, color: "rgba(255,255,255,0.35)" },
    colorbar: { title, thickness: 14, outlinewidth: 0, tick0: 0, dtick: 2 * step, tickfont: { color: ink().muted } },
    hovertemplate: `%{z:.${metric.digits}f}${unit(metric)}<extra></extra>`,
  };
  return [surface, ...plane.drawn.flatMap(drawnTraces), cornerTrace(plane)];
}

// The nearest round step that is not smaller.
function nice(step) {
  const power = 10 ** Math.floor(Math.log10(step || 1));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= step * 0.999);
}

function drawnTraces({ label, kind, x, y, distance }) {
  const text = distance.map((d) => plain(label) + (d > 0.01 ? `, ${short(d)} off the plane` : ""));
  const base = { type: "scatter", x, y, text, hovertemplate: "%{text}<extra></extra>" };
  if (kind === "point") {
    const marker = { color: "#ffffff", size: 9, symbol: "diamond", line: { color: "#000000", width: 1.5 } };
    return [{ ...base, mode: "markers", marker }];
  }
  return [
    { type: "scatter", x, y, mode: "lines", line: { color: "#000000", width: 6 }, hoverinfo: "skip" },
    { ...base, mode: "lines", line: { color: "#ffffff", width: 3 } },
  ];
}

function cornerTrace({ corners }) {
  return {
    type: "scatter", mode: "markers", marker: { color: "#000000", size: 11, line: { color: "#ffffff", width: 2 } },
    x: corners.map(([, x]) => x), y: corners.map(([, , y]) => y), text: corners.map(([label]) => plain(label)),
    hovertemplate: "%{text}<extra></extra>",
  };
}

function planeLayout({ x, y, corners }) {
  const side = (values) => ({
    ...frame("Distance"), showgrid: false, constrain: "domain", range: [values[0], values.at(-1)],
  });
  const font = { color: "#ffffff", size: innerWidth < 600 ? 11 : 13 };
  return {
    margin: { l: 48, r: 8, t: 28, b: 46 }, hovermode: "closest",
    xaxis: side(x), yaxis: { ...side(y), scaleanchor: "x" },
    annotations: corners.map(([label, left, up]) => ({
      x: left, y: up, text: plain(label), showarrow: false, yshift: 18, font, bgcolor: "rgba(0,0,0,0.65)", borderpad: 3,
    })),
  };
}

function planeCaption(plane, metric) {
  const known = computed(plane, metric), [rows, columns] = [plane.y.length, plane.x.length];
  const far = Math.max(0, ...plane.drawn.flatMap((one) => one.distance));
  return [
    `${metric.label} from ${shown(metric, Math.min(...known))} to ${shown(metric, Math.max(...known))}`,
    ` on ${columns} × ${rows} cells; ${plane.note}. Axes: Euclidean distance in weight space.`,
    ` What is drawn lies ${far > 0.01 ? `up to ${short(far)} off the plane` : "in the plane"}.`,
    plane.check ? ` ${plane.check}` : "",
    known.length < rows * columns ? " Some cells are not computed yet." : "",
  ].join("");
}

function planeCsv({ x, y, values }) {
  const names = Object.keys(values);
  const cells = y.flatMap((up, i) => x.map((left, j) =>
    ({ x: left, y: up, ...Object.fromEntries(names.map((name) => [name, values[name][i][j]])) })));
  return csv(["x", "y", ...names].map((name) => words(name, (one) => one[name])), cells);
}
