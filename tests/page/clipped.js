// What of the page is cut off or lies over something else: a list of lines, empty where all is well.
(() => {
  const found = [], root = document.documentElement;
  const said = (what, e) => found.push(`${what}: ${e.innerText.slice(0, 60)}`);
  const shown = e => e.getBoundingClientRect().width > 1 && e.getBoundingClientRect().height > 1;
  const apart = (a, b) =>
    a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
  if (root.scrollWidth > root.clientWidth) found.push("the document is wider than the window");
  const boxes = "section, .scroll, table, caption, th, td, td > div, dd, h1, h2, p, figcaption";
  for (const e of document.querySelectorAll(boxes))
    if (shown(e) && e.scrollWidth > e.clientWidth && getComputedStyle(e).display !== "inline") said("clipped", e);
  for (const cell of document.querySelectorAll("td, th")) {
    if (!shown(cell) || !shown(cell.parentElement.parentElement)) continue;
    const box = cell.getBoundingClientRect(), words = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (words.nextNode()) {
      const range = document.createRange();
      range.selectNodeContents(words.currentNode);
      for (const r of range.getClientRects())
        if (r.left < box.left - 1 || r.right > box.right + 1 || r.bottom > box.bottom + 1) said("text leaves", cell);
    }
    for (const other of cell.parentElement.children)
      if (other !== cell && !apart(box, other.getBoundingClientRect())) said("overlaps", cell);
  }
  return JSON.stringify([...new Set(found)]);
})()
