// Memory: over the step where it is known, else at its peak.

function showMemory() {
  const { memory } = view;
  if (!memory.peak.length && !memory.step.length) {
    byId("memory").hidden = true;
    return;
  }
  const at = memory.at ? `, reached at ${memory.at}` : "";
  const { summary } = view;
  const byDryRun = summary.peak_bytes !== null && !summary.peak_is_estimated
    ? ` A dry run, which follows the kernels of a rank's program, finds a peak of ${size(summary.peak_bytes)}.` : "";
  byId("memory-lede").textContent = memory.step.length
    ? `What holds the memory over one step, estimated operator by operator. The peak is ${size(memory.peak_bytes)}${at}.${byDryRun}`
    : `What holds the memory ${view.stages.length ? "of the stage with the most" : "of a device"}, as the search adds it up: `
      + `${size(memory.peak_bytes)}${at}.${byDryRun}`;
  draw("memory-chart", memory.step.length ? memoryOverStep : memoryAtPeak);
  byId("memory-chart").setAttribute("aria-label",
    `At the peak: ${memory.peak.map((share) => `${share.holder} ${size(share.bytes)}`).join(", ")}`);
  const names = memory.step.length ? memory.holders : memory.peak.map((share) => share.holder);
  const atPeak = new Map(memory.peak.map((share) => [share.holder, share.bytes]));
  fillLegend("memory-legend", names.map((name, number) => [`${name} (${size(atPeak.get(name) ?? 0)}${memory.step.length ? " at the peak" : ""})`, `c${number % 7}`]));
  byId("alive").hidden = !memory.alive.length;
  fillTable("alive-table", ["Largest tensors at the peak", "Layer", "Holds", ["Bytes", "number"]],
    memory.alive.map((tensor) => [tensor.name, tensor.layer ? layerLink(tensor.layer) : "–", tensor.holder, [size(tensor.bytes), "number"]]));
}

function memoryOverStep() {
  const { memory } = view;
  const largest = memory.step.map((event) => event.bytes.reduce((sum, bytes) => sum + bytes, 0));
  return {
    type: "line",
    data: {
      datasets: memory.holders.map((holder, number) => ({
        label: holder, data: memory.step.map((event) => ({ x: event.event, y: event.bytes[number] })), stepped: true, fill: number ? "-1" : "origin",
        backgroundColor: colour(`c${number % 7}`), borderWidth: 0, pointRadius: 0, pointHitRadius: 4,
      })),
    },
    options: settings({
      interaction: { mode: "index", intersect: false },
      onClick: (event, items) => items.length && memory.step[items[0].index].layer && goToLayer(memory.step[items[0].index].layer),
      scales: {
        x: { type: "linear", min: 0, max: memory.step.at(-1).event, grid: { display: false }, ticks: { includeBounds: false },
          title: { display: true, text: "operators of the step in their order" } },
        y: amounts(SIZES, 0, Math.max(...largest), "memory", { stacked: true }),
      },
      plugins: {
        tooltip: {
          ...tooltip(
            (items) => `${memory.step[items[0].dataIndex].at}: ${size(largest[items[0].dataIndex])}`,
            (item) => (item.raw.y ? `${item.dataset.label} ${size(item.raw.y)}` : ""),
          ),
          filter: (item) => item.raw.y > 0,
        },
      },
    }),
  };
}

function memoryAtPeak() {
  const { peak } = view.memory;
  return {
    type: "bar",
    data: {
      labels: peak.map((share) => share.holder),
      datasets: [{ data: peak.map((share) => share.bytes), backgroundColor: peak.map((share, number) => colour(`c${number % 7}`)), maxBarThickness: 26 }],
    },
    options: settings({
      indexAxis: "y",
      scales: {
        x: amounts(SIZES, 0, Math.max(...peak.map((share) => share.bytes)), "memory"),
        y: { grid: { display: false } },
      },
      plugins: { tooltip: tooltip((items) => items[0].label, (item) => size(item.raw)) },
    }),
  };
}
