// A chart with its title and its downloads. `settings()` gives the chart's configuration in today's colours, `rows()`
// what its CSV has, the first row being the names.

function download(name, url) {
  const link = element('a', {href: url, download: name});
  document.body.append(link);
  link.click();
  link.remove();
}

function saveCsv(name, rows) {
  const url = URL.createObjectURL(new Blob([csvText(rows)], {type: 'text/csv'}));
  download(`${name}.csv`, url);
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// The chart on its paper, with its title over it.
function savePng(name, title, canvas) {
  const scale = canvas.width / canvas.clientWidth, head = 40 * scale, edge = 16 * scale;
  const sheet = element('canvas', {width: canvas.width + 2 * edge, height: canvas.height + head + edge});
  const pen = sheet.getContext('2d');
  pen.fillStyle = ink('paper');
  pen.fillRect(0, 0, sheet.width, sheet.height);
  pen.fillStyle = ink('ink');
  pen.font = `600 ${16 * scale}px system-ui, sans-serif`;
  pen.fillText(title, edge, 27 * scale);
  pen.drawImage(canvas, edge, head);
  download(`${name}.png`, sheet.toDataURL('image/png'));
}

const narrow = () => innerWidth < 760;

function commonSettings(given) {
  const soft = ink('soft'), scales = {};
  for (const [name, scale] of Object.entries(given.options.scales ?? {})) {
    scales[name] = {
      ...scale,
      border: {display: false},
      grid: {color: ink('line'), drawBorder: false, drawTicks: false, ...scale.grid},
      ticks: {color: soft, font: {size: 12}, padding: 6, ...scale.ticks},
      title: scale.title ? {display: true, color: soft, font: {size: 12.5}, ...scale.title} : {display: false},
    };
  }
  const plugins = given.options.plugins ?? {};
  return {
    ...given,
    options: {
      animation: false, responsive: true, maintainAspectRatio: false, normalized: true,
      ...given.options,
      scales,
      plugins: {
        ...plugins,
        legend: {display: false},
        tooltip: {
          backgroundColor: isDark() ? '#2a2e38' : '#20232b', titleColor: '#fff', bodyColor: '#eceef2', footerColor: '#eceef2',
          footerFont: {weight: 'normal'}, padding: 10, boxPadding: 4, boxWidth: 10, boxHeight: 10, usePointStyle: true, cornerRadius: 6, titleFont: {size: 13}, bodyFont: {size: 13},
          ...plugins.tooltip,
          callbacks: {
            labelColor: ({dataset}) => {
              const colour = dataset.colour ?? dataset.backgroundColor;
              return {borderColor: colour, backgroundColor: colour};
            },
            labelPointStyle: () => ({pointStyle: 'rectRounded', rotation: 0}),
            ...plugins.tooltip?.callbacks,
          },
        },
      },
    },
  };
}

function figure({name, title, unit, label, height = 300, settings, rows, keys = true}) {
  const canvas = element('canvas', {id: name, role: 'img', tabindex: '0', 'aria-label': label ?? title});
  const plot = element('div', {class: 'plot', style: `height:${height}px`}, canvas);
  const csv = element('button', {type: 'button', 'aria-label': `${title}: download as CSV`}, 'CSV');
  const png = element('button', {type: 'button', 'aria-label': `${title}: download as PNG`}, 'PNG');
  csv.addEventListener('click', () => saveCsv(name, rows()));
  png.addEventListener('click', () => savePng(name, title + (unit ? `, ${unit}` : ''), canvas));
  const heading = element('h3', {}, title, unit ? element('span', {class: 'unit'}, ` ${unit}`) : null);
  const root = element('figure', {}, element('figcaption', {}, heading, element('span', {class: 'tools'}, csv, png)), plot);

  let chart = null;
  const draw = () => {
    chart?.destroy();
    chart = new Chart(canvas, commonSettings(settings()));
    root.chart = chart;
  };
  repaints.push(() => chart && draw());
  if (keys) readByKeys(canvas, () => chart);
  return {root, canvas, heading, draw, chart: () => chart};
}

// Left and right go from group to group, and say what stands there.
function readByKeys(canvas, chartNow) {
  let at = -1;
  canvas.addEventListener('keydown', (event) => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const chart = chartNow();
    if (!step || !chart) return;
    event.preventDefault();
    const count = chart.data.datasets[0]?.data.length ?? 0;
    at = Math.max(0, Math.min(count - 1, at + step));
    const active = chart.data.datasets.map((_, datasetIndex) => ({datasetIndex, index: at}))
      .filter(({datasetIndex, index}) => chart.getDatasetMeta(datasetIndex).data[index]);
    if (active.length === 0) return;
    const first = chart.getDatasetMeta(active[0].datasetIndex).data[at];
    chart.tooltip.setActiveElements(active, {x: first.x, y: first.y});
    chart.update();
    document.getElementById('said').textContent =
      [...chart.tooltip.title, ...chart.tooltip.body.flatMap((part) => part.lines), ...(chart.tooltip.footer ?? [])].join('; ');
  });
  canvas.addEventListener('blur', () => {
    at = -1;
    const chart = chartNow();
    chart?.tooltip?.setActiveElements([], {x: 0, y: 0});
    chart?.update();
  });
}

