// Receives the page anew and changes what has changed, so that focus, scrolling and what is unfolded stay.
(() => {
  const every = 1000 * Number(document.documentElement.dataset.refresh);
  const change = (old, now) => {
    if (old.isEqualNode(now)) return;
    if (old.nodeName !== now.nodeName) { old.replaceWith(now); return; }
    if (old.nodeType === Node.TEXT_NODE) { old.data = now.data; return; }
    // Whether it is "open" is the reader's choice.
    for (const {name} of [...old.attributes])
      if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
    for (const {name, value} of now.attributes) old.setAttribute(name, value);
    const before = [...old.childNodes], after = [...now.childNodes];
    after.forEach((node, i) => i < before.length ? change(before[i], node) : old.append(node));
    before.slice(after.length).forEach((node) => node.remove());
  };
  let stream, begun = 0, last = Date.now();
  const open = () => {
    stream?.close();
    begun = Date.now();
    stream = new EventSource("events" + location.search);
    stream.onmessage = ({data}) => {
      const page = new DOMParser().parseFromString(JSON.parse(data), "text/html");
      last = Date.now();
      document.title = page.title;
      change(document.body, page.body);
    };
  };
  // Nobody waited for what did not come meanwhile.
  document.addEventListener("visibilitychange", () => { last = Date.now(); begun = 0; });
  setInterval(() => {
    const now = Date.now();
    if (document.hidden) { stream.close(); last = now; return; }
    const waited = now - begun, silent = now - last;
    // A browser itself retries neither what was answered by an error nor a connection that was lost in silence.
    if (stream.readyState === EventSource.CLOSED ? waited >= every : Math.min(waited, silent) > 4 * every) open();
    if (silent < (stream.readyState === EventSource.OPEN ? 3 : 1) * every) return;
    document.getElementById("lost").hidden = false;
    document.getElementById("silent").textContent = ` for ${Math.round(silent / 1000)} s`;
    document.body.className = "stale";
  }, 1000);
  open();
})();
