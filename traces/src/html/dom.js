// Elements of a page.

const element = (id) => document.getElementById(id);

/** Gives an element attributes and children; texts are texts, never markup. */
function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Makes an element with attributes and children. */
function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** A table with a row of headings, and rows in one body or in several. */
function makeTable(headings, ...bodies) {
  const heads = headings.map((heading) => make("th", { scope: "col" }, heading));
  return make("table", {},
    make("thead", {}, make("tr", {}, ...heads)),
    ...bodies.map((rows) => make("tbody", {}, ...rows)));
}
