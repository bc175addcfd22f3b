// The tables over all runs, how each was made, and the start of the page.

function factsTable() {
  const several = data.facts.some((fact) => fact.seeds.length > 1);
  const seeds = several ? ", mean ± standard deviation over seeds" : "";
  $("facts").replaceChildren(table({
    caption: `How good each answer is, and what it costs${seeds}; bold: the best` +
      (data.compared ? ` of those with ${data.compared}` : ""),
    rows: data.facts,
    group: (fact) => fact.heading,
    columns: [
      words("Answer", (fact) => fact.way, {
        header: true, csv: { method: (fact) => fact.group, answer: (fact) => fact.way, seeds: (fact) => fact.seeds.join(" ") },
      }),
      ...judgedColumns((fact) => fact.mean, several ? (fact) => fact.std : null, (fact) => fact.compared),
      figures("Networks at test", (fact) => String(fact.networks), "networks_at_test", (fact) => fact.networks),
      ...(trained ? [figures("Training time", (fact) => fact.time, "training_runs", (fact) => fact.runs, {
        csv: { training_runs: (fact) => fact.runs, training_seconds: (fact) => fact.seconds },
      })] : []),
    ],
  }));
}

function glossary(list, metrics) {
  list.replaceChildren(...metrics.flatMap((metric) =>
    [el("dt", {}, metric.label), el("dd", {}, `${metric.meaning}${better(metric)}.`)]));
}

const BY = { risk: "half of its error" };

function choicesSection() {
  const rows = data.runs.flatMap((run) => run.choices.map((choice) => ({ run, ...choice })));
  if (!rows.length) return leaveOut("choices");
  const digits = METRICS[place("accuracy")]?.digits ?? 1;
  const column = (label, name, metric = { percent: true, digits }) => {
    const value = (row) => row.reported[data.split]?.[name] ?? null;
    return figures(label + unit(metric), (row) => shown(metric, value(row), false), name, value);
  };
  const thresholds = rows.some((row) => "coverage" in (row.reported[data.split] ?? {}));
  const marked = ({ on_test, chosen_on }) =>
    (on_test ? el("span", { class: "mark" }, "⚠ chosen on the test set") : `the ${chosen_on} split`);
  $("choices-table").replaceChildren(table({
    caption: `What was chosen, and its numbers on the ${data.split} split`,
    rows,
    columns: [
      words("Run", ({ run }) => runName(run), { header: true, csv: { run: ({ run }) => run.name } }),
      words("Chosen", (row) => `${row.what}: ${row.value}`),
      words("By", (row) => METRICS[place(row.by)]?.label ?? BY[row.by] ?? row.by, { csv: { by: (row) => row.by } }),
      words("On", (row) => row.chosen_on, {
        content: marked, csv: { chosen_on: (row) => row.chosen_on, on_test: (row) => String(row.on_test) },
      }),
      ...TOLD.map((metric) => column(metric.label, metric.name, metric)),
      ...(thresholds ? [column("Answered", "coverage"), column("Error among them", "risk")] : []),
    ],
  }));
}

function runsSection() {
  const answers = data.runs.map((run) => ({ run, ...(run.own ?? run.points[0]) }));
  $("runs-table").replaceChildren(table({
    caption: `The own answer of each run, ${data.split} split`,
    rows: answers,
    columns: [
      words("Run", ({ run }) => run.name, { header: true }),
      words("Method", ({ run }) => data.groups[run.group].label),
      words("Answer", ({ name }) => name),
      ...(trained ? [figures("Seed", ({ run }) => String(run.seed ?? "–"), "seed", ({ run }) => run.seed)] : []),
      ...metricColumns((row) => row.metrics),
    ],
  }));
  $("runs-table").querySelector(".under").append(copyButton("Copy every evaluated point as CSV", everyPoint));
  $("runs-details").replaceChildren(...data.runs.map(runDetails));
}

function everyPoint() {
  const rows = data.runs.flatMap((run) => [
    ...run.points.map((point) => ({ ...point, run, kind: "point", alpha: JSON.stringify(point.alpha) })),
    ...run.ensembles.map((one) => ({ ...one, run, kind: "ensemble", alpha: one.name, role: "" })),
  ]);
  const own = ["kind", "role", "alpha"].map((name) => words(name, (row) => row[name]));
  return csv([
    words("run", ({ run }) => run.name), words("seed", ({ run }) => run.seed), words("split", () => data.split),
    ...own, ...metricColumns((row) => row.metrics),
  ], rows);
}

const bold = ([, value, differs]) => (differs ? el("strong", {}, value) : value);

function fieldsTable(caption, fields) {
  const columns = [
    words("Field", ([name]) => name, { header: true }),
    words("Value", ([, value]) => value, { content: bold }),
  ];
  return el("div", {}, el("h4", {}, caption), plainTable({ caption, hideCaption: true, rows: fields, columns }));
}

function runDetails(run) {
  const commands = run.commands.join("\n");
  const changed = run.fields.some(([, , differs]) => differs);
  const differs = changed ? "fields in bold differ from it" : "every field is as in it";
  const environments = run.environments.map((one) => fieldsTable(one.name, one.fields));
  if (!run.fields.length) {
    return el("details", { class: "run" }, el("summary", {}, run.name),
      el("div", { class: "body" }, el("div", { class: "fields" }, ...environments)));
  }
  return el("details", { class: "run" }, el("summary", {}, run.name), el("div", { class: "body" },
    el("pre", { tabindex: "0", "aria-label": "Commands" }, el("code", {}, commands)),
    el("div", { class: "under" }, copyButton("Copy the commands", () => commands + "\n", run.name)),
    el("p", { class: "notes" }, `Recipe ${run.recipe}; ${differs}.`),
    el("div", { class: "fields" }, fieldsTable("Configuration", run.fields), el("div", {}, ...environments))));
}

factsTable();
glossary($("glossary"), METRICS);
alongSection();
walkSection();
planesSection();
trainingSection();
selectiveSection();
shiftSection();
outliersSection();
choicesSection();
runsSection();
listSections();
showTheme();
