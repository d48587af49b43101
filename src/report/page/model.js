// The study's points as the charts ask for them.

const study = data.study ?? {};
const points = data.points ?? [];
const strategies = study.strategies ?? [];
const cap = study.cap_bytes ?? 0;
const strategyTitle = (name) => strategies.find((s) => s.name === name)?.title || name || '';
const strategyPlace = (name) => strategies.findIndex((s) => s.name === name);
const isDone = (point) => point.status === 'done';
const isOut = (point) => point.status === 'out of memory';
// Of the device: what the plan took, and what was measured beyond it.
const peakBytes = (point) => point.planned.device + (point.measured.beyond_plan_bytes ?? 0);
const rate = (point) => point.measured.tokens_per_second;
const batchOf = (point) => point.batch * (point.accumulate || 1);
const batchText = (point) => ((point.accumulate || 1) > 1 ? `${point.batch} × ${point.accumulate}` : `${point.batch}`);
const sizeText = (point) => `batch ${batchText(point)} × ${point.seq}`;
const pointTitle = (point) => point.title ?? `${strategyTitle(point.strategy)}, ${sizeText(point)}`;
const pointById = (id) => points.find((point) => point.id === id);
const usedStrategies = strategies.filter((s) => points.some((point) => point.strategy === s.name && point.status !== 'missing'));
const whyText = (point) => (isOut(point) ? `out of memory (${point.proved ? 'it was run, and failed' : 'by its plan'})` : point.status);
const distinct = (values) => [...new Set(values)].sort((a, b) => a - b);
