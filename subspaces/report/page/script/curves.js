// Curves that do not run along the subspace: the vertices over the epochs, and risk over coverage.

function trainingSection() {
  const groups = data.groups.filter((group) => group.spread && group.spread.l2.x.length);
  if (!groups.length) return leaveOut("training");
  const parts = [["l2", "L2 distance"], ["cos2", "cos²"]];
  const line = (group, part) => {
    const { x, mean, std } = group.spread[part], index = data.groups.indexOf(group);
    return curve(group.label, x, mean, std, { index, dash: "solid", symbol: null }, "%{y:.4~g}<extra>%{meta}</extra>");
  };
  chart($("training-figure"), {
    label: "the vertices over the epochs",
    names: ["L2 distance of the vertices over the epochs", "cos² of the vertices over the epochs"],
    hosts: 2,
    caption: groups.some((group) => group.spread.l2.std) ? "Bands: one standard deviation over seeds." : "",
    series: () => groups.map((group) => ({
      name: group.label, style: { index: data.groups.indexOf(group), dash: "solid" }, traces: parts.map(([part]) => line(group, part)),
    })),
    more: (at, visible) => ({ xaxis: frame("Epoch"), yaxis: { ...frame(parts[at][1]), rangemode: "tozero" }, hovermode: visible.length > 6 ? "closest" : "x unified" }),
    table: () => ({
      caption: "The vertices over the epochs",
      rows: groups.flatMap((group) => group.spread.l2.x.map((epoch, at) => ({ group, epoch, at }))),
      columns: [
        { label: "Subspace", header: true, text: (row) => row.group.label },
        { label: "Epoch", number: true, text: (row) => String(row.epoch), csv: { epoch: (row) => row.epoch } },
        ...parts.map(([part, label]) => ({ label, number: true, text: (row) => row.group.spread[part].mean[row.at].toPrecision(4), csv: { [part]: (row) => row.group.spread[part].mean[row.at] } })),
      ],
    }),
  });
}

function selectiveSection() {
  const curves = data.groups.flatMap((group, index) => group.risk.map((risk) => ({
    ...risk, name: group.kind === "single" ? group.label : `${group.label}: ${risk.name}`,
    style: { index, dash: { network: "dot", midpoint: "dash", ensemble: "solid" }[risk.name] },
  })));
  if (!curves.length) return leaveOut("selective");
  const digits = METRICS[place("accuracy")].digits;
  chart($("selective-figure"), {
    label: "risk over coverage",
    caption: "The ensemble is the one of the summary. Mean over seeds where there are several.",
    series: () => curves.map((one) => ({ ...one, traces: curve(one.name, one.coverage.map((c) => 100 * c), one.risk.map((r) => 100 * r), null, one.style, `%{y:.${digits}f} %<extra>%{meta}</extra>`) })),
    more: (_, visible) => ({ xaxis: { ...frame("Coverage (%)"), range: [0, 101], hoverformat: ".1f" }, yaxis: { ...frame("Error among the answered (%)"), rangemode: "tozero" }, hovermode: visible.length > 6 ? "closest" : "x unified" }),
    table: () => ({
      caption: `Risk over coverage, ${data.split} split`,
      rows: curves.flatMap((one) => one.coverage.map((coverage, at) => ({ name: one.name, coverage, risk: one.risk[at] }))),
      columns: [
        { label: "Prediction by", header: true, text: (row) => row.name },
        ...[["coverage", "Coverage"], ["risk", "Error"]].map(([key, label]) => ({ label, number: true, text: (row) => percent(row[key]), csv: { [key]: (row) => row[key] } })),
      ],
    }),
  });
}
