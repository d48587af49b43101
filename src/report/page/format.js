// Numbers as people read them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

function three(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2);
}

// The power of 1024 that suits a number of bytes.
function unitOf(bytes) {
  let unit = 0;
  while (Math.abs(bytes) >= 1024 ** (unit + 1) && unit < UNITS.length - 1) ++unit;
  return unit;
}

function formatBytes(bytes) {
  const unit = unitOf(bytes);
  return bytes === 0 ? '0' : `${three(bytes / 1024 ** unit)} ${UNITS[unit]}`;
}

function formatSeconds(seconds) {
  const size = Math.abs(seconds);
  if (size >= 120) return `${three(seconds / 60)} min`;
  if (size >= 1 || size === 0) return `${three(seconds)} s`;
  if (size >= 1e-3) return `${three(seconds * 1e3)} ms`;
  return `${three(seconds * 1e6)} µs`;
}

function formatCount(value) {
  if (value >= 1e9) return `${three(value / 1e9)} billion`;
  if (value >= 1e6) return `${three(value / 1e6)} million`;
  return value.toLocaleString('en-US');
}

function formatRate(value) {
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString('en-US') : three(value);
}

function formatPerSecond(value, what) {
  const place = Math.min(4, Math.floor(Math.log10(Math.max(1, value)) / 3));
  return `${three(value / 1000 ** place)} ${['', 'k', 'M', 'G', 'T'][place]}${what}`;
}

function formatShare(value) {
  return `${(value * 100).toFixed(value < 0.0995 ? 1 : 0)} %`;
}

// The ticks of an axis from 0 to so many bytes: a power of two apart.
function bytesAxis(most) {
  return {
    stepSize: 2 ** Math.round(Math.log2(Math.max(most, 8) / 4.5)),
    format: (bytes) => (bytes === 0 ? '0' : `${+(bytes / 1024 ** unitOf(bytes)).toFixed(2)} ${UNITS[unitOf(bytes)]}`),
  };
}

// Words on lines of at most so many letters, as far as words allow.
function wrapped(text, most) {
  const lines = [];
  for (const word of text.split(' ')) {
    if (lines.length && lines.at(-1).length + 1 + word.length <= most) lines[lines.length - 1] += ` ${word}`;
    else lines.push(word);
  }
  return lines;
}

function csvText(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? '' : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';
}
