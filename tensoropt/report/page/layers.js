// Layers that unfold into their operators, with a search by name. Operators' rows are made when they are shown.

const MOST_OPERATORS = 200; // shown of one layer at once
const layers = { unfolded: new Set(), more: new Set(), wanted: "" };
const placeOf = new Map(); // of an operator among the columns of `data.operators`

function showLayers() {
  data.operators.name.forEach((name, place) => placeOf.set(name, place));
  byId("search").addEventListener("input", () => search(byId("search").value));
  byId("order").addEventListener("change", fillLayers);
  byId("fold").addEventListener("click", () => {
    layers.unfolded.clear();
    byId("search").value = "";
    search("");
  });
  fillLayers();
}

const nanosecondsOf = (layer) => layer.operators_nanoseconds + layer.network_nanoseconds;
const layerLink = (name) => element("button", { type: "button", class: "link", onclick: () => goToLayer(name) }, name);

function search(text) {
  layers.wanted = text.trim().toLowerCase();
  fillLayers();
}

// The operators of a layer that a search asks for; all of them if the layer itself has the name.
function matching(layer) {
  const { wanted } = layers;
  if (!wanted || [layer.name, ...layer.names].some((name) => name.toLowerCase().includes(wanted))) return layer.operators;
  return layer.operators.filter((name) => {
    const place = placeOf.get(name);
    return name.toLowerCase().includes(wanted) || (place !== undefined && typeOf(place).toLowerCase() === wanted);
  });
}

const typeOf = (place) => data.texts[data.operators.type[place]];

function fillLayers() {
  const table = byId("layers-table");
  const { wanted } = layers;
  const shown = view.layers.map((layer) => [layer, matching(layer)]).filter(([, operators]) => !wanted || operators.length);
  if (byId("order").value === "time") shown.sort(([a], [b]) => nanosecondsOf(b) - nanosecondsOf(a));
  const longest = Math.max(1, ...view.layers.map(nanosecondsOf));
  table.querySelectorAll("tbody").forEach((body) => body.remove());
  table.append(...shown.map(([layer, operators]) => layerBody(layer, operators, longest)));
  const found = shown.reduce((sum, [, operators]) => sum + operators.length, 0);
  byId("matches").textContent = !wanted
    ? `${counted(view.layers.length, "row")}, ${counted(data.operators.name.length, "operator")}`
    : found ? `${counted(found, "operator")} in ${counted(shown.length, "row")}` : "no layer and no operator has this name";
}

function layerBody(layer, operators, longest) {
  const namesLayer = layers.wanted && operators === layer.operators;
  const isUnfolded = layers.unfolded.has(layer.name) || (layers.wanted && !namesLayer);
  const button = element(
    "button",
    { type: "button", class: "link", "aria-expanded": String(Boolean(isUnfolded)), onclick: () => unfold(layer.name) },
    ...marked(layer.name, layers.wanted),
  );
  const like = layer.names.length > 1 ? `${count(layer.names.length)} like layers, ` : "";
  const head = element("tr", { class: "layer" },
    element("td", { class: "name" }, button, element("div", { class: "count" }, `${like}${counted(layer.operators.length, "operator")}`)),
    element("td", {}, layer.words, layer.stage === null ? "" : element("div", { class: "count" }, `stage ${layer.stage}`)),
    element("td", { class: "timed" }, timeBar(layer.operators_nanoseconds, layer.network_nanoseconds, longest)),
    element("td", { class: "number" }, size(layer.memory_bytes)),
    element("td", { class: "number" }, layer.weight_bytes ? size(layer.weight_bytes) : "–"));
  const body = element("tbody", { "data-layer": layer.name }, head);
  if (isUnfolded) body.append(...unfolded(layer, operators, longest));
  return body;
}

function unfold(name) {
  const { unfolded } = layers;
  if (!unfolded.delete(name)) unfolded.add(name);
  const layer = view.layers.find((each) => each.name === name);
  const longest = Math.max(1, ...view.layers.map(nanosecondsOf));
  const body = layerBody(layer, matching(layer), longest);
  bodyOf(name).replaceWith(body);
  body.querySelector("button").focus();
}

const bodyOf = (name) => [...byId("layers-table").tBodies].find((body) => body.dataset.layer === name);

function goToLayer(name) {
  byId("search").value = "";
  layers.unfolded.add(name);
  search("");
  const body = bodyOf(name);
  if (!body) return;
  body.scrollIntoView({ block: "center" });
  body.querySelector("button").focus();
}

function timeBar(computing, communicating, longest) {
  const part = (name, value) => {
    const bar = element("i", { class: name });
    bar.style.width = `${(100 * value) / longest}%`;
    return bar;
  };
  const words = communicating ? `${time(computing)} + ${time(communicating)}` : time(computing);
  return element("div", { class: "value" },
    element("span", { class: "bar", "aria-hidden": "true" }, part("compute", computing), part("network", communicating)),
    element("span", {}, words));
}

function* unfolded(layer, operators, longest) {
  const wide = (...content) => element("tr", { class: "more" }, element("td", { colspan: "5" }, ...content));
  for (const repeated of layer.replicated) {
    yield wide(`${counted(repeated.operators.length, "operator")} repeated on ${count(repeated.copies)} devices: ${repeated.why}`
      + ` (${time(repeated.nanoseconds)})`);
  }
  const all = layers.more.has(layer.name);
  const shown = all ? operators : operators.slice(0, MOST_OPERATORS);
  for (const name of shown) yield operatorRow(name, longest);
  if (shown.length < operators.length) {
    const show = () => {
      layers.more.add(layer.name);
      fillLayers();
    };
    yield wide(element("button", { type: "button", onclick: show }, `Show ${count(operators.length - shown.length)} more operators`));
  }
}

function operatorRow(name, longest) {
  const place = placeOf.get(name);
  const known = place !== undefined;
  const columns = data.operators;
  return element("tr", { class: "operator" },
    element("td", { class: "name" }, ...marked(name, layers.wanted), known ? element("div", { class: "count" }, typeOf(place)) : ""),
    element("td", {}, known ? element("code", {}, data.texts[columns.maps[place]]) : ""),
    element("td", { class: "timed" }, known ? timeBar(columns.nanoseconds[place], 0, longest) : ""),
    element("td", { class: "number" }, known ? size(columns.bytes[place]) : ""),
    element("td", {}));
}
