// The head of the page, the numbers of the plan, the parts of its step, and its notes.

function tile(name, value, ...more) {
  const lines = more.filter(Boolean).map((line) => element("dd", { class: "small" }, line));
  return element("div", {}, element("dt", {}, name), element("dd", { class: "big" }, value), ...lines);
}

function showOverview() {
  const { summary } = view;
  byId("heading").textContent = summary.sentence;
  const share = summary.network_nanoseconds / Math.max(1, summary.step_nanoseconds);
  const levels = summary.levels.map((level) => counted(level.count, level.name));
  const peak = summary.peak_bytes ?? summary.memory_bytes;
  const how = summary.peak_bytes === null ? "the search's sum" : summary.peak_is_estimated ? "estimated" : "by a dry run";
  const limit = summary.peak_bytes === null ? summary.memory_limit_bytes : summary.device_limit_bytes;
  byId("tiles").replaceChildren(
    tile("One step, predicted", time(summary.step_nanoseconds),
      `${time(summary.network_nanoseconds)} of it communicating (${percent(share)})`),
    tile("Peak memory of a device", size(peak), how, limit && `of ${size(limit)} that a plan may use`),
    tile("Devices", count(summary.devices), levels.length > 1 && levels.join(" of "), summary.cluster),
    tile("Way to run the step", summary.way,
      summary.copies > 1 && `${count(summary.copies)} copies of the pipeline`,
      `${count(summary.split_operators)} of ${counted(summary.operators, "operator")} that compute are split`),
  );
  showParts();
  byId("notes").hidden = !view.notes.length;
  byId("notes-list").replaceChildren(...view.notes.map((note) => element("li", {}, note)));
  byId("footer").textContent = data.footer;
}

function showParts() {
  const parts = view.summary.time.filter((part) => part.nanoseconds);
  if (!parts.length) return;
  byId("parts").hidden = false;
  const longest = parts.filter((part) => part.nanoseconds > 0);
  const all = longest.reduce((sum, part) => sum + part.nanoseconds, 0);
  byId("parts-bar").replaceChildren(
    ...longest.map((part, number) => {
      const bar = element("i", { title: `${part.name}: ${time(part.nanoseconds)}` });
      bar.style.cssText = `width: ${(100 * part.nanoseconds) / all}%; background: var(--c${number % 7})`;
      return bar;
    }),
  );
  const words = parts.map((part) => `${part.name} ${part.nanoseconds < 0 ? "−" : ""}${time(Math.abs(part.nanoseconds))}`);
  byId("parts-bar").setAttribute("aria-label", words.join(", "));
  fillLegend("parts-legend", parts.map((part, number) => {
    const place = longest.indexOf(part);
    return place < 0 ? [words[number], "line"] : [words[number], `c${place % 7}`];
  }));
}

function showSections() {
  const shown = [...document.querySelectorAll("main section:not([hidden])")].filter((section) => section.id !== "overview");
  byId("sections").replaceChildren(
    ...shown.map((section) => element("a", { href: `#${section.id}` }, NAMES[section.id])),
  );
}

const NAMES = {
  frontier: "Frontier", layers: "Layers", communication: "Communication", timeline: "Timeline", memory: "Memory",
  notes: "Notes",
};
