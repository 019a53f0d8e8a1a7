// Before the page's own scripts: remembers all that goes wrong.
//
// A browser that only dumps a document shows no frames, so frames come from the timer, which runs as
// fast as the work allows.
window.requestAnimationFrame = (paint) => setTimeout(() => paint(performance.now()), 16);
window.problems = [];
window.addEventListener("error", ({ message }) => window.problems.push(message));
window.addEventListener("unhandledrejection", ({ reason }) => window.problems.push(String(reason)));
console.error = (...parts) => window.problems.push(parts.join(" "));

/** Leaves what a reader saw in the document, as JSON, with all that went wrong. */
window.leave = (saw) => {
  // Nothing in it needs escapes of HTML.
  const json = JSON.stringify({ ...saw, problems: window.problems }).replace(
    /[<>&]/g,
    (character) => `\\u00${character.charCodeAt(0).toString(16)}`,
  );
  document.documentElement.innerHTML = `<body><pre id="saw">${json}</pre></body>`;
};
