// Before the page's own scripts: remembers all that goes wrong.
//
// A browser that only dumps a document shows no frames, so frames come from the timer, which runs as
// fast as the work allows.
window.requestAnimationFrame = (paint) => setTimeout(() => paint(performance.now()), 16);
window.problems = [];
window.addEventListener("error", ({ message }) => window.problems.push(message));
window.addEventListener("unhandledrejection", ({ reason }) => window.problems.push(String(reason)));
console.error = (...parts) => window.problems.push(parts.join(" "));
