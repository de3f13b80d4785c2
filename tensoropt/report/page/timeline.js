// The timeline: the passes of a pipeline's stages; without stages, the time of each layer in the model's order.

const PASSES = [["forward", "c0"], ["backward", "c1"], ["once", "c2"]];
const PASS_NAMES = { forward: "forward pass", backward: "backward pass", once: "once a step: sums of gradients, updates" };

function showTimeline() {
  if (view.schedule.length) showSchedule();
  else showTimeByLayer();
}

function showSchedule() {
  byId("timeline-lede").textContent =
    `The predicted step, stage by stage: ${counted(view.summary.microbatches, "microbatch", "microbatches")}, in the order `
    + `${view.summary.schedule === "1f1b" ? "1F1B" : view.summary.schedule}. Where a stage has no bar, its devices wait.`;
  fitBars("timeline-frame", view.stages.length, 46);
  draw("timeline-chart", scheduleChart);
  byId("timeline-chart").setAttribute("aria-label", "Passes of all stages over one step; the table below has their times.");
  fillLegend("timeline-legend", PASSES.map(([kind, name]) => [PASS_NAMES[kind], name]));
  byId("stages").hidden = false;
  fillTable("stages-table",
    ["Stage", "Devices", "Begins with", ["Forward", "number"], ["Backward", "number"], ["Once", "number"], ["Waits", "number"],
      ["Memory", "number"]],
    view.stages.map((stage, number) => [
      String(number), stage.devices.join(", "), stage.layers.length ? layerLink(stage.layers[0]) : "–",
      [time(stage.forward_nanoseconds), "number"], [time(stage.backward_nanoseconds), "number"],
      [time(stage.once_nanoseconds), "number"], [percent(stage.waits), "number"],
      [size(stage.peak_bytes ?? stage.memory_bytes), "number"],
    ]));
}

function scheduleChart() {
  const last = Math.max(...view.schedule.map((pass) => pass.end));
  const name = (pass) => `stage ${pass.stage}`;
  return {
    type: "bar",
    data: {
      labels: view.stages.map((stage, number) => `stage ${number}`),
      datasets: PASSES.map(([kind, colourName]) => ({
        data: view.schedule.filter((pass) => pass.kind === kind).map((pass) => ({ x: [pass.start, pass.end], y: name(pass), pass })),
        backgroundColor: colour(colourName), borderColor: colour("card"), borderWidth: 1, borderSkipped: false,
        grouped: false, barThickness: 28,
      })),
    },
    options: settings({
      indexAxis: "y",
      scales: {
        x: amounts(TIMES, 0, last, "time since the step began"),
        y: { grid: { display: false } },
      },
      plugins: {
        tooltip: tooltip(
          (items) => capital(name(items[0].raw.pass)),
          (item) => {
            const { pass } = item.raw;
            const of = pass.kind === "once" ? "" : ` of microbatch ${pass.microbatch}`;
            return [`${PASS_NAMES[pass.kind]}${of}`, `${time(pass.start)} to ${time(pass.end)}`, `takes ${time(pass.end - pass.start)}`];
          },
        ),
      },
    }),
  };
}

function showTimeByLayer() {
  const shown = view.layers.filter((layer) => nanosecondsOf(layer));
  byId("timeline-lede").textContent =
    "All devices run the layers one after another, forward and then backward. Each layer has both passes in one bar. "
    + "Communication may run beside computing, so a step can be shorter than the sum. Click a bar for its layer.";
  byId("timeline-frame").style.height = "22rem";
  draw("timeline-chart", () => timeByLayerChart(shown));
  byId("timeline-chart").setAttribute("aria-label", "Time of each layer; the table of layers has the same numbers.");
  fillLegend("timeline-legend", [["computing", "compute"], ["communicating", "network"]]);
}

function timeByLayerChart(shown) {
  const bars = (field, name) => ({ data: shown.map((layer) => layer[field]), backgroundColor: colour(name), maxBarThickness: 34 });
  return {
    type: "bar",
    data: {
      labels: shown.map((layer) => (layer.name.length > 26 ? `…${layer.name.slice(-25)}` : layer.name)), // ends tell layers apart
      datasets: [bars("operators_nanoseconds", "compute"), bars("network_nanoseconds", "network")],
    },
    options: settings({
      onClick: (event, items) => items.length && goToLayer(shown[items[0].index].name),
      interaction: { mode: "index", intersect: false },
      scales: {
        x: { stacked: true, grid: { display: false }, ticks: { maxRotation: 55 } },
        y: amounts(TIMES, 0, Math.max(1, ...shown.map(nanosecondsOf)), "time in a step", { stacked: true }),
      },
      plugins: {
        tooltip: {
          ...tooltip(
            (items) => shown[items[0].dataIndex].name,
            (item) => `${item.datasetIndex ? "communicating" : "computing"} ${time(item.raw)}`,
          ),
          filter: (item) => item.raw > 0,
        },
      },
    }),
  };
}
