// Uses a report as a person does, and leaves what it saw.
(async () => {
  const element = (id) => document.getElementById(id);
  const saw = {};
  const drawn = () => new Promise((done) => requestAnimationFrame(done));

  const use = async () => {
    await drawn();
    saw.title = document.title;
    saw.plans = document.querySelectorAll("#scatter .plan").length;
    saw.others = document.querySelectorAll("#scatter .point").length;
    saw.bars = document.querySelectorAll("#bars .bar").length;
    saw.stacks = [...document.querySelectorAll("#bars .stack")].map((stack) =>
      [...stack.children].reduce((sum, part) => sum + parseFloat(part.style.width), 0));
    saw.losses = document.querySelectorAll("#losses > li").length;
    saw.verdict = element("verdict").innerText;
    saw.firstViewer = element("timelines").srcdoc;

    element("second").value = String(saw.plans - 1);
    element("second").dispatchEvent(new Event("change", { bubbles: true }));
    await drawn();
    saw.verdictOfLast = element("verdict").innerText;
    saw.pair = element("pair").innerText;
    document.querySelectorAll("#scatter .plan")[1].dispatchEvent(new MouseEvent("click", { bubbles: true }));
    await drawn();
    saw.verdictAfterClick = element("verdict").innerText;
    saw.chosen = [element("first").value, element("second").value];
    saw.isWide = document.documentElement.scrollWidth > innerWidth;
  };

  try {
    await use();
  } catch (error) {
    window.problems.push(error.stack);
  }
  window.leave(saw);
})();
