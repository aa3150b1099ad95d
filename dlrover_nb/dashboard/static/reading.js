// A run whose journal is still being read: asks for the page again until it has the moments of the run, and says
// meanwhile how far the reading is.

const AGAIN_MS = 1000;
const words = document.getElementById("reading");

async function ask() {
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const newer = page.getElementById("reading");
    if (answer.ok && !newer) {
      location.reload();
      return;
    }
    if (newer) words.textContent = newer.textContent;
  } catch {
    // the server does not answer now; it is asked again
  }
  setTimeout(ask, AGAIN_MS);
}

setTimeout(ask, AGAIN_MS);
