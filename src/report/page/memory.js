// The device's memory over a step, stacked by what it is for.

// A timeline made ready: after each event who much of each class is there.
function prepare(memory) {
  const {birth, death, bytes} = memory.blocks, classOf = memory.blocks.class, count = birth.length;
  const events = [];  // a birth of block i is i, its death is ~i; what dies goes before what is born at the same time
  for (let i = 0; i < count; ++i) {
    events.push(i);
    if (death[i] >= 0) events.push(~i);
  }
  const timeOf = (event) => (event >= 0 ? birth[event] : death[~event]);
  // A block without a life (born and gone at once) must be born first all the same.
  const rank = (event) => (event < 0 ? (birth[~event] === death[~event] ? 2 : 0) : 1);
  events.sort((a, b) => timeOf(a) - timeOf(b) || rank(a) - rank(b) || (a < 0 ? ~a : a) - (b < 0 ? ~b : b));
  const kinds = memory.classes.length, states = events.length;
  const times = new Float64Array(states), totals = new Float64Array(states);
  const levels = memory.classes.map(() => new Float64Array(states));
  const now = new Float64Array(kinds);
  let total = 0, top = 0;
  events.forEach((event, at) => {
    const block = event >= 0 ? event : ~event, change = event >= 0 ? bytes[block] : -bytes[block];
    now[classOf[block]] += change;
    total += change;
    times[at] = timeOf(event);
    totals[at] = total;
    for (let kind = 0; kind < kinds; ++kind) levels[kind][at] = now[kind];
    if (total > totals[top]) top = at;
  });
  const end = Math.max(times.at(-1) ?? 0, ...(memory.phases ?? []).map((phase) => phase.end));
  return {memory, events, times, totals, levels, top, end, peak: totals[top] ?? 0};
}

