// The page of one job: says what is new, keeps its sentence, puts the live charts in the place of the first picture
// once they are drawn, and brings them back after a lost connection.

import { follow } from "./events.js";

const page = document.getElementById("job");
const news = document.getElementById("news");
const live = document.getElementById("live");
let seen = null;

function take(message) {
  if (message.a && seen !== null) bringBack(); // the server has begun anew
  const cells = (message.c || {})[page.dataset.job];
  if (seen === null) {
    seen = facts(cells || {});
    page.dataset.heard = ""; // changes from here on are told
    return;
  }
  if (!cells) return;
  const before = seen;
  seen = { ...seen, ...facts(cells) };
  const said = [];
  const known = opened(before.proposal);
  const now = opened(seen.proposal);
  const fresh = [...now].filter(([id, text]) => known.get(id) !== text).map(([, text]) => text);
  if (fresh.length) said.push(`New: ${fresh.join("; ")}.`);
  else for (const id of known.keys()) if (!now.has(id)) said.push(`${id} is not open any more.`);
  if (seen.phase !== before.phase) said.push(`The job is ${seen.phase} now.`);
  show(before);
  if (said.length) tell(said.join(" "));
}

// What waits for an answer, the proposal and the action against a straggler, each by its id.
function opened(text) {
  const parts = (text || "-").split("; ").filter((part) => part !== "-");
  return new Map(parts.map((part) => [part.split(" ")[0], part]));
}

// The sentence of the list of jobs is that of the page, or a shorter one: it is taken when it has changed.
function show(before) {
  const phase = document.getElementById("phase");
  phase.textContent = phase.dataset.phase = seen.phase;
  if (seen.sentence === before.sentence) return;
  document.getElementById("lead").textContent = seen.sentence;
  document.getElementById("detail")?.remove();
}

function facts(cells) {
  const told = {};
  if ("sentence" in cells) told.sentence = cells.sentence;
  if ("proposal" in cells) told.proposal = [cells.proposal].flat()[0];
  if ("_phase" in cells) told.phase = cells._phase;
  return told;
}

function tell(words) {
  const link = document.createElement("a");
  link.href = location.href.replace(/&flash=[^&]*/, "");
  link.textContent = "Show it";
  news.replaceChildren(`${words} `, link);
}

// The live charts take the place of the picture that the server has drawn when all of them are there, or after a
// while, as then the frame says what is wrong.
// Of a frame that could not be loaded there is no document: asking for what is in its window is an error.
const isDrawn = () => (live.contentDocument && live.contentWindow.Bokeh?.documents?.[0]?.is_idle) ?? false;
const LATE_MS = 20_000;

// A frame that has lost its server loads itself anew; another time would close what a person has opened in it meanwhile.
// One that could not be loaded does not, and neither does one whose server went while it was loading.
function bringBack() {
  const reload = () => { live.src = live.getAttribute("src"); };
  const isFailed = !live.contentDocument || (live.contentDocument.readyState === "complete" && !live.contentWindow.Bokeh);
  if (isFailed) reload();
  else setTimeout(() => { if (!isConnected()) reload(); }, LATE_MS);
}

const isConnected = () =>
  live.contentDocument !== null && live.contentWindow.Bokeh?.documents?.[0]?.dlrover_link?.is_cut === false;
const beganMs = Date.now();
live.classList.add("is-loading");
live.hidden = false;
const loading = setInterval(() => {
  if (!isDrawn() && Date.now() - beganMs < LATE_MS) return;
  clearInterval(loading);
  live.classList.remove("is-loading");
  document.getElementById("still").remove();
  fitAnew();
}, 100);

// The live part has the buttons of the page's answer too, and those follow the job: the page's own, which work without
// scripts, go once they are there, but not while a person is about to use them.
function leaveTheAnswerToTheLivePart() {
  const answer = document.querySelector(".job-answer form");
  if (!answer || answer.hidden || !isDrawn()) return;
  const isInUse = answer.matches(":hover, :focus-within") || answer.querySelector("[name=reason]")?.value;
  answer.hidden = !isInUse;
}
setInterval(leaveTheAnswerToTheLivePart, 500);

// The frame is as high as what it shows. It only grows from then on, so that nothing below a reader moves up, but for
// another width of the window, where all moves anyway.
function fit() {
  const root = live.contentDocument && live.contentDocument.documentElement;
  if (!root || live.classList.contains("is-loading")) return;
  const wanted = Math.min(root.scrollHeight, 6000);
  if (wanted > live.clientHeight + 8) live.style.height = `${wanted}px`;
}
setInterval(fit, 250);

// A document is never less high than its frame: so that tells what it needs only when it has hardly any room.
function fitAnew() {
  live.style.height = "1px";
  fit();
}

for (const button of document.querySelectorAll("button[data-copies]")) {
  button.hidden = !navigator.clipboard; // it needs https, or this machine
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
    button.textContent = "Copied";
  });
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  fitAnew();
});

const asked = new URLSearchParams({ cluster: page.dataset.cluster, job: page.dataset.job });
follow(`events/jobs?${asked}`, take, document.getElementById("stale"));
