// Follows a stream of server-sent events, and says on the page when it is old; then no command can be sent from it.

const STALE_MS = 5000; // a second between two events, a few for a busy server
const AGAIN_MS = 3000;

/**
 * Call `take` with each event of `url`, for as long as the page lives.
 *
 * A browser asks again by itself when a connection is lost, but not after an answer that is an error, as a
 * proxy gives while the server starts: then it is done here. `told` is an element that says how old the page is.
 */
export function follow(url, take, told) {
  let heardMs = Date.now();
  let source = null;
  let error = "";
  let isOut = false; // the server began anew, and this browser has no cookie of it
  const open = () => {
    source = new EventSource(url);
    source.onmessage = (event) => {
      const message = JSON.parse(event.data);
      heardMs = Date.now();
      if ("e" in message) error = message.e;
      if (message.a) error = message.e || "";
      take(message);
      show();
    };
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return;
      fetch(location.href, { method: "HEAD", cache: "no-store" })
        .then((answer) => { isOut = answer.status === 401; }, () => { isOut = false; })
        .finally(() => setTimeout(open, AGAIN_MS));
    };
  };
  const show = () => {
    const age = Date.now() - heardMs;
    const why = isOut
      ? "the server was started again and does not know this browser; open the address that it printed"
      : "the server does not answer; nothing can be decided here until it does, and then this page goes on by itself";
    const text = age > STALE_MS
      ? `stale ${Math.round(age / 1000)} s: ${why}`
      : error && `The cluster does not answer: ${error}`;
    if (told.textContent !== text) told.textContent = text;
    told.hidden = !text;
    for (const form of document.querySelectorAll("form[action$='/do']")) form.inert = age > STALE_MS;
  };
  open();
  setInterval(show, 1000);
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => {
    if (event.persisted) open();
  });
}
