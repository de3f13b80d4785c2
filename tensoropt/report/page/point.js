// The chosen point of the frontier: its numbers, its strategy, and how that differs from the plan's.

function showPoint(point) {
  const plan = planPoint();
  const isPlan = point.kind === "plan";
  byId("point-name").textContent = titleOf(point);
  const against = (value, reference) => (isPlan ? "" : element("span", { class: "change" }, ` ${change(value, reference)}`));
  const facts = [
    ["memory", `${size(memoryOf(point))}, ${sourceOf(point)}`, against(memoryOf(point), memoryOf(plan))],
    ["time, sum", time(point.nanoseconds), against(point.nanoseconds, plan.nanoseconds)],
    ["way", point.name, ""],
    ["fits", point.fits ? "yes" : "no, it needs more memory than a device may use", ""],
  ];
  byId("point-facts").replaceChildren(
    ...facts.flatMap(([name, value, more]) => [element("dt", {}, name), element("dd", {}, value, more)]),
  );
  const strategy = data.points.find((each) => each.number === point.number && point.number !== null);
  byId("point-strategy").replaceChildren(
    ...(isPlan ? strategyOfPlan() : strategy ? differences(point, strategy) : commandFor(point)),
  );
}

// The rows of the plan and how each is divided.
function strategyOfPlan() {
  const rows = view.layers.map((layer) => [layerLink(layer.name), layer.words]);
  return [element("p", { class: "same" }, "Its strategy, layer by layer:"), tableOf(["layer", "divided"], rows)];
}

// The rows of a point beside those of the plan, the differing ones first.
function differences(point, strategy) {
  const ofPlan = wordsByScope(view.layers);
  const rows = strategy.layers.map((layer) => {
    const before = [...new Set(layer.names.map((name) => ofPlan.get(name) ?? "not in the plan"))].join("; ");
    return { layer, before, differs: before !== layer.words };
  });
  const changed = rows.filter((row) => row.differs);
  const alike = rows.length - changed.length;
  const parts = [];
  parts.push(element("p", {}, changed.length
    ? `${count(changed.length)} of ${counted(rows.length, "row")} divided otherwise than in the plan:`
    : point.name === planPoint().name ? "Every layer is divided as in the plan; other operators or copies differ."
      : "Every layer is divided as in the plan; the way to run the step differs."));
  const cells = ({ layer, before, differs }) => [
    element("span", {}, ...breakable(layer.name)), differs ? layer.words : element("span", { class: "same" }, layer.words),
    differs ? before : element("span", { class: "same" }, "the same"),
  ];
  const shown = [...changed, ...rows.filter((row) => !row.differs)].map(cells);
  parts.push(tableOf(["layer", "this point", "the plan"], shown));
  if (alike && changed.length) parts.push(element("p", { class: "same" }, `${counted(alike, "row")} as in the plan.`));
  return parts;
}

function wordsByScope(layers) {
  const words = new Map();
  for (const layer of layers) for (const name of layer.names) words.set(name, layer.words);
  return words;
}

// What to do for the strategy of a point that the page lacks.
function commandFor(point) {
  if (point.number === null) return [element("p", { class: "same" }, "Shown for comparison; it is no point of the frontier.")];
  if (!point.fits) {
    return [element("p", { class: "same" },
      "This point needs more memory than the plan may use, so it is not planned. A larger --memory-limit may allow it.")];
  }
  return [
    element("p", { class: "same" }, "This page has no strategy for this point. This command plans it, with the options of the plan:"),
    element("pre", {}, element("code", {}, `tensoropt plan SCRIPT --devices ${view.summary.devices} --point ${point.number}`)),
  ];
}

function tableOf(header, rows) {
  return element("div", { class: "differences", tabindex: "0", role: "region", "aria-label": "Strategy" },
    element("table", {},
      element("thead", {}, element("tr", {}, ...header.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))))));
}
