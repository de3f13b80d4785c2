// Read the data and show every section.

const data = JSON.parse(byId("data").textContent);
const { view } = data;

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "Light colours" : "Dark colours";
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
byId("theme").addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  drawAgain();
  showParts();
});
showOverview();
showLayers();
showFrontier();
showCommunication();
showTimeline();
showMemory();
showSections();
document.documentElement.dataset.ready = "yes";
