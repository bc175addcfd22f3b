// A metric along lines and curves, with other trainings as level lines; and at the points of simplexes.

function alongSection() {
  const intervals = data.groups.some((group) => group.along);
  const simplexes = data.groups.filter((group) => group.roles.length);
  if (!intervals && !simplexes.length) return leaveOut("along");
  $("along-lead").textContent = intervals
    ? "Dashed: the network at α. Solid: the ensemble of the networks at α and 1 − α, which is the midpoint alone at ½. Other lines: trainings without α. Drag to zoom, double-click to zoom out."
    : "Each mark is one network, or one ensemble.";
  options($("along-metric"), METRICS.map((metric) => metric.label));
  const metric = () => METRICS[Number($("along-metric").value)];
  const updates = [];
  if (intervals) updates.push(alongChart(metric)); else { $("along-average-label").remove(); $("along-figure").remove(); }
  if (simplexes.length) updates.push(rolesChart(metric, simplexes)); else $("roles-figure").remove();
  const update = () => updates.forEach((one) => one());
  $("along-metric").addEventListener("change", update);
  if (intervals) $("along-average").addEventListener("change", update);
}

// The ensembles of alpha and 1 - alpha on both sides of the midpoint.
function mirrored({ x, mean, std }) {
  const back = [...x.keys()].filter((at) => x[at] < 0.5).reverse();
  const both = (values) => values && [...values, ...back.map((at) => values[at])];
  return { x: [...x, ...back.map((at) => Number((1 - x[at]).toFixed(9)))], mean: both(mean), std: both(std) };
}

function alongCurves(metric, average) {
  const range = data.groups.filter((group) => group.along).flatMap((group) => group.along.point.accuracy.x);
  const ends = [Math.min(...range), Math.max(...range)];
  return data.groups.flatMap((group, index) => {
    if (group.along) {
      const pairs = mirrored(group.along[average][metric.name]);
      return [
        { name: `${group.label}: at α`, style: { index, dash: "dash", symbol: symbol(index) }, ...group.along.point[metric.name] },
        ...(pairs.x.length ? [{ name: `${group.label}: α and 1 − α together`, style: { index, dash: "solid", symbol: symbol(index) }, ...pairs }] : []),
      ];
    }
    const at = METRICS.indexOf(metric);
    const dashes = { network: "dot", midpoint: "dashdot", ensemble: "longdash", random: "longdashdot" };
    return group.levels.map((level) => ({
      name: group.kind === "single" ? group.label : `${group.label}: ${level.name}`, style: { index, dash: dashes[level.kind] }, off: level.kind === "random",
      x: ends, mean: [level.mean[at], level.mean[at]], std: level.std[at] === null ? null : [level.std[at], level.std[at]], level: true,
    }));
  });
}

function alongChart(metric) {
  const average = () => $("along-average").value;
  const curves = () => alongCurves(metric(), average());
  const hover = () => `%{y:.${metric().digits}f}${unit(metric())}<extra>%{meta}</extra>`;
  return chart($("along-figure"), {
    label: "a metric along the subspace",
    caption: () => `${metric().label}: ${metric().meaning}; ${metric().higher ? "higher" : "lower"} is better.` +
      (curves().some((one) => one.std) ? " Bands: one standard deviation over seeds." : ""),
    series: () => curves().map((one) => ({ ...one, traces: curve(one.name, one.x, one.mean.map((v) => scaled(metric(), v)),
      one.std && !one.level ? one.std.map((v) => scaled(metric(), v)) : null, one.style, hover()) })),
    more: (_, visible) => ({
      xaxis: { ...frame("α"), hoverformat: ".3~g" }, yaxis: frame(axis(metric())), hovermode: visible.length > 6 ? "closest" : "x unified",
    }),
    table: () => alongTable(metric(), curves()),
  });
}

function alongTable(metric, curves) {
  const rows = [...new Set(curves.filter((one) => !one.level).flatMap((one) => one.x))].sort((a, b) => a - b);
  const at = (one, alpha) => (one.level ? 0 : one.x.indexOf(alpha));
  const value = (one, alpha, what) => (at(one, alpha) < 0 || !one[what] ? null : one[what][at(one, alpha)]);
  return {
    caption: `${metric.label} along the subspace, ${data.split} split`,
    rows,
    columns: [
      { label: "α", header: true, text: (alpha) => short(alpha), csv: { alpha: (alpha) => alpha } },
      ...curves.map((one) => ({
        label: one.name + (metric.percent ? ", %" : ""), number: true,
        text: (alpha) => spread(metric, value(one, alpha, "mean"), value(one, alpha, "std")),
        csv: { [one.name]: (alpha) => value(one, alpha, "mean"), ...(one.std ? { [one.name + " std"]: (alpha) => value(one, alpha, "std") } : {}) },
      })),
    ],
  };
}

function rolesChart(metric, groups) {
  const places = [...new Set(groups.flatMap((group) => group.roles.map((role) => role.name)))];
  const at = () => METRICS.indexOf(metric());
  const shift = (index) => (groups.length > 1 ? 0.5 * (index / (groups.length - 1) - 0.5) : 0);
  return chart($("roles-figure"), {
    label: "a metric at the points of simplexes",
    caption: () => `${metric().label} at the points of ${groups.length > 1 ? "simplexes" : "the simplex"}, each run's: single networks by where they are, then ensembles.`,
    series: () => groups.map((group, number) => {
      const index = data.groups.indexOf(group);
      const marks = group.roles.flatMap((role) => role.values.map((values) => [places.indexOf(role.name) + shift(number), values[at()], role.name]));
      return { name: group.label, style: { index, symbol: symbol(index) }, traces: [{
        y: marks.map((mark) => mark[0]), x: marks.map((mark) => scaled(metric(), mark[1])), text: marks.map((mark) => mark[2]), meta: plain(group.label),
        type: "scatter", mode: "markers", marker: { color: colour(index), symbol: symbol(index) + "-open", size: 9, line: { width: 1.6 } },
        hovertemplate: `%{text}: %{x:.${metric().digits}f}${unit(metric())}<extra>%{meta}</extra>`,
      }] };
    }),
    more: () => ({
      xaxis: frame(axis(metric())), hovermode: "closest",
      yaxis: { ...frame(""), tickvals: places.map((_, i) => i), ticktext: places.map((name) => name.replace("ensemble of ", "ensemble of<br>")), range: [places.length - 0.4, -0.6] },
    }),
    table: () => ({
      caption: `${metric().label} at the points of simplexes, ${data.split} split`,
      rows: groups.flatMap((group) => group.roles.flatMap((role) => role.values.map((values) => ({ group: group.label, role: role.name, values })))),
      columns: [
        { label: "Subspace", header: true, text: (row) => row.group }, { label: "Point", text: (row) => row.role },
        ...metricColumns((row) => row.values).map(({ best, ...column }) => column),
      ],
    }),
  });
}
