// Loads the page again and changes what has changed, so that focus, scrolling and what is unfolded stay.
(() => {
  const seconds = Number(document.documentElement.dataset.refresh);
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
  const load = async () => {
    try {
      const answer = await fetch(location.href, {cache: "no-store", signal: AbortSignal.timeout(10000)});
      if (!answer.ok) throw new Error(answer.statusText);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.title = page.title;
      change(document.body, page.body);
    } catch {
      document.getElementById("lost").hidden = false;
      document.body.className = "stale";
    }
    setTimeout(load, 1000 * seconds);
  };
  setTimeout(load, 1000 * seconds);
})();
