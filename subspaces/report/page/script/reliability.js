// Reliability: how often predictions of each confidence are right, over how many there are.

function reliabilityTraces(row, name, style) {
  const { count, confidence, accuracy } = row.reliability;
  const total = count.reduce((sum, n) => sum + n, 0);
  const width = 1 / count.length;
  const middle = count.map((_, bin) => (bin + 0.5) * width);
  const text = count.map((n, bin) => `${n} images<br>confidence ${percent(confidence[bin])}<br>right ${percent(accuracy[bin])}`);
  const hover = { customdata: text, hovertemplate: "%{customdata}<extra>%{meta}</extra>", meta: plain(name) };
  const share = { x: middle, y: count.map((n) => (100 * n) / total), yaxis: "y2", ...hover };
  if (style.bars) {
    return [
      { type: "bar", x: middle, y: accuracy.map((v) => v && 100 * v), width: width * 0.9, marker: { color: faint(colour(style.index)), line: { color: colour(style.index), width: 1.5 } }, ...hover },
      { type: "bar", width: width * 0.9, marker: { color: colour(style.index), opacity: 0.75 }, ...share },
    ];
  }
  const used = [...count.keys()].filter((bin) => count[bin] > 0);
  return [
    { type: "scatter", mode: "lines+markers", x: used.map((bin) => confidence[bin]), y: used.map((bin) => 100 * accuracy[bin]),
      line: { color: colour(style.index), width: 1.5 }, marker: { color: colour(style.index), size: 7, symbol: style.symbol }, ...hover, customdata: used.map((bin) => text[bin]) },
    { type: "scatter", mode: "lines", line: { color: colour(style.index), width: 1.5, shape: "hvh" }, ...share },
  ];
}

const percent = (value) => (value === null ? "–" : (100 * value).toFixed(1) + " %");

function reliabilityChart(figure, current) {
  const diagonal = () => ({ type: "scatter", mode: "lines", x: [0, 1], y: [0, 100], line: { color: ink().muted, dash: "dot", width: 1.5 }, hoverinfo: "skip" });
  return chart(figure, {
    label: "reliability diagram",
    height: "tall",
    caption: "Reliability: how often answers of each confidence are right. On the dotted diagonal they are right as often as they are sure, below it they are too sure. Underneath: how many images have which confidence.",
    series: () => {
      const { point, ensemble } = current();
      return [
        { name: point.name, style: { index: 0, symbol: "square" }, traces: [diagonal(), ...reliabilityTraces(point, point.name, { index: 0, bars: true })] },
        ...(ensemble ? [{ name: "ensemble of " + ensemble.name, style: { index: 1, dash: "solid", symbol: "circle" }, traces: reliabilityTraces(ensemble, "ensemble of " + ensemble.name, { index: 1, symbol: "circle" }) }] : []),
      ];
    },
    more: () => ({
      xaxis: { ...frame("Confidence"), range: [0, 1], anchor: "y2", tickformat: ".0%" },
      yaxis: { ...frame("Right (%)"), range: [0, 100], domain: [0.32, 1] },
      yaxis2: { ...frame("Images (%)"), domain: [0, 0.22], rangemode: "tozero", nticks: 4 },
      barmode: "overlay", hovermode: "closest",
    }),
    table: () => {
      const { point, ensemble } = current();
      const both = [point, ...(ensemble ? [{ ...ensemble, name: "ensemble of " + ensemble.name }] : [])];
      const bins = point.reliability.count.length;
      return {
        caption: `Reliability, ${data.split} split`,
        rows: point.reliability.count.map((_, bin) => bin),
        columns: [
          { label: "Confidence", header: true, text: (bin) => `${((100 * bin) / bins).toFixed(0)}–${((100 * (bin + 1)) / bins).toFixed(0)} %`, csv: { bin_from: (bin) => bin / bins, bin_to: (bin) => (bin + 1) / bins } },
          ...both.flatMap((one) => [
            { label: `${one.name}: images`, number: true, text: (bin) => String(one.reliability.count[bin]), csv: { [`${one.name}: images`]: (bin) => one.reliability.count[bin] } },
            ...[["confidence", "mean confidence"], ["accuracy", "right"]].map(([key, word]) => (
              { label: `${one.name}: ${word}`, number: true, text: (bin) => percent(one.reliability[key][bin]), csv: { [`${one.name}: ${word}`]: (bin) => one.reliability[key][bin] } })),
          ]),
        ],
      };
    },
  });
}
