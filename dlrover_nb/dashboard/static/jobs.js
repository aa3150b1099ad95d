// The list of all jobs: keeps its cells up to date, filters and sorts without asking, keeps the address in step.
// The rules of filters and order are those of `jobs_board.filters` and `jobs_board.rows`.

import { follow } from "./events.js";

const MISSING = "-";
const BELOW = "sentence"; // the second line of a row
const SEARCHED = ["owner", "tags", "state", "proposal", "needs"];
const SORT_MS = 4000; // rows change their places no more often, and never under the pointer or the focus
const CHART_MS = 300_000;
const NUMBER = /^[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?/;
const natural = new Intl.Collator("en", { numeric: true });

const page = document.getElementById("jobs");
const table = document.getElementById("table");
const form = document.getElementById("filters");
const count = document.getElementById("count");
const none = document.getElementById("none");
const columns = [...table.tHead.rows[0].cells].map((cell) => ({
  key: cell.dataset.c,
  isNumber: cell.classList.contains("n"),
  cell,
}));
const widths = [...table.querySelectorAll("col")];
const isNumber = Object.fromEntries(columns.map((column) => [column.key, column.isNumber]));
const rows = new Map([...table.tBodies].map((line) => [line.dataset.job, rowOf(line)]));
const chart = [];
let sortedMs = 0;

// A job is a part of the table of its own, of two lines: its cells, and its sentence.
function rowOf(line) {
  const all = [...line.rows].flatMap((each) => [...each.cells]);
  return { line, cells: Object.fromEntries(all.map((cell) => [cell.dataset.c, cell])), searched: null };
}

function newRow(name) {
  const line = document.createElement("tbody");
  line.dataset.job = name;
  const cells = line.insertRow();
  for (const { key, isNumber: number, cell: head } of columns) {
    const cell = document.createElement(key === "job" ? "th" : "td");
    cell.dataset.c = key;
    cell.hidden = head.hidden;
    if (number) cell.className = "n";
    if (key === "job") {
      cell.scope = "row";
      cell.append(...links(name));
    }
    cells.append(cell);
  }
  const below = line.insertRow();
  below.className = "jobs-below";
  const sentence = below.insertCell();
  sentence.dataset.c = BELOW;
  sentence.colSpan = columns.filter(({ cell }) => !cell.hidden).length;
  sentence.append(document.createElement("span"));
  table.append(line);
  const row = rowOf(line);
  rows.set(name, row);
  return row;
}

function links(name) {
  const link = document.createElement("a");
  link.className = "jobs-name";
  link.href = `job?${new URLSearchParams({ cluster: page.dataset.cluster, name })}`;
  link.textContent = name;
  const past = document.createElement("a");
  past.className = "jobs-past";
  past.href = `history?${new URLSearchParams({ cluster: page.dataset.cluster, q: name })}`;
  past.textContent = "runs";
  past.setAttribute("aria-label", `Past runs of ${name}`);
  const box = document.createElement("input");
  box.type = "checkbox";
  box.name = "job";
  box.value = name;
  box.setAttribute("form", "compare");
  box.setAttribute("aria-label", `Compare ${name}`);
  return [box, " ", link, " ", past];
}

// what a person wants to see

function wanted() {
  const data = new FormData(form);
  return {
    q: data.get("q").trim(),
    state: data.get("state"),
    owner: data.get("owner"),
    tag: data.get("tag"),
    needs: data.get("needs") || "",
    sort: page.dataset.sort === "needs" ? "" : page.dataset.sort,
    dir: page.dataset.dir,
    all: data.get("all") || "",
    cols: chosen() === table.dataset.usual ? "" : chosen(),
  };
}

function chosen() {
  const checked = new Set(new FormData(form).getAll("cols"));
  return columns.map(({ key }) => key).filter((key) => key === "job" || checked.has(key)).join(",");
}

// Shows the columns that are chosen, which share the width as they did.
function showColumns() {
  const keys = new Set(chosen().split(","));
  const isHidden = columns.map(({ key }) => !keys.has(key));
  const whole = widths.reduce((sum, col, at) => sum + (isHidden[at] ? 0 : Number(col.dataset.width)), 0);
  columns.forEach(({ key, cell }, at) => {
    cell.hidden = widths[at].hidden = isHidden[at];
    widths[at].style.width = `${(100 * Number(widths[at].dataset.width)) / whole}%`;
    for (const row of rows.values()) row.cells[key].hidden = isHidden[at];
  });
  for (const row of rows.values()) row.cells[BELOW].colSpan = keys.size;
}

function shows(row, want, words) {
  if (want.state && row.line.dataset.phase !== want.state) return false;
  if (want.owner && row.cells.owner.textContent !== want.owner) return false;
  if (want.tag && !row.cells.tags.textContent.split(", ").includes(want.tag)) return false;
  if (want.needs && !row.line.dataset.needs) return false;
  row.searched ??= [row.line.dataset.job, ...SEARCHED.map((key) => row.cells[key].textContent)].join(" ").toLowerCase();
  return words.every((word) => row.searched.includes(word));
}

function filter() {
  const want = wanted();
  const words = want.q.toLowerCase().split(/\s+/).filter(Boolean);
  const most = want.all ? Infinity : Number(table.dataset.most);
  let nMatch = 0;
  for (const line of table.tBodies) {
    const isMatch = shows(rows.get(line.dataset.job), want, words);
    const isDrawn = isMatch && nMatch < most;
    if (line.hidden === isDrawn) line.hidden = !isDrawn;
    nMatch += isMatch;
  }
  const told = (n) => n.toLocaleString("en");
  const rest = nMatch > most ? `; the first ${told(most)} are drawn` : "";
  const text = `${told(nMatch)} of ${told(rows.size)} job${rows.size === 1 ? "" : "s"}${rest}`;
  if (count.textContent !== text) count.textContent = text;
  none.hidden = rows.size > 0;
}

function value(row, key) {
  const cell = row.cells[key];
  if (cell.dataset.s !== undefined) return Number(cell.dataset.s);
  const text = cell.textContent;
  if (text === MISSING) return null;
  if (!isNumber[key]) return text.toLowerCase();
  const found = text.match(NUMBER);
  return found ? Number(found[0].replaceAll(",", "")) : null;
}

function compare(a, b) {
  if (typeof a !== typeof b) return typeof a === "string" ? 1 : -1;
  return a < b ? -1 : a > b ? 1 : 0;
}

function sort() {
  const key = page.dataset.sort;
  const way = page.dataset.dir === "down" ? -1 : 1;
  const all = [...rows.entries()].map(([name, row]) => ({ name, row, value: value(row, key) }));
  all.sort((a, b) => {
    if ((a.value === null) !== (b.value === null)) return a.value === null ? 1 : -1;
    if (key === "job") return way * natural.compare(a.name, b.name);
    return (a.value === null ? 0 : way * compare(a.value, b.value)) || natural.compare(a.name, b.name);
  });
  const focused = document.activeElement;
  const placed = [...table.tBodies];
  if (all.some(({ row }, at) => placed[at] !== row.line)) {
    table.append(...all.map(({ row }) => row.line));
    if (table.contains(focused)) focused.focus({ preventScroll: true });
  }
  sortedMs = Date.now();
}

function showOrder() {
  for (const { key, cell } of columns) {
    if (key !== page.dataset.sort) cell.removeAttribute("aria-sort");
    else cell.setAttribute("aria-sort", page.dataset.dir === "down" ? "descending" : "ascending");
  }
}

function keepAddress() {
  const told = Object.entries(wanted()).filter(([, text]) => text);
  const view = new URLSearchParams(told).toString();
  const whole = new URLSearchParams([["cluster", page.dataset.cluster], ...told]);
  history.replaceState(null, "", `?${whole}`);
  for (const field of document.querySelectorAll("input[name=view]")) field.value = view;
}

form.addEventListener("input", (event) => {
  if (event.target.name === "cols") showColumns();
  filter();
  keepAddress();
});
form.addEventListener("submit", (event) => event.preventDefault());
form.querySelector(":scope > button").hidden = true;
table.tHead.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-sort]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const isSame = link.dataset.sort === page.dataset.sort;
  page.dataset.dir = isSame && page.dataset.dir !== "down" ? "down" : "";
  page.dataset.sort = link.dataset.sort;
  sort();
  filter();
  showOrder();
  keepAddress();
});

