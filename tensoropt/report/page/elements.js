"use strict";
// Elements, numbers with units, colours. Every text of the plan becomes a text node: names are never read as HTML.

const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const digits = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
const count = (value) => value.toLocaleString("en");
const counted = (value, one, several = `${one}s`) => `${count(value)} ${value === 1 ? one : several}`;
const percent = (share) => `${digits(100 * share)} %`;

const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

// The unit in which a number reads best, as [factor, name].
const unitOf = (units, value) => units.find(([factor]) => Math.abs(value) >= factor) ?? units.at(-1);

function inUnit(units, value) {
  let [factor, name] = unitOf(units, value);
  if (Math.abs(value / factor) >= 999.5 && units[0][0] !== factor) {
    [factor, name] = units[units.findIndex(([known]) => known === factor) - 1];
  }
  return `${digits(value / factor)} ${name}`;
}

const time = (nanoseconds) => (nanoseconds ? inUnit(TIMES, nanoseconds) : "0");
const size = (bytes) => (bytes ? inUnit(SIZES, bytes) : "0");

// The memory of a point as it is shown: its peak, or the sum of its kept tensors where that is unknown.
const memoryOf = (point) => point.peak_bytes ?? point.memory_bytes;
const SOURCES = { "dry run": "by a dry run", estimate: "estimated", interpolation: "interpolated between estimated points" };
const sourceOf = (point) => SOURCES[point.peak_source] ?? "the search's sum, as its peak is not predicted";

// How a number differs from the plan's: "12 % more".
function change(value, reference) {
  if (!reference || value === reference) return "as the plan";
  const share = value / reference - 1;
  if (Math.abs(share) < 0.0005) return "about as the plan";
  return share >= 1 ? `${digits(share + 1)} × the plan` : `${percent(Math.abs(share))} ${share > 0 ? "more" : "less"}`;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function fillLegend(id, entries) {
  byId(id).replaceChildren(
    ...entries.map(([name, colourName, shape = ""]) => {
      const key = element("span", { class: `key ${shape}`, "aria-hidden": "true" });
      key.style[shape === "hollow" || shape === "dashed" ? "borderColor" : "background"] = `var(--${colourName})`;
      return element("li", {}, key, name);
    }),
  );
}

// A name that a line may end after "/", "_", "." or "-", not within a word.
const breakable = (name) => name.split(/(?<=[/_.-])/).flatMap((part, place) => (place ? [element("wbr"), part] : [part]));

// A text whose parts that match a search are marked.
function marked(text, wanted) {
  const place = wanted ? text.toLowerCase().indexOf(wanted) : -1;
  if (place < 0) return breakable(text);
  const end = place + wanted.length;
  const [before, found, after] = [text.slice(0, place), text.slice(place, end), text.slice(end)];
  return [...breakable(before), element("mark", {}, ...breakable(found)), ...breakable(after)];
}

// Fill a table from a header and rows of cells; a cell is a node, a text, or [text, class].
function fillTable(id, header, rows) {
  const cell = (tag, content) => {
    const [text, name] = Array.isArray(content) ? content : [content, null];
    return element(tag, { class: name, scope: tag === "th" ? "col" : null }, text);
  };
  byId(id).replaceChildren(
    element("thead", {}, element("tr", {}, ...header.map((content) => cell("th", content)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((content) => cell("td", content))))),
  );
}