// The last state at or before a time.
function stateAt(line, time) {
  let low = 0, high = line.times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// For each of so many columns the state with the most bytes that was there in it.
function columnsOf(line, count) {
  const chosen = [];
  for (let column = 0; column < count; ++column) {
    const from = line.end * column / count, to = line.end * (column + 1) / count;
    let best = Math.max(0, stateAt(line, from));
    for (let at = best + 1; at < line.times.length && line.times[at] < to; ++at) {
      if (line.totals[at] > line.totals[best]) best = at;
    }
    chosen.push(best);
  }
  return chosen;
}

// Who is alive in a state, largest first; equal names of different layers are one.
function aliveAt(line, state) {
  const {names, blocks} = line.memory, alive = new Uint8Array(blocks.birth.length);
  for (let at = 0; at <= state; ++at) {
    const event = line.events[at];
    alive[event >= 0 ? event : ~event] = event >= 0 ? 1 : 0;
  }
  const rows = new Map();
  for (let i = 0; i < alive.length; ++i) {
    if (!alive[i]) continue;
    const name = names[blocks.name[i]].replace(/\.\d+\./, '.*.');
    const key = `${name}\n${blocks.class[i]}`;
    const row = rows.get(key) ?? {name, kind: line.memory.classes[blocks.class[i]], bytes: 0, count: 0};
    row.bytes += blocks.bytes[i];
    ++row.count;
    rows.set(key, row);
  }
  return [...rows.values()].sort((a, b) => b.bytes - a.bytes);
}

// Where the step was: the place of the block that was born last, or in a plan, which has none, the phase.
function placeAt(line, state) {
  for (let at = state; at >= 0; --at) {
    const event = line.events[at];
    if (event >= 0) {
      const place = line.memory.places[line.memory.blocks.place[event]];
      if (place) return place;
    }
  }
  const time = line.times[state] ?? 0;
  return (line.memory.phases ?? []).find((phase) => phase.begin <= time && time < phase.end)?.name ?? 'what stays from step to step';
}

const timeText = (line, time) => (line.memory.unit === 'ns' ? formatSeconds(time * 1e-9) : `event ${Math.round(time).toLocaleString('en-US')}`);

const prepared = new Map();
function lineOf(point) {
  if (!prepared.has(point)) prepared.set(point, prepare(point.memory));
  return prepared.get(point);
}

function memoryFigure(name, first, topNow) {
  let point = first, columns = [], at = null;
  const reading = element('div', {class: 'reading'}), cursor = element('div', {class: 'cursor', hidden: ''});
  const line = () => lineOf(point);

  const settings = () => {
    const l = line(), top = topNow(), axis = bytesAxis(top);
    const count = Math.max(64, Math.min(1600, Math.round((made.canvas.parentElement.clientWidth || 520) - 70)));
    columns = columnsOf(l, count);
    const used = l.memory.classes.map((kind, place) => ({kind, place})).filter(({place}) => l.levels[place].some((bytes) => bytes > 0));
    return {
      type: 'line',
      data: {datasets: used.map(({kind, place}) => ({
        label: kind,
        data: [...columns.map((state, column) => ({x: l.end * column / count, y: l.levels[place][state] ?? 0})), {x: l.end, y: l.levels[place][columns.at(-1)] ?? 0}],
        backgroundColor: colourOfClass(kind), borderWidth: 0, pointRadius: 0, pointHitRadius: 0, fill: 'stack', stepped: 'before',
      }))},
      options: {
        parsing: false, events: [], layout: {padding: {top: 18}},
        scales: {
          x: {type: 'linear', min: 0, max: l.end, grid: {display: false}, ticks: {maxTicksLimit: narrow() ? 4 : 6, maxRotation: 0, callback: (value) => (l.memory.unit === 'ns' ? formatSeconds(value * 1e-9) : value.toLocaleString('en-US'))},
            title: {text: l.memory.unit === 'ns' ? 'time in the step' : 'births and deaths of blocks, in their order'}},
          y: {stacked: true, beginAtZero: true, max: top, ticks: {stepSize: axis.stepSize, includeBounds: false, callback: axis.format}},
        },
        plugins: {limit: cap && cap <= top ? limitOptions() : {}, phases: {list: l.memory.phases}, tooltip: {enabled: false}, decimation: {enabled: false}},
      },
    };
  };
  const made = figure({name, title: pointTitle(point), settings, rows: () => csv(), height: narrow() ? 260 : 330, keys: false,
    label: 'Memory over a step, stacked by class. Left and right arrows move through the step, Home goes to its peak.'});

  const csv = () => {
    const l = line(), b = l.memory.blocks;
    return [['name', 'class', 'bytes', 'offset', 'birth', 'death', 'place'],
      ...b.birth.map((_, i) => [l.memory.names[b.name[i]], l.memory.classes[b.class[i]], b.bytes[i], b.offset[i], b.birth[i], b.death[i], l.memory.places[b.place[i]]])];
  };

  // Says what is there in a state, and marks the time that is looked at; null: none.
  function read(state, time) {
    const l = line(), rows = aliveAt(l, state), shown = rows.slice(0, 7);
    const rest = rows.slice(7).reduce((sum, row) => sum + row.bytes, 0);
    const isPeak = l.totals[state] === l.peak;
    const item = (colour, words, bytes) => {
      const swatch = element('span', {class: 'swatch'});
      swatch.style.background = colour;
      return element('li', {}, swatch, element('span', {title: words}, words), element('span', {}, formatBytes(bytes)));
    };
    reading.replaceChildren(
      element('p', {}, element('b', {}, formatBytes(l.totals[state] ?? 0)), isPeak ? ' at the peak, ' : ' at ', timeText(l, l.times[state] ?? 0)),
      element('p', {class: 'where'}, placeAt(l, state)),
      element('ol', {}, ...shown.map((row) => item(colourOfClass(row.kind), `${row.name}${row.count > 1 ? `, ${row.count} of them` : ''}`, row.bytes)),
        ...(rest > 0 ? [item(ink('line'), `${rows.length - 7} more`, rest)] : [])));
    const chart = made.chart();
    cursor.hidden = time === null || !chart;
    if (!cursor.hidden) {
      const {top, bottom} = chart.chartArea;
      cursor.style.cssText = `left:${Math.round(chart.scales.x.getPixelForValue(time))}px; top:${top}px; height:${bottom - top}px`;
    }
    at = state;
  }
  const readPeak = () => read(line().top, null);

  // The column under a pixel shows its fullest state; that is the one that is read.
  let pixel = null;
  made.canvas.addEventListener('pointermove', (event) => {
    if (pixel === null) requestAnimationFrame(readPixel);  // once a frame, however many moves there are
    pixel = event.offsetX;
  });
  function readPixel() {
    const chart = made.chart(), l = line();
    if (chart) {
      const time = Math.max(0, Math.min(l.end * 0.999999, chart.scales.x.getValueForPixel(pixel)));
      read(columns[Math.min(columns.length - 1, Math.floor(time / l.end * columns.length))], time);
    }
    pixel = null;
  }
  made.canvas.after(cursor);
  made.canvas.addEventListener('pointerleave', readPeak);
  made.canvas.addEventListener('keydown', (event) => {
    const l = line(), step = event.shiftKey ? Math.ceil(l.times.length / 50) : 1;
    const to = {ArrowRight: at + step, ArrowLeft: at - step, Home: l.top}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const state = Math.max(0, Math.min(l.times.length - 1, to));
    read(state, l.times[state]);
    document.getElementById('said').textContent = [...reading.querySelectorAll('p, li')].slice(0, 5).map((part) => part.innerText).join('; ');
  });

  const draw = made.draw;
  made.draw = () => {
    draw();
    readPeak();
  };
  repaints.push(() => made.chart() && readPeak());
  made.root.append(reading);
  made.show = (next) => {
    point = next;
    made.heading.firstChild.textContent = pointTitle(point);
    made.draw();
  };
  made.point = () => point;
  made.line = line;
  return made;
}

function addMemory() {
  const able = points.filter((point) => point.memory && point.memory.blocks.birth.length > 0);
  if (able.length === 0) return;
  const pair = (data.pair ?? []).map(pointById).filter((point) => able.includes(point));
  const chosen = [...new Set(pair.length ? pair : able.slice(0, 2))];
  // Both to one scale, so that heights can be compared.
  const top = () => {
    const peak = Math.max(...figures.map((f) => f.line().peak));
    return cap && cap > peak && cap < peak * 1.25 ? cap * 1.04 : peak * 1.04;
  };
  const figures = [];
  chosen.forEach((point, i) => figures.push(memoryFigure(`memory-${i ? 'right' : 'left'}`, point, top)));
  const choices = element('div', {class: 'choices'});
  if (able.length > chosen.length) {
    const options = able.map((point) => [point.id, pointTitle(point) + (isOut(point) ? ' (out of memory)' : '')]);
    figures.forEach((made, i) => choices.append(choice(figures.length > 1 ? ['Left', 'Right'][i] : 'Point', options, made.point().id, (id) => {
      made.show(pointById(id));
      figures.forEach((other) => other !== made && other.chart() && other.draw());
    })));
  }
  const kinds = () => able[0] && [...new Set(able.flatMap((point) => point.memory.classes))]
    .filter((kind) => able.some((point) => lineOf(point).memory.blocks.class.some((place) => point.memory.classes[place] === kind)));
  section('memory', 'Memory over a step', lead(memoryWordsOf(figures)),
    legend(() => kinds().map((kind) => ({text: kind, colour: colourOfClass(kind)}))), choices,
    element('div', {class: figures.length > 1 ? 'figures' : 'figures one'}, ...figures.map((f) => f.root)));
  drawSoon(figures);
}

// What the two pictures say about the loss.
function memoryWordsOf(figures) {
  const how = 'Each block of the device, from its birth to its death, stacked by what it is for. Move over a picture to see who is alive.';
  if (figures.length < 2) return how;
  const loss = figures.map((made) => {
    const l = made.line(), kind = l.memory.classes.indexOf('loss');
    return kind < 0 ? 0 : l.levels[kind].reduce((most, bytes) => Math.max(most, bytes), 0);
  });
  if (loss[0] > 4 * loss[1] && loss[0] > 0.05 * figures[0].line().peak) {
    return `The loss takes ${formatBytes(loss[0])} on the left and ${formatBytes(loss[1])} on the right, to the same scale. ${how}`;
  }
  return how;
}