// jobs over each other, in place

const comparing = document.getElementById("compare");
const compared = document.getElementById("compared");
const picked = document.getElementById("picked");
const atFirst = picked.textContent;

function pick() {
  const most = Number(table.dataset.compared);
  const names = new FormData(comparing).getAll("job");
  const isRight = names.length >= 2 && names.length <= most;
  comparing.querySelector("button").disabled = !isRight;
  picked.textContent = !names.length ? atFirst : `${names.length} ticked${isRight ? "" : `; tick 2 to ${most}`}.`;
}

comparing.addEventListener("submit", async (event) => {
  event.preventDefault();
  const url = `compare?${new URLSearchParams(new FormData(comparing))}`;
  compared.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(url, { cache: "no-store" });
    const part = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("comparison");
    if (!part) throw new Error(answer.statusText);
    const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
    close.addEventListener("click", () => {
      compared.replaceChildren();
      compared.hidden = true;
      comparing.querySelector("button").focus();
    });
    compared.replaceChildren(close, part);
    compared.hidden = false;
    picked.textContent = "The curves stand below.";
  } catch {
    location.assign(url); // that page says what is wrong
  } finally {
    compared.removeAttribute("aria-busy");
  }
});
table.addEventListener("change", pick);
pick();

// what the server tells

function take(message) {
  if (message.a) {
    for (const [name, row] of rows) {
      if (!message.c || !(name in message.c)) drop(name, row);
    }
  }
  for (const [name, cells] of Object.entries(message.c || {})) change(rows.get(name) || newRow(name), cells);
  for (const name of message.g || []) if (rows.has(name)) drop(name, rows.get(name));
  for (const [title, text] of Object.entries(message.t || {})) {
    const told = document.querySelector(`[data-total="${CSS.escape(title)}"]`);
    if (told) told.textContent = text;
  }
  if (message.p) people(message.p);
  if (message.w) document.getElementById("news").textContent = message.w.join(" ");
  draw();
  if (message.c || message.g) {
    const isBusy = table.querySelector("tbody:hover") || document.activeElement.closest("#table tbody");
    if (!isBusy && Date.now() - sortedMs > SORT_MS) sort();
    filter();
  }
}

