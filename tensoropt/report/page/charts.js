// Charts of Chart.js in the page's colours. A chart is drawn anew when the colours change.

const drawn = new Map();

// Draw the chart of a canvas; `configure` returns the configuration in the current colours.
function draw(id, configure) {
  drawn.get(id)?.chart.destroy();
  Chart.defaults.color = colour("soft");
  Chart.defaults.borderColor = colour("line");
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 13;
  const chart = new Chart(byId(id), configure());
  drawn.set(id, { chart, configure });
  return chart;
}

const chartOf = (id) => drawn.get(id)?.chart;

function drawAgain() {
  for (const [id, { configure }] of drawn) draw(id, configure);
}

function tooltip(title, lines) {
  return {
    displayColors: false,
    padding: 10,
    backgroundColor: colour("text"),
    titleColor: colour("card"),
    bodyColor: colour("card"),
    callbacks: { title, label: lines },
  };
}

// What all charts share: no animation, the page's own legend.
function settings(options) {
  const { plugins = {}, ...others } = options;
  return {
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    ...others,
    plugins: { legend: { display: false }, ...plugins },
  };
}

// An axis of nanoseconds or bytes: round ticks in one unit, which its title names.
function amounts(units, least, largest, title, further = {}) {
  const [factor, name] = unitOf(units, largest);
  const step = niceStep((largest - least || largest) / factor) * factor;
  return {
    type: "linear",
    min: Math.floor(least / step) * step,
    max: Math.ceil(largest / step) * step,
    title: { display: true, text: `${title} (${name})` },
    ticks: { callback: (value) => digits(value / factor), stepSize: step },
    ...further,
  };
}

// A round distance of ticks: about six on an axis.
function niceStep(range) {
  const rough = range / 6;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
}

// The height of a chart of horizontal bars.
function fitBars(id, bars, pixels = 26) {
  byId(id).style.height = `${Math.max(7, (bars * pixels + 70) / 16)}rem`;
}

// A long name, shortened in its middle; its two ends tell names apart.
function shortened(name, most = 38) {
  if (name.length <= most) return name;
  const start = Math.floor((most - 1) * 0.4);
  return `${name.slice(0, start)}…${name.slice(name.length - (most - 1 - start))}`;
}
