// A metric along lines and curves, with other trainings as level lines; and at the points of simplexes.

const ALONG = "Dashed: the network at α. Solid: the ensemble of the networks at α and 1 − α; at α = 0.5 both are the " +
  `midpoint. Level lines: methods that have no α. ${ZOOM}`;

function alongSection() {
  const intervals = data.groups.some((group) => group.along);
  const simplexes = data.groups.filter((group) => group.roles.length);
  if (!intervals && !simplexes.length) return leaveOut("along");
  $("along-lead").textContent = intervals ? ALONG : "Each mark is one network, or one ensemble.";
  if (!intervals) $("along-title").textContent = "Single networks and ensembles";
  options($("along-metric"), METRICS.map((metric) => metric.label));
  const averages = new Set(data.groups.flatMap((group) => Object.keys(group.along ?? {})).slice(1));
  averages.delete("point");
  if (averages.size < 2) leaveOut("along-average-label");
  const metric = () => METRICS[Number($("along-metric").value)];
  const updates = [];
  if (intervals) updates.push(alongChart(metric));
  else ["along-average-label", "along-figure", "roles-title"].forEach((id) => $(id)?.remove());
  if (simplexes.length) updates.push(rolesChart(metric, simplexes));
  else ["roles-title", "roles-figure"].forEach(leaveOut);
  for (const select of document.querySelectorAll("#along select")) {
    select.addEventListener("change", () => updates.forEach((update) => update()));
  }
}

// The ensembles of alpha and 1 - alpha on both sides of the midpoint.
function mirrored({ x, mean, std }) {
  const back = [...x.keys()].filter((at) => x[at] < 0.5).reverse();
  const both = (values) => values && [...values, ...back.map((at) => values[at])];
  return { x: [...x, ...back.map((at) => Number((1 - x[at]).toFixed(9)))], mean: both(mean), std: both(std) };
}

function alongCurves(metric, average) {
  const points = data.groups.flatMap((group) => group.along?.point[METRICS[0].name].x ?? []);
  const grid = [...new Set(points)].sort((a, b) => a - b);
  return data.groups.flatMap((group, index) =>
    group.along ? intervalCurves(group, index, metric, average) : levelCurves(group, index, metric, grid));
}

function intervalCurves(group, index, metric, average) {
  const style = (dash) => ({ index, dash, symbol: symbol(index) });
  const [, only] = Object.keys(group.along);
  const pairs = mirrored(group.along[average ?? only][metric.name]);
  const point = { name: `${group.label}: at α`, style: style("dash"), ...group.along.point[metric.name] };
  const ensemble = { name: `${group.label}: α and 1 − α together`, style: style("solid"), ...pairs };
  return pairs.x.length ? [point, ensemble] : [point];
}

const LEVELS = {
  network: "dot", midpoint: "dashdot", vertices: "longdash", runs: "longdash", dropout: "dash", random: "longdashdot",
};

function levelCurves(group, index, metric, grid) {
  const at = METRICS.indexOf(metric);
  return group.levels.map(({ name, kind, mean, std }) => ({
    name, style: { index, dash: LEVELS[kind], band: false },
    off: kind === "random",
    x: grid,
    mean: grid.map(() => mean[at]),
    std: std[at] === null ? null : grid.map(() => std[at]),
  }));
}

function alongChart(metric) {
  const curves = () => alongCurves(metric(), $("along-average")?.value);
  const traces = (one) => {
    const digits = `:.${metric().digits}f`;
    const around = one.std ? ` ± %{customdata${digits}}` : "";
    const hover = `%{y${digits}}${around}${unit(metric())}<extra>%{meta}</extra>`;
    const [mean, std] = [one.mean, one.std].map((values) => values && values.map((value) => scaled(metric(), value)));
    return curve(one.name, one.x, mean, std, one.style, hover);
  };
  return chart($("along-figure"), {
    label: "a metric along the subspace",
    caption: () => `${metric().label}: ${metric().meaning}${better(metric())}.` +
      (curves().some((one) => one.std) ? " Bands: one standard deviation over seeds." : ""),
    series: () => curves().map((one) => ({ ...one, traces: traces(one) })),
    more: (_, visible) => ({
      xaxis: { ...frame("α"), hoverformat: ".3~g" }, yaxis: frame(axis(metric())), hovermode: hovering(visible),
    }),
    table: () => alongTable(metric(), curves()),
  });
}

function alongTable(metric, curves) {
  const value = (one, alpha, what) => one[what]?.[one.x.indexOf(alpha)] ?? null;
  const column = (one) => {
    const [mean, std] = ["mean", "std"].map((what) => (alpha) => value(one, alpha, what));
    const label = one.name + (metric.percent ? ", %" : "");
    return figures(label, (alpha) => spread(metric, mean(alpha), std(alpha)), one.name, mean, {
      csv: { [one.name]: mean, ...(one.std ? { [one.name + " std"]: std } : {}) },
    });
  };
  return {
    caption: `${metric.label} along the subspace, ${data.split} split`,
    rows: [...new Set(curves.flatMap((one) => one.x))].sort((a, b) => a - b),
    columns: [words("α", short, { header: true, csv: { alpha: (alpha) => alpha } }), ...curves.map(column)],
  };
}

function rolesChart(metric, groups) {
  const places = [...new Set(groups.flatMap((group) => group.roles.map((role) => role.name)))];
  const at = () => METRICS.indexOf(metric());
  const shift = (number) => (groups.length > 1 ? 0.5 * (number / (groups.length - 1) - 0.5) : 0);
  const marks = (group) =>
    group.roles.flatMap(({ name, values }) => values.map((each) => ({ name, value: each[at()] })));
  const traces = (group, number, index) => [{
    type: "scatter", mode: "markers", meta: plain(group.label),
    x: marks(group).map(({ value }) => scaled(metric(), value)),
    y: marks(group).map(({ name }) => places.indexOf(name) + shift(number)),
    text: marks(group).map(({ name }) => name),
    marker: { color: colour(index), symbol: symbol(index) + "-open", size: 9, line: { width: 1.6 } },
    hovertemplate: `%{text}: %{x:.${metric().digits}f}${unit(metric())}<extra>%{meta}</extra>`,
  }];
  const ticks = {
    tickvals: [...places.keys()], ticktext: places.map((name) => name.replace("ensemble of ", "ensemble of<br>")),
    range: [places.length - 0.4, -0.6],
  };
  const update = chart($("roles-figure"), {
    label: "a metric at measured points",
    caption: () => `${metric().label} of every run: of single networks by where they are, then of ensembles.`,
    series: () => groups.map((group, number) => {
      const index = data.groups.indexOf(group);
      return { name: group.label, style: { index, symbol: symbol(index) }, traces: traces(group, number, index) };
    }),
    more: () => ({ xaxis: frame(axis(metric())), yaxis: { ...frame(""), ...ticks }, hovermode: "closest" }),
    table: () => ({
      caption: `Measured points, ${data.split} split`,
      rows: groups.flatMap((group) =>
        group.roles.flatMap(({ name, values }) => values.map((metrics) => ({ group: group.label, name, metrics })))),
      columns: [
        words("Method", (row) => row.group, { header: true }), words("Point", (row) => row.name),
        ...metricColumns((row) => row.metrics),
      ],
    }),
  });
  $("roles-figure").querySelector(".chart").style.height = `${Math.max(16, 5 + 2.2 * places.length)}rem`;
  return update;
}