function change(row, cells) {
  for (const [key, told] of Object.entries(cells)) {
    if (key.startsWith("_")) {
      row.line.dataset[key.slice(1)] = told;
      continue;
    }
    const [text, number, exact] = Array.isArray(told) ? told : [told];
    const cell = row.cells[key];
    if (number === undefined || number === null) delete cell.dataset.s;
    else cell.dataset.s = number;
    if (exact) cell.title = exact;
    else cell.removeAttribute("title");
    if (key === BELOW) cell.firstElementChild.textContent = text;
    else if (key !== "job") cell.textContent = text;
    if (key === "owner") offer(form.elements.owner, text);
    if (key === "tags") text.split(", ").forEach((tag) => offer(form.elements.tag, tag));
    if (SEARCHED.includes(key)) row.searched = null;
  }
}

function drop(name, row) {
  row.line.remove();
  rows.delete(name);
  pick();
}

function offer(choice, text) {
  if (text === MISSING || [...choice.options].some((option) => option.value === text)) return;
  choice.add(new Option(text, text));
}

function people(told) {
  const lines = told.map((cells) => {
    const line = document.createElement("tr");
    line.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
    return line;
  });
  document.getElementById("people").tBodies[0].replaceChildren(...lines);
}

function draw() {
  const nowMs = Date.now();
  let sum = 0;
  for (const row of rows.values()) sum += value(row, "rate") || 0;
  chart.push([nowMs, sum]);
  while (chart.length > 2 && (nowMs - chart[0][0] > CHART_MS || chart.length > 600)) chart.shift();
  const most = Math.max(...chart.map(([, rate]) => rate), 1);
  const spanMs = Math.max(nowMs - chart[0][0], 60_000);
  const points = chart.map(([atMs, rate]) => {
    const x = 240 * (1 - (nowMs - atMs) / spanMs);
    return `${x.toFixed(1)} ${(46 - 44 * (rate / most)).toFixed(1)}`;
  });
  document.querySelector("#chart path").setAttribute("d", `M${points.join("L")}`);
}

follow(`events/jobs?${new URLSearchParams({ cluster: page.dataset.cluster })}`, take, document.getElementById("stale"));