function legend(entries) {
  const list = element('ul', {class: 'legend'});
  const paint = () => list.replaceChildren(...entries().map(({text, colour, kind}) => {
    const swatch = element('span', {class: `swatch ${kind ?? ''}`, 'aria-hidden': 'true'}, kind === 'cross' ? '✕' : '');
    if (colour) swatch.style.background = colour;
    return element('li', {}, swatch, text);
  }));
  list.paint = paint;
  paint();
  repaints.push(paint);
  return list;
}

function choice(text, options, chosen, change) {
  const select = element('select', {}, ...options.map(([value, words]) => element('option', {value}, words)));
  select.value = chosen;
  select.addEventListener('change', () => change(select.value));
  return element('label', {}, text, select);
}

// A section of the page. Charts are drawn when they come near the screen, or when the page is printed.
const waiting = new Map();
const nearScreen = new IntersectionObserver((seen) => {
  for (const entry of seen) if (entry.isIntersecting) drawNow(entry.target);
}, {rootMargin: '600px'});
function drawNow(root) {
  nearScreen.unobserve(root);
  waiting.get(root)?.();
  waiting.delete(root);
}
addEventListener('beforeprint', () => [...waiting.keys()].forEach(drawNow));

function drawSoon(figures) {
  for (const made of figures) {
    waiting.set(made.root, made.draw);
    nearScreen.observe(made.root);
  }
}

function section(id, title, ...content) {
  const made = element('section', {id, 'aria-labelledby': `${id}-title`}, element('h2', {id: `${id}-title`}, title), ...content);
  document.getElementById('sections').append(made);
  return made;
}
const lead = (text) => element('p', {class: 'lead'}, text);

// Columns are {title, text(row), value(row), number}. Each cell keeps its exact value.
function table(caption, columns, rows, name) {
  const head = element('tr', {}, ...columns.map((column, place) => {
    const title = column.value ? element('button', {type: 'button', title: 'Sort by this column'}, column.title) : column.title;
    const cell = element('th', {scope: 'col', class: column.number ? 'n' : null}, title);
    if (column.value) title.addEventListener('click', () => sortBy(cell, place, column));
    return cell;
  }));
  function sortBy(cell, place, column) {
    const down = cell.getAttribute('aria-sort') === 'descending' || (!cell.hasAttribute('aria-sort') && !column.number);
    for (const other of head.children) other.removeAttribute('aria-sort');
    cell.setAttribute('aria-sort', down ? 'ascending' : 'descending');
    const key = (row) => row.children[place].dataset.value ?? '';
    const compare = (a, b) => (column.number ? (key(a) || -1) - (key(b) || -1) : key(a).localeCompare(key(b)));
    const body = made.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => (down ? compare(a, b) : compare(b, a))));
  }
  const body = rows.map((row) => element('tr', row.id ? {'data-id': row.id} : {}, ...columns.map((column) => {
    const value = column.value?.(row);
    const content = column.text ? column.text(row) : value ?? '';
    return element('td', {class: column.number ? 'n' : column.wide ? 'text' : null, 'data-column': column.key, 'data-value': value}, content ?? '');
  })));
  const made = element('table', name ? {id: name} : {}, caption ? element('caption', {}, caption) : null, element('thead', {}, head), element('tbody', {}, ...body));
  return element('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption ?? 'table'}, made);
}
const tableRows = (columns, rows) => [columns.map((c) => c.key ?? c.title), ...rows.map((row) => columns.map((c) => c.value?.(row) ?? ''))];
