// Planes through three networks: accuracy or loss as height, the subspace drawn in.

function planesSection() {
  const all = data.runs.flatMap((run) => run.planes.map((plane) => ({ run, plane })));
  const planes = [...all.filter(({ run }) => run.kind !== "single"), ...all.filter(({ run }) => run.kind === "single")];
  if (!planes.length) return leaveOut("planes");
  options($("planes-plane"), planes.map(({ run, plane }) => `${data.groups[run.group].label}, seed ${run.seed}: ${plane.name}`));
  $("planes-lead").textContent = "A slice of weight space through three networks. Brighter is better; the white line is the subspace, the diamond its midpoint.";
  const current = () => planes[Number($("planes-plane").value)].plane;
  const metric = () => METRICS[place($("planes-metric").value)];
  const host = el("div", { class: "chart square", role: "group", "aria-label": "the plane" });
  const caption = el("figcaption");
  const button = el("div", { class: "under" }, copyButton("Copy as CSV", () => planeCsv(current()), "the plane"));
  const update = () => {
    caption.textContent = planeCaption(current(), metric());
    const [width, height] = [current().x.at(-1) - current().x[0], current().y.at(-1) - current().y[0]];
    host.style.height = `${Math.round((host.clientWidth - 150) * Math.min(Math.max(height / width, 0.5), 1.3) + 80)}px`; // one unit is one unit
    draw(host, planeTraces(current(), metric()), planeLayout(current()));
  };
  $("planes-figure").replaceChildren(host, caption, button);
  $("planes-plane").addEventListener("change", update);
  $("planes-metric").addEventListener("change", update);
  themed.push(update);
}

function planeTraces(plane, metric) {
  const heights = plane[metric.name].map((line) => line.map((value) => scaled(metric, value)));
  const known = heights.flat().filter((value) => value !== null).sort((a, b) => a - b);
  const low = known[0], high = known.at(-1);
  const top = metric.higher ? high : Math.min(high, Math.max(4 * low, known[Math.floor(known.length / 2)])); // far off, the loss knows no bounds
  const step = nice((top - low) / 16);
  const surface = {
    type: "contour", x: plane.x, y: plane.y, z: heights, zmin: low, zmax: top, colorscale: "Cividis", reversescale: !metric.higher, zauto: false, autocontour: false,
    contours: { coloring: "heatmap", start: step * Math.ceil(low / step), end: step * Math.floor(top / step), size: step }, line: { width: 0.6, color: "rgba(255,255,255,0.35)" },
    colorbar: { title: { text: axis(metric), side: "right", font: { size: 13, color: ink().muted } }, thickness: 14, outlinewidth: 0, tick0: 0, dtick: 2 * step, tickfont: { color: ink().muted } },
    hovertemplate: `%{z:.${metric.digits}f}${unit(metric)}<extra></extra>`,
  };
  return [surface, ...plane.drawn.flatMap((one) => drawnTraces(one)), ...cornerTraces(plane)];
}

// The nearest round step that is not smaller.
function nice(step) {
  const unit = 10 ** Math.floor(Math.log10(step || 1));
  return unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= step * 0.999);
}

function drawnTraces({ label, kind, x, y, distance }) {
  const text = distance.map((d) => plain(label) + (d > 0.01 ? `, ${short(d)} off the plane` : ""));
  const base = { type: "scatter", x, y, text, hovertemplate: "%{text}<extra></extra>" };
  if (kind === "point") return [{ ...base, mode: "markers", marker: { color: "#ffffff", size: 9, symbol: "diamond", line: { color: "#000000", width: 1.5 } } }];
  return [
    { ...base, mode: "lines", line: { color: "#000000", width: 6 }, hoverinfo: "skip", hovertemplate: null },
    { ...base, mode: "lines", line: { color: "#ffffff", width: 3 } },
  ];
}

function cornerTraces(plane) {
  return [{
    type: "scatter", mode: "markers", x: plane.corners.map((corner) => corner[1]), y: plane.corners.map((corner) => corner[2]),
    text: plane.corners.map((corner) => plain(corner[0])), hovertemplate: "%{text}<extra></extra>",
    marker: { color: "#000000", size: 11, line: { color: "#ffffff", width: 2 } },
  }];
}

function planeLayout(plane) {
  return {
    margin: { l: 48, r: 8, t: 28, b: 46 },
    xaxis: { ...frame("Distance"), showgrid: false, constrain: "domain", range: [plane.x[0], plane.x.at(-1)] },
    yaxis: { ...frame("Distance"), showgrid: false, constrain: "domain", scaleanchor: "x", range: [plane.y[0], plane.y.at(-1)] },
    hovermode: "closest",
    annotations: plane.corners.map(([label, x, y]) => ({ x, y, text: plain(label), showarrow: false, yshift: 18, font: { color: "#ffffff", size: innerWidth < 600 ? 11 : 13 }, bgcolor: "rgba(0,0,0,0.65)", borderpad: 3 })),
  };
}

function planeCaption(plane, metric) {
  const known = plane[metric.name].flat().filter((value) => value !== null);
  const far = Math.max(0, ...plane.drawn.flatMap((one) => one.distance));
  const missing = known.length < plane.x.length * plane.y.length ? " Some cells are not computed yet." : "";
  return `${metric.label} from ${shown(metric, Math.min(...known))} to ${shown(metric, Math.max(...known))} on ${plane.x.length} × ${plane.y.length} cells; ${plane.note}. ` +
    `Axes: Euclidean distance in weight space. What is drawn lies ${far > 0.01 ? `up to ${short(far)} off the plane` : "in the plane"}.${missing}`;
}

function planeCsv(plane) {
  const cells = plane.y.flatMap((y, row) => plane.x.map((x, column) => ({ x, y, accuracy: plane.accuracy[row][column], nll: plane.nll[row][column] })));
  return csv(["x", "y", "accuracy", "nll"].map((name) => ({ label: name, text: (cellOf) => cellOf[name] })), cells);
}
