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
const layerLink = (name) => element("button", { type: "button", class: "link", onclick: () => goToLayer(name) }, ...breakable(name));
const placeOfLayer = (layer) => view.layers.indexOf(layer);

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
  const longest = longestOf(view.layers);
  table.querySelectorAll("tbody").forEach((body) => body.remove());
  table.append(...shown.map(([layer, operators]) => layerBody(layer, operators, longest)));
  const found = shown.reduce((sum, [, operators]) => sum + operators.length, 0);
  byId("matches").textContent = !wanted
    ? `${counted(view.layers.length, "row")}, ${counted(data.operators.name.length, "operator")}`
    : found ? `${counted(found, "operator")} in ${counted(shown.length, "row")}` : "no layer and no operator has this name";
}

function layerBody(layer, operators, longest) {
  const namesLayer = layers.wanted && operators === layer.operators;
  const isUnfolded = layers.unfolded.has(placeOfLayer(layer)) || (layers.wanted && !namesLayer);
  const button = element(
    "button",
    { type: "button", class: "link", "aria-expanded": String(Boolean(isUnfolded)), onclick: () => unfold(placeOfLayer(layer)) },
    ...marked(layer.name, layers.wanted),
  );
  const like = layer.names.length > 1 ? `${count(layer.names.length)} like layers, ` : "";
  const head = element("tr", { class: "layer" },
    element("td", { class: "name" }, button, element("div", { class: "count" }, `${like}${counted(layer.operators.length, "operator")}`)),
    element("td", {}, layer.words, layer.stage === null ? "" : element("div", { class: "count" }, `stage ${layer.stage}`)),
    element("td", { class: "timed" }, timeBar(layer.operators_nanoseconds, layer.network_nanoseconds, longest),
      layer.measured_nanoseconds === null ? "" : element("div", { class: "count" }, `operators measured: ${time(layer.measured_nanoseconds)}`)),
    element("td", { class: "number" }, size(layer.memory_bytes)),
    element("td", { class: "number" }, layer.weight_bytes ? size(layer.weight_bytes) : "–"));
  const body = element("tbody", { "data-layer": placeOfLayer(layer) }, head);
  if (isUnfolded) body.append(...unfolded(layer, operators, longest));
  return body;
}

function unfold(place) {
  if (!layers.unfolded.delete(place)) layers.unfolded.add(place);
  const body = layerBody(view.layers[place], matching(view.layers[place]), longestOf(view.layers));
  bodyOf(place).replaceWith(body);
  body.querySelector("button").focus();
}

const bodyOf = (place) => byId("layers-table").querySelector(`tbody[data-layer="${place}"]`);
const longestOf = (rows) => Math.max(1, ...rows.map(nanosecondsOf));

function goToLayer(name) {
  const place = view.layers.findIndex((layer) => layer.name === name || layer.names.includes(name));
  if (place < 0) return;
  byId("search").value = "";
  layers.unfolded.add(place);
  search("");
  bodyOf(place).scrollIntoView({ block: "center" });
  bodyOf(place).querySelector("button").focus();
}

function timeBar(computing, communicating, longest) {
  const part = (name, value) => {
    const bar = element("i", { class: name });
    bar.style.width = `${(100 * value) / longest}%`;
    return bar;
  };
  const words = [computing, communicating].filter(Boolean).map(time).join(" + ") || "0";
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
  const all = layers.more.has(placeOfLayer(layer));
  const shown = all ? operators : operators.slice(0, MOST_OPERATORS);
  for (const name of shown) yield operatorRow(name, longest);
  if (shown.length < operators.length) {
    const show = () => {
      layers.more.add(placeOfLayer(layer));
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
