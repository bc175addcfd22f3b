// The tables over all runs, how each was made, and the start of the page.

function factsTable() {
  const several = data.facts.some((fact) => fact.seeds > 1);
  $("facts").replaceChildren(table({
    caption: `What each way to predict gives and costs${several ? ", mean ± standard deviation over seeds" : ""}; bold: the best of a column`,
    rows: data.facts,
    group: (fact) => fact.group,
    columns: [
      { label: "Prediction by", header: true, text: (fact) => fact.way, csv: { trained: (fact) => fact.group, prediction_by: (fact) => fact.way } },
      ...metricColumns((fact) => fact.mean, several ? (fact) => fact.std : null),
      { label: "Training runs", number: true, text: () => "1", csv: { training_runs: () => 1 } },
      { label: "Networks at test", number: true, text: (fact) => String(fact.networks), csv: { networks_at_test: (fact) => fact.networks, seeds: (fact) => fact.seeds } },
    ],
  }));
}

function runsSection() {
  const rows = data.runs.flatMap((run) => {
    const mid = run.points.find((point) => point.role === "midpoint") ?? run.points[0];
    return mid ? [{ run, metrics: mid.metrics }] : [];
  });
  const text = (label, get, extra = {}) => ({ label, text: get, ...extra });
  $("runs-table").replaceChildren(table({
    caption: `The midpoint of each run, or its one network, on the ${data.split} split`,
    rows,
    columns: [
      text("Run", (row) => row.run.name, { header: true }), text("Trained", (row) => data.groups[row.run.group].label),
      text("Seed", (row) => String(row.run.seed), { number: true }),
      ...metricColumns((row) => row.metrics).map(({ best, ...column }) => column), // one run proves nothing
    ],
  }));
  $("runs-table").querySelector(".under").append(copyButton("Copy every evaluated point as CSV", () => everyPoint()));
  $("runs-details").replaceChildren(...data.runs.map(runDetails));
}

function everyPoint() {
  const rows = data.runs.flatMap((run) => [
    ...run.points.map((point) => ({ run, kind: "point", where: JSON.stringify(point.alpha), role: point.role, ...point })),
    ...run.ensembles.map((one) => ({ run, kind: "ensemble", where: one.name, role: "", ...one })),
  ]);
  const columns = { run: (row) => row.run.name, seed: (row) => row.run.seed, split: () => data.split, kind: (row) => row.kind, role: (row) => row.role, alpha: (row) => row.where };
  return csv([{ csv: columns }, ...metricColumns((row) => row.metrics)], rows);
}

function fieldsTable(caption, fields) {
  return el("div", {}, el("h4", {}, caption), plainTable({
    caption, hideCaption: true, rows: fields,
    columns: [{ label: "Field", header: true, text: ([name]) => name }, { label: "Value", text: ([, value]) => value, content: ([, value, changed]) => (changed ? el("strong", {}, value) : value) }],
  }));
}

function runDetails(run) {
  const commands = run.commands.join("\n");
  const changed = run.fields.filter(([, , differs]) => differs).length;
  return el("details", { class: "run" }, el("summary", {}, run.name),
    el("div", { class: "body" },
      el("pre", { tabindex: "0", "aria-label": "Commands" }, el("code", {}, commands)), el("div", { class: "under" }, copyButton("Copy the commands", () => commands + "\n", run.name)),
      el("p", { class: "notes" }, `Recipe ${run.recipe}; ${changed ? "fields in bold differ from it" : "every field is as in it"}.`),
      el("div", { class: "fields" }, fieldsTable("Configuration", run.fields), el("div", {}, ...run.environments.map((one) => fieldsTable(one.name, one.fields))))));
}

function choicesSection() {
  const rows = data.runs.flatMap((run) => run.choices.map((choice) => ({ run, ...choice })));
  if (!rows.length) return leaveOut("choices");
  const reported = (row, name) => row.reported[data.split]?.[name] ?? null;
  const column = (label, name) => ({
    label, number: true, text: (row) => (reported(row, name) === null ? "–" : (100 * reported(row, name)).toFixed(digits)), csv: { [name]: (row) => reported(row, name) },
  });
  const digits = METRICS[place("accuracy")].digits;
  $("choices-table").replaceChildren(table({
    caption: `What was chosen, and its numbers on the ${data.split} split`,
    rows,
    columns: [
      { label: "Run", header: true, text: (row) => `${data.groups[row.run.group].label}, seed ${row.run.seed}`, csv: { run: (row) => row.run.name } },
      { label: "Chosen", text: (row) => `${row.what}: ${row.value}` },
      { label: "By", text: (row) => row.by },
      { label: "On", text: (row) => row.chosen_on, content: (row) => (row.on_test ? el("span", { class: "mark" }, "⚠ chosen on the test set") : `the ${row.chosen_on} split`), csv: { chosen_on: (row) => row.chosen_on, on_test: (row) => String(row.on_test) } },
      column("Accuracy %", "accuracy"), column("ECE %", "ece"), column("Answered %", "coverage"), column("Error among them %", "risk"),
    ],
  }));
}

factsTable();
alongSection();
walkSection();
planesSection();
trainingSection();
selectiveSection();
choicesSection();
runsSection();
listSections();
showTheme();
