// Reliability: how often predictions of each confidence are right, over how many there are.

const RELIABILITY = "Reliability: how often answers of each confidence are right. On the dotted diagonal they are " +
  `right as often as they are sure, below it they are too sure. Underneath: how many ${data.what} have which confidence.`;
const percent = (value) => (value === null ? "–" : (100 * value).toFixed(1) + " %");

// Of each bin: its middle, what hovering says, and its share of all.
function bins({ count, confidence, accuracy }, name) {
  const total = count.reduce((sum, n) => sum + n, 0);
  const said = (n, bin) => `${n} ${data.what}<br>confidence ${percent(confidence[bin])}<br>right ${percent(accuracy[bin])}`;
  return {
    x: count.map((_, bin) => (bin + 0.5) / count.length),
    share: count.map((n) => (100 * n) / total),
    hover: { customdata: count.map(said), hovertemplate: "%{customdata}<extra>%{meta}</extra>", meta: plain(name) },
  };
}

function asBars({ name, reliability }, index) {
  const { x, share, hover } = bins(reliability, name);
  const bar = { type: "bar", x, width: 0.9 / x.length, ...hover };
  const outlined = { color: faint(colour(index)), line: { color: colour(index), width: 1.5 } };
  return [
    { ...bar, y: reliability.accuracy.map((value) => value && 100 * value), marker: outlined },
    { ...bar, y: share, yaxis: "y2", marker: { color: colour(index), opacity: 0.75 } },
  ];
}

function asLine({ name, reliability }, index) {
  const { x, share, hover } = bins(reliability, name);
  const used = [...x.keys()].filter((bin) => reliability.count[bin] > 0);
  const line = { color: colour(index), width: 1.5 };
  return [
    {
      type: "scatter", mode: "lines+markers", line, marker: { color: colour(index), size: 7 }, ...hover,
      x: used.map((bin) => reliability.confidence[bin]), y: used.map((bin) => 100 * reliability.accuracy[bin]),
      customdata: used.map((bin) => hover.customdata[bin]),
    },
    { type: "scatter", mode: "lines", line: { ...line, shape: "hvh" }, x, y: share, yaxis: "y2", ...hover },
  ];
}

// `current()` returns the rows that are shown: a point, and perhaps an ensemble.
function reliabilityChart(figure, current) {
  const diagonal = () => ({
    type: "scatter", mode: "lines", x: [0, 1], y: [0, 100],
    line: { color: ink().muted, dash: "dot", width: 1.5 }, hoverinfo: "skip",
  });
  return chart(figure, {
    label: "reliability diagram",
    caption: RELIABILITY,
    series: () => current().map((row, at) => (at === 0
      ? { name: row.name, style: { index: 0, symbol: "square" }, traces: [diagonal(), ...asBars(row, 0)] }
      : { name: row.name, style: { index: at, dash: "solid", symbol: "circle" }, traces: asLine(row, at) })),
    more: () => ({
      xaxis: { ...frame("Confidence"), range: [0, 1], anchor: "y2", tickformat: ".0%" },
      yaxis: { ...frame("Right (%)"), range: [0, 100], domain: [0.32, 1] },
      yaxis2: { ...frame("Images (%)"), domain: [0, 0.22], rangemode: "tozero", nticks: 4 },
      barmode: "overlay", hovermode: "closest",
    }),
    table: () => reliabilityTable(current()),
  });
}

function reliabilityTable(rows) {
  const count = rows[0].reliability.count.length;
  const edge = (bin) => ((100 * bin) / count).toFixed(0);
  const range = { bin_from: (bin) => bin / count, bin_to: (bin) => (bin + 1) / count };
  const kinds = [
    ["count", data.what, String], ["confidence", "mean confidence", percent], ["accuracy", "right", percent],
  ];
  const column = (label, text, values) => figures(label, (bin) => text(values[bin]), label, (bin) => values[bin]);
  const columns = rows.flatMap(({ name, reliability }) => kinds.map(([key, word, text]) =>
    column(`${name}: ${word}`, text, reliability[key])));
  return {
    caption: `Reliability, ${data.split} split`,
    rows: [...Array(count).keys()],
    columns: [
      words("Confidence", (bin) => `${edge(bin)}–${edge(bin + 1)} %`, { header: true, csv: range }), ...columns,
    ],
  };
}
