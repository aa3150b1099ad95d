// The batch of proposals: chooses all at once, and says what the chosen would change together.

const table = document.getElementById("batch");
const boxes = table ? [...table.querySelectorAll("input[name=pick]")] : [];
const chosen = document.getElementById("chosen");

function signed(value, digits = 4) {
  const text = Number(Math.abs(value).toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
  return `${value < 0 ? "-" : "+"}${text}`;
}

function show() {
  const picked = boxes.filter((box) => box.checked);
  const gain = picked.reduce((sum, box) => sum + Number(box.dataset.gain), 0);
  const costs = new Map();
  let nUnknown = 0;
  for (const box of picked) {
    if (box.dataset.cost === "") nUnknown += 1;
    else costs.set(box.dataset.currency, (costs.get(box.dataset.currency) || 0) + Number(box.dataset.cost));
  }
  const words = [`${picked.length} chosen`, `${signed(gain)} samples/s`];
  for (const [currency, value] of [...costs].sort()) words.push(`${signed(value)} ${currency}/h`);
  if (nUnknown) words.push(`${nUnknown} of unknown price`);
  chosen.textContent = picked.length ? `${words.join(", ")}.` : "";
  for (const button of table.closest("form").querySelectorAll("button[name=action]")) button.disabled = !picked.length;
}

if (boxes.length) {
  const all = Object.assign(document.createElement("input"), { type: "checkbox" });
  all.setAttribute("aria-label", "Choose all");
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    show();
  });
  document.getElementById("all-place").replaceWith(all);
  table.addEventListener("change", show);
  show();
}
