// The frontier: a chart of its points, and the strategy of the chosen one beside it.

const frontier = {
  points: [], // those of the view, the least memory first
  chosen: 0, // position in `points`
};

const planPoint = () => frontier.points.find((point) => point.kind === "plan");
const titleOf = (point) => (point.kind === "plan" ? "The plan" : point.number === null ? capital(point.name) : `Point ${point.number}`);
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function showFrontier() {
  frontier.points = view.frontier;
  frontier.chosen = frontier.points.indexOf(planPoint());
  if (!frontier.points.length) {
    byId("frontier").hidden = true;
    return;
  }
  draw("frontier-chart", frontierChart);
  showFarPoints();
  const canvas = byId("frontier-chart");
  canvas.setAttribute("aria-valuemin", "0");
  canvas.setAttribute("aria-valuemax", String(frontier.points.length - 1));
  canvas.addEventListener("keydown", moveByKey);
  byId("point-before").addEventListener("click", () => choosePoint(frontier.chosen - 1));
  byId("point-after").addEventListener("click", () => choosePoint(frontier.chosen + 1));
  byId("point-plan").addEventListener("click", () => choosePoint(frontier.points.indexOf(planPoint())));
  choosePoint(frontier.chosen);
}

function moveByKey(event) {
  const last = frontier.points.length - 1;
  const steps = {
    ArrowLeft: frontier.chosen - 1, ArrowDown: frontier.chosen - 1, ArrowRight: frontier.chosen + 1,
    ArrowUp: frontier.chosen + 1, Home: 0, End: last, PageUp: frontier.chosen + 10, PageDown: frontier.chosen - 10,
  };
  if (!(event.key in steps)) return;
  event.preventDefault();
  choosePoint(Math.min(last, Math.max(0, steps[event.key])));
}

// The points of the chart: without those to compare with that are so far away that they squeeze the others.
function inPicture() {
  const near = frontier.points.filter((point) => point.number !== null || point.kind === "plan");
  const memory = 1.7 * Math.max(...near.map(memoryOf));
  const nanoseconds = 1.7 * Math.max(...near.map((point) => point.nanoseconds));
  return frontier.points.filter((point) => memoryOf(point) <= memory && point.nanoseconds <= nanoseconds);
}

function showFarPoints() {
  const shown = new Set(inPicture());
  byId("far-points").replaceChildren(...frontier.points.filter((point) => !shown.has(point)).map((point) => {
    const choose = () => choosePoint(frontier.points.indexOf(point));
    return element("li", {}, "outside the picture: ", element("button", { type: "button", class: "link", onclick: choose }, point.name),
      `, ${size(memoryOf(point))}, ${time(point.nanoseconds)}`);
  }));
}

