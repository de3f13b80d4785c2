// Communication sorted by its cost: bars of the costliest, a table of all.

const FIRST_ROWS = 20;
const FIRST_BARS = 10;
const PURPOSES = {
  forward: "a tensor on its way to its readers",
  backward: "a gradient on its way back",
  "gradient sum": "the sum of weights' gradients over the devices",
  statistics: "averages of batch normalisation over the devices",
  inside: "a collective inside an operator that the devices share",
  again: "a tensor that is resharded again for the backward pass",
  "between stages": "a message between stages of the pipeline",
  "back between stages": "a gradient on its way back to the stage before",
};

function showCommunication() {
  const all = view.communication;
  if (!all.length) {
    byId("communication-lede").textContent = view.summary.network_nanoseconds
      ? `A step communicates ${time(view.summary.network_nanoseconds)}; this plan does not list its collectives.`
      : "The devices of this plan do not communicate.";
    byId("communication-body").hidden = true;
    return;
  }
  const sum = all.reduce((total, each) => total + each.nanoseconds, 0);
  byId("communication-lede").textContent =
    `${time(sum)} of a step if nothing runs beside it. Bytes are those of one device before one collective; times are those of a whole step.`;
  const first = all.slice(0, FIRST_BARS);
  fitBars("communication-frame", first.length, 38);
  draw("communication-chart", () => communicationChart(first));
  byId("communication-chart").setAttribute("aria-label", `Bars of the ${first.length} costliest communications; the table below has all.`);
  fillCommunication(FIRST_ROWS);
}

function communicationChart(first) {
  return {
    type: "bar",
    data: {
      labels: first.map((each) => [shortened(each.what), shortened(each.source, 42)]),
      datasets: [{ data: first.map((each) => each.nanoseconds), backgroundColor: colour("network"), barThickness: 15 }],
    },
    options: settings({
      indexAxis: "y",
      onClick: (event, items) => items.length && chooseCommunication(items[0].index),
      interaction: { mode: "y", intersect: false },
      scales: {
        x: amounts(TIMES, 0, first[0].nanoseconds, "time in a step"),
        y: { grid: { display: false }, ticks: { autoSkip: false } },
      },
      plugins: {
        tooltip: tooltip(
          (items) => first[items[0].dataIndex].what,
          (item) => communicationLines(first[item.dataIndex]),
        ),
      },
    }),
  };
}

function communicationLines(each) {
  return [
    `${PURPOSES[each.purpose] ?? each.purpose}`,
    `${each.collectives.join(", then ")} over ${each.over}`,
    `${count(each.times)} × ${size(each.bytes)}: ${time(each.nanoseconds)}`,
  ];
}

function fillCommunication(most) {
  const table = byId("communication-table");
  const shown = view.communication.slice(0, most);
  table.querySelectorAll("tbody").forEach((body) => body.remove());
  table.append(element("tbody", {}, ...shown.map(communicationRow)));
  const more = byId("communication-more");
  more.hidden = shown.length === view.communication.length;
  more.textContent = `Show all ${count(view.communication.length)}`;
  more.onclick = () => fillCommunication(view.communication.length);
}

function communicationRow(each) {
  const readers = [...new Set(each.targets)].filter((name) => name && name !== each.source);
  const links = [layerLink(each.source), ...readers.map((name) => element("div", { class: "reader" }, "→", layerLink(name)))];
  return element("tr", {},
    element("td", {}, ...breakable(each.what)),
    element("td", { title: PURPOSES[each.purpose] }, each.purpose),
    element("td", {}, ...links),
    element("td", {}, each.collectives.join(", then "), element("div", { class: "count" }, `over ${each.over}`)),
    element("td", { class: "number" }, size(each.bytes)),
    element("td", { class: "number" }, count(each.times)),
    element("td", { class: "number" }, time(each.nanoseconds)));
}

function chooseCommunication(place) {
  const rows = byId("communication-table").tBodies[0].rows;
  for (const row of rows) row.classList.toggle("chosen", row === rows[place]);
  rows[place].scrollIntoView({ block: "nearest" });
}
