// Curves that do not run along the subspace: the vertices over the epochs, and risk over coverage.

function trainingSection() {
  const groups = data.groups.filter((group) => group.spread && group.spread.l2.x.length);
  if (!groups.length) return leaveOut("training");
  const parts = [["l2", "L2 distance"], ["cos2", "cos²"]];
  const style = (group) => ({ index: data.groups.indexOf(group), dash: "solid" });
  const traces = (group) => parts.map(([part]) => {
    const { x, mean, std } = group.spread[part];
    return curve(group.label, x, mean, std, style(group), "%{y:.4~g}<extra>%{meta}</extra>");
  });
  chart($("training-figure"), {
    label: "the vertices over the epochs",
    names: parts.map(([, label]) => `${label} of the vertices over the epochs`),
    caption: groups.some((group) => group.spread.l2.std) ? "Bands: one standard deviation over seeds." : "",
    series: () => groups.map((group) => ({ name: group.label, style: style(group), traces: traces(group) })),
    more: (at, visible) => ({
      xaxis: frame("Epoch"), yaxis: { ...frame(parts[at][1]), rangemode: "tozero" }, hovermode: hovering(visible),
    }),
    table: () => ({
      caption: "The vertices over the epochs",
      rows: groups.flatMap((group) => group.spread.l2.x.map((epoch, at) => ({ group, epoch, at }))),
      columns: [
        words("Subspace", (row) => row.group.label, { header: true }),
        figures("Epoch", (row) => String(row.epoch), "epoch", (row) => row.epoch),
        ...parts.map(([part, label]) => {
          const value = ({ group, at }) => group.spread[part].mean[at];
          return figures(label, (row) => value(row).toPrecision(4), part, value);
        }),
      ],
    }),
  });
}

const RISKS = { network: "dot", midpoint: "dash", average: "dash", ensemble: "solid" };

function selectiveSection() {
  const curves = data.groups.flatMap((group, index) => group.risk.map(({ name, kind, coverage, risk }) => ({
    name, style: { index, dash: RISKS[kind] }, coverage, risk,
  })));
  if (!curves.length) return leaveOut("selective");
  const hover = `%{y:.${METRICS[place("accuracy")]?.digits ?? 1}f} %<extra>%{meta}</extra>`;
  const traces = ({ name, coverage, risk, style }) => {
    const [x, y] = [coverage, risk].map((values) => values.map((value) => 100 * value));
    return curve(name, x, y, null, style, hover);
  };
  chart($("selective-figure"), {
    label: "risk over coverage",
    caption: "AURC, in the tables, is the mean height of such a curve. Mean over seeds where there are several.",
    series: () => curves.map((one) => ({ ...one, traces: traces(one) })),
    more: (_, visible) => ({
      xaxis: { ...frame("Most confident answers kept (%)"), range: [0, 101], hoverformat: ".1f" },
      yaxis: { ...frame("Error among them (%)"), rangemode: "tozero" },
      hovermode: hovering(visible),
    }),
    table: () => ({
      caption: `Risk over coverage, ${data.split} split`,
      rows: curves.flatMap(({ name, coverage, risk }) =>
        coverage.map((share, at) => ({ name, coverage: share, risk: risk[at] }))),
      columns: [
        words("Answer", (row) => row.name, { header: true }),
        ...[["coverage", "Coverage"], ["risk", "Error"]].map(([key, label]) =>
          figures(label, (row) => percent(row[key]), key, (row) => row[key])),
      ],
    }),
  });
}