function frontierChart() {
  const at = (point) => ({ x: memoryOf(point), y: point.nanoseconds, point });
  const of = (kind) => inPicture().filter((point) => point.kind === kind).map(at);
  const onFrontier = frontier.points.filter((point) => point.number !== null).map(at);
  const shown = inPicture();
  const xs = shown.map(memoryOf);
  const ys = shown.map((point) => point.nanoseconds);
  const byPeaks = frontier.points.some((point) => point.peak_bytes !== null);
  const allPeaks = frontier.points.every((point) => point.peak_bytes !== null);
  const limit = byPeaks ? view.summary.device_limit_bytes : view.summary.memory_limit_bytes;
  const isNear = limit !== null && limit <= 1.6 * Math.max(...xs);
  const fits = (item) => item.raw?.point?.fits;
  const dot = (name, radius, style = "circle") => ({
    pointStyle: style, pointRadius: radius, pointHoverRadius: radius + 2, pointHitRadius: 8, pointBorderWidth: 2,
    pointBorderColor: colour(name),
    pointBackgroundColor: (item) => (fits(item) ? colour(name) : colour("card")),
  });
  const points = frontier.points.length > 40 ? 3 : 4.5;
  const datasets = [
    { data: [frontier.points[frontier.chosen]].filter((point) => shown.includes(point)).map(at), ...dot("accent", 12), pointBackgroundColor: "transparent", order: 0 },
    { data: of("plan"), ...dot("plan", 8, "rectRot"), order: 1 },
    { data: of("data parallelism"), ...dot("other", 6, "triangle"), order: 2 },
    { data: of("other algorithm"), ...dot("other", 5, "rect"), order: 2 },
    { data: onFrontier, showLine: true, stepped: "before", borderColor: colour("compute"), borderWidth: 1.5, ...dot("compute", points), order: 3 },
  ];
  if (isNear) {
    datasets.push({
      data: [{ x: limit, y: 0 }, { x: limit, y: 2 * Math.max(...ys) }], showLine: true, borderDash: [6, 5],
      borderColor: colour("limit"), borderWidth: 2, pointRadius: 0, pointHitRadius: 0, order: 4,
    });
  }
  fillLegend("frontier-legend", [
    ["the plan", "plan", "diamond"],
    ["frontier", "compute", "round"],
    ...(of("data parallelism").length ? [["data parallelism", "other", "triangle"]] : []),
    ...(of("other algorithm").length ? [["other strategies", "other"]] : []),
    ...(frontier.points.some((point) => !point.fits) ? [["does not fit the memory", "compute", "hollow"]] : []),
    ...(isNear ? [["memory limit", "limit", "dashed"]] : []),
  ]);
  return {
    type: "scatter",
    data: { datasets },
    options: settings({
      onClick: (event, items) => {
        const found = items.map((item) => datasetPoint(item)).find(Boolean);
        if (found) choosePoint(frontier.points.indexOf(found));
      },
      onHover: (event, items) => {
        event.native.target.style.cursor = items.length ? "pointer" : "default";
      },
      interaction: { mode: "nearest", intersect: true },
      scales: {
        x: amounts(SIZES, ...ends(xs, isNear ? limit : 0), byPeaks ? `peak of memory of a device${allPeaks ? "" : ", or the search's sum where it is unknown"}` : "memory of a device, the search's sum"),
        y: amounts(TIMES, ...ends(ys, 0), "the search's sum of times"),
      },
      plugins: {
        tooltip: {
          ...tooltip(
            (items) => titleOf(items[0].raw.point),
            (item) => frontierLines(item.raw.point),
          ),
          filter: (item, place) => place === 0 && item.raw.point !== undefined,
        },
      },
    }),
  };
}

const datasetPoint = (item) => chartOf("frontier-chart").data.datasets[item.datasetIndex].data[item.index].point;

// The ends of an axis: 0 where the numbers are far apart, else near the numbers.
function ends(values, limit) {
  const least = Math.min(...values);
  const largest = Math.max(...values, limit);
  const room = 0.04 * (largest - least || largest);
  return [least < 0.4 * largest ? 0 : least - room, largest + room];
}

function frontierLines(point) {
  const lines = [
    `memory ${size(memoryOf(point))}, ${sourceOf(point)}`,
    `time ${time(point.nanoseconds)} (the search's sum)`,
  ];
  lines.push(point.name, point.fits ? "fits the memory" : "does not fit the memory");
  return lines;
}

function choosePoint(place) {
  if (place < 0 || place >= frontier.points.length) return;
  frontier.chosen = place;
  const point = frontier.points[place];
  const ring = chartOf("frontier-chart");
  ring.data.datasets[0].data = inPicture().includes(point) ? [{ x: memoryOf(point), y: point.nanoseconds, point }] : [];
  ring.update("none");
  const canvas = byId("frontier-chart");
  canvas.setAttribute("aria-valuenow", String(place));
  canvas.setAttribute("aria-valuetext", `${titleOf(point)}: ${frontierLines(point).join(", ")}`);
  byId("point-before").disabled = place === 0;
  byId("point-after").disabled = place === frontier.points.length - 1;
  byId("point-plan").disabled = point.kind === "plan";
  showPoint(point);
}
