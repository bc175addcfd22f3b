// Answers on shifted data: on average in a table, by kind and severity in a chart; and against outliers.

const CHANGE = { percent: true, digits: 1, signed: true };
const withSign = (text) => (parseFloat(text) > 0 ? "+" + text : text.replace(/^-/, "−"));

function shiftSection() {
  const { shift } = data;
  if (!shift) return leaveOut("shift");
  $("shift-lead").textContent = shift.lead;
  $("shift-table").replaceChildren(table(shiftTable(shift)));
  options($("shift-answer"), shift.answers.map((answer) => answer.name));
  options($("shift-metric"), shift.metrics.map((name) => METRICS[place(name)].label));
  const update = shiftChart(shift);
  for (const select of document.querySelectorAll("#shift select")) select.addEventListener("change", update);
}

// A column of numbers over seeds, which `of` gives as { mean, std } in the order of some metrics.
function seedColumn(label, name, metric, of, at, more = {}) {
  const [mean, std] = ["mean", "std"].map((part) => (row) => of(row)[part][at]);
  const plus = metric.signed ? withSign : (text) => text;
  const text = (row) => plus(spread(metric, mean(row), std(row)));
  return figures(label + unit(metric), text, name, mean, { ...more, csv: { [name]: mean, [name + "_std"]: std } });
}

function shiftTable(shift) {
  const told = shift.metrics.filter((name) => TOLD.some((metric) => metric.name === name));
  const shown = told.length ? told : shift.metrics.slice(0, 2);
  const several = shift.answers.some((answer) => answer.clean.std[0] !== null);
  return {
    caption: `On shifted data, ${shift.mean}` + (several ? "; mean ± standard deviation over seeds" : ""),
    rows: shift.answers,
    group: (answer) => answer.group,
    columns: [
      words("Answer", (answer) => answer.way, {
        header: true, csv: { method: (answer) => answer.group, answer: (answer) => answer.way },
      }),
      ...shown.flatMap((name) => {
        const [at, metric] = [shift.metrics.indexOf(name), METRICS[place(name)]];
        return [
          seedColumn(`${metric.label}, unchanged`, name, metric, (answer) => answer.clean, at),
          seedColumn(`${metric.label}, shifted`, `${name}_shifted`, metric, (answer) => answer.shifted, at),
          seedColumn("Relative change", `${name}_change`, CHANGE, (answer) => answer.change, at),
        ];
      }),
    ],
  };
}

const severityName = (severity) => (severity ? String(severity) : "as given");

function shiftChart(shift) {
  const answer = () => shift.answers[Number($("shift-answer").value)];
  const at = () => Number($("shift-metric").value);
  const metric = () => METRICS[place(shift.metrics[at()])];
  const part = () => $("shift-show").value;
  const shownAs = () => (part() === "change" ? CHANGE : metric());
  const number = (cell, what) => (cell ? cell[part()][what][at()] : null);
  const digits = () => `:${shownAs().signed ? "+" : ""}.${shownAs().digits}f`;
  const around = (cell) => {
    const std = number(cell, "std");
    return std === null ? "" : ` ± ${shown(shownAs(), std, false)}`;
  };
  const trace = () => ({
    type: "heatmap", x: shift.severities.map(severityName), y: shift.kinds.map(plain),
    z: answer().cells.map((line) => line.map((cell) => scaled(shownAs(), number(cell, "mean")))),
    customdata: answer().cells.map((line) => line.map(around)),
    colorscale: "Cividis", reversescale: !metric().higher, xgap: 2, ygap: 2, hoverongaps: false,
    texttemplate: `%{z${digits()}}`, textfont: { size: 12 },
    colorbar: { thickness: 14, outlinewidth: 0, tickfont: { color: ink().muted } },
    hovertemplate: `%{y}, severity %{x}: %{z${digits()}}%{customdata}${unit(shownAs())}<extra></extra>`,
  });
  const update = chart($("shift-figure"), {
    label: "a metric by kind and severity of shifted data",
    caption: () => {
      const of = part() === "change" ? `Relative change of ${metric().label} in %` : axis(metric());
      return `${answer().name}: ${of}.` + (metric().goal === null ? " Brighter is better." : "");
    },
    series: () => [{ name: answer().name, style: {}, traces: [trace()] }],
    more: () => ({
      xaxis: { ...frame("Severity"), type: "category", showgrid: false },
      yaxis: { ...frame(""), type: "category", range: [shift.kinds.length - 0.5, -0.5], showgrid: false },
    }),
    table: () => cellTable(shift, answer(), at(), metric()),
  });
  $("shift-figure").querySelector(".chart").style.height = `${8 + 1.8 * shift.kinds.length}rem`;
  return update;
}

function cellTable(shift, answer, at, metric) {
  const rows = shift.kinds.flatMap((kind, line) => shift.severities.map((severity, column) =>
    ({ kind, severity, cell: answer.cells[line][column] }))).filter((row) => row.cell);
  return {
    caption: `${metric.label} of ${answer.name} on shifted data`,
    rows,
    columns: [
      words("Data", (row) => row.kind, { header: true }),
      words("Severity", (row) => severityName(row.severity)),
      seedColumn(metric.label, metric.name, metric, (row) => row.cell.shifted, at),
      seedColumn("Relative change", `${metric.name}_change`, CHANGE, (row) => row.cell.change, at),
    ],
  };
}

function outliersSection() {
  const { outliers } = data;
  if (!outliers) return leaveOut("outliers");
  const several = outliers.rows.some((row) => row.std[0] !== null);
  $("outliers-table").replaceChildren(table({
    caption: "Telling outliers apart" + (several ? ", mean ± standard deviation over seeds" : ""),
    rows: outliers.rows,
    group: (row) => row.set,
    columns: [
      words("Answer", (row) => row.name, { header: true, csv: { outliers: (row) => row.set, answer: (row) => row.name } }),
      ...outliers.metrics.map((metric, at) =>
        seedColumn(metric.label, metric.name, metric, (row) => row, at, { title: metric.meaning })),
    ],
  }));
  glossary($("outliers-glossary"), outliers.metrics);
}
