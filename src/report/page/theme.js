// Colours. Those of data are Okabe and Ito's, which people who see colours differently can tell apart; the same on
// light and dark paper but for the two that would be lost there.

const data = JSON.parse(document.getElementById('data').textContent);

const isDark = () => document.documentElement.dataset.theme === 'dark';
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const STRATEGY_COLOURS = ['#d55e00', '#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#8a6d3b', '#999999'];
const CLASS_COLOURS = {
  __proto__: null,  // a name from a file finds nothing but these
  weights: '#0072b2', gradients: '#56b4e9', states: '#009e73', 'optimizer states': '#009e73', 'layer inputs': '#f0c808',
  activations: '#e69f00', loss: '#d55e00', workspace: '#cc79a7', other: '#999999', packing: '#c3c7cf',
};
// Of stages: any number of them, so the list begins again.
const PART_COLOURS = ['#0072b2', '#e69f00', '#009e73', '#d55e00', '#56b4e9', '#cc79a7', '#f0c808', '#8a6d3b'];

function lightened(colour) {
  return isDark() && colour === '#0072b2' ? '#3a9bdc' : !isDark() && colour === '#f0c808' ? '#e3bd00' : colour;
}
const colourOfStrategy = (place) => lightened(STRATEGY_COLOURS[place % STRATEGY_COLOURS.length]);
const colourOfClass = (name) => lightened(CLASS_COLOURS[name] ?? '#999999');
const colourOfPart = (place) => lightened(PART_COLOURS[place % PART_COLOURS.length]);

// Stripes, for what was planned and not measured.
function hatched(colour) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const pen = tile.getContext('2d');
  pen.globalAlpha = 0.16;
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 8, 8);
  pen.globalAlpha = 0.75;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.4;
  for (const shift of [-8, 0, 8]) {
    pen.beginPath();
    pen.moveTo(shift, 8);
    pen.lineTo(shift + 8, 0);
    pen.stroke();
  }
  return pen.createPattern(tile, 'repeat');
}

// The button goes from what the system prefers to the other and back.
const repaints = [];
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
  document.getElementById('theme').setAttribute('aria-label', `Switch to ${theme === 'dark' ? 'light' : 'dark'} colours`);
  for (const repaint of repaints) repaint();
}
const prefersDark = matchMedia('(prefers-color-scheme: dark)');
setTheme(prefersDark.matches ? 'dark' : 'light');
prefersDark.addEventListener('change', () => setTheme(prefersDark.matches ? 'dark' : 'light'));
document.getElementById('theme').addEventListener('click', () => setTheme(isDark() ? 'light' : 'dark'));
// Paper is white.
let themeOnScreen = null;
addEventListener('beforeprint', () => {
  themeOnScreen = document.documentElement.dataset.theme;
  for (const folded of document.querySelectorAll('details:not([open])')) {
    folded.open = true;
    folded.dataset.folded = '';
  }
  setTheme('light');
  for (const chart of Object.values(Chart.instances)) chart.resize();
});
addEventListener('afterprint', () => {
  setTheme(themeOnScreen);
  for (const folded of document.querySelectorAll('details[data-folded]')) {
    folded.open = false;
    delete folded.dataset.folded;
  }
  for (const chart of Object.values(Chart.instances)) chart.resize();
});

// element('p', {class: 'lead'}, 'text', child, …). Text from files becomes text, never markup.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
